"""Losses from the functions of ``jax.nn``, ``jax.numpy`` and ``jax.scipy``, an element each, and their sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import xlogy

from mpsref import Loss
from mpsref.errors import UnsupportedError
from mpsref_jax.run import Function, JaxArray, pullback


def _huber(loss: Loss) -> Function:
    delta = loss.delta

    def huber(y: JaxArray, t: JaxArray) -> JaxArray:
        size = jnp.abs(y - t)
        return jnp.where(size <= delta, 0.5 * size * size, delta * (size - 0.5 * delta))

    return huber


FUNCTIONS: Mapping[str, Callable[[Loss], Function]] = {
    "meanabsoluteerror": lambda loss: lambda y, t: jnp.abs(y - t),
    "meansquarederror": lambda loss: lambda y, t: jnp.square(y - t),
    "softmaxcrossentropy": lambda loss: lambda y, t: -t * jax.nn.log_softmax(y),
    "sigmoidcrossentropy": lambda loss: lambda y, t: jax.nn.softplus(y) - t * y,
    "categoricalcrossentropy": lambda loss: lambda y, t: -xlogy(t, y),
    "hinge": lambda loss: lambda y, t: jax.nn.relu(1 - (2 * t - 1) * y),
    "huber": _huber,
    "cosinedistance": lambda loss: lambda y, t: -y * t,
    "log": lambda loss: lambda y, t: -xlogy(t, y + loss.epsilon) - xlogy(1 - t, 1 - y + loss.epsilon),
    "kullbackleiblerdivergence": lambda loss: lambda y, t: xlogy(t, t) - t * y,
}


def _function(problem: Any) -> Function:
    """Return the loss of each element as a function of y, t and weights."""
    spec, channels = problem.spec, problem.source_shape[3]
    element, (scale, shift) = FUNCTIONS[spec.type](spec), spec.smoothing

    def losses(y: JaxArray, t: JaxArray, *weights: JaxArray) -> JaxArray:
        v = spec.weight * element(y, scale * t[..., :channels] + shift)
        return v * weights[0] if weights else v

    return losses


def forward(problem: Any) -> Function:
    losses, loss = _function(problem), problem.spec
    if loss.reduction == "none":
        return losses

    def reduced(y: JaxArray, t: JaxArray, *weights: JaxArray) -> JaxArray:
        sums = losses(y, t, *weights).sum(axis=(1, 2, 3)) + (loss.weight if loss.type == "cosinedistance" else 0)
        divisors = problem.divisors(None)
        if loss.reduction == "sumbynonzeroweights" and weights and loss.weight:
            divisors = jnp.count_nonzero(weights[0], axis=(1, 2, 3))
            divisors = divisors.at[0].set(divisors.sum()) if loss.reduce_across_batch else divisors
        if loss.reduce_across_batch:
            sums = jnp.zeros_like(sums).at[0].set(sums.sum())
        return jnp.where(divisors > 0, sums / jnp.maximum(divisors, 1), 0)[:, None, None, None]

    return reduced


def gradient(problem: Any) -> Function:
    if problem.spec.type != "softmaxcrossentropy":
        return _gradient(0)(problem)
    if problem.weighted or problem.spec.reduction == "none":
        raise UnsupportedError("a cross entropy of JAX is one number for each pixel, without weights of channels")
    scale, shift = problem.spec.smoothing

    def gradients(*inputs: JaxArray) -> JaxArray:
        g, y, t, _ = problem.named_inputs(inputs)
        t = scale * t[..., : y.shape[3]] + shift
        upstream = jnp.broadcast_to(_upstream(problem, g)[..., 0], y.shape[:3]) * problem.spec.weight
        return pullback(lambda y: jax.nn.logsumexp(y, axis=3) - (t * y).sum(axis=3), upstream, y)[0]

    return gradients


def _upstream(problem: Any, g: JaxArray | None) -> JaxArray:
    if g is None:
        return jnp.ones(problem.loss_shape)
    return g[:1] if problem.spec.reduce_across_batch and problem.spec.reduction != "none" else g


def _gradient(position: int) -> Callable[[Any], Function]:
    """Return the gradient for y or t."""

    def gradient(problem: Any) -> Function:
        losses = _function(problem)

        def gradients(*inputs: JaxArray) -> JaxArray:
            g, y, t, weights = problem.named_inputs(inputs)
            given = [one for one in (y, t, weights) if one is not None]
            return pullback(losses, jnp.broadcast_to(_upstream(problem, g), y.shape), *given)[position]

        return gradients

    return gradient


IMPLEMENTATIONS = {
    (Loss, "forward"): forward,
    (Loss, "gradient"): gradient,
    (Loss, "gradient_labels"): _gradient(1),
}
