"""Batch normalization by ``jax.nn.standardize``; the gradient with given sums is no function of JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from mpsref import BatchNormalization
from mpsref.errors import UnsupportedError
from mpsref.kernels.batch_normalization import merged
from mpsref_jax.neuron import function_of
from mpsref_jax.run import Function, JaxArray, pullback

PIXELS = (0, 1, 2)


def _layer(problem: Any) -> Function:
    """Return the layer as a function of x, beta, gamma, mean and variance."""
    neuron, epsilon = function_of(problem.spec.neuron), problem.spec.epsilon

    def layer(x: JaxArray, beta: JaxArray, gamma: JaxArray, mean: JaxArray, variance: JaxArray) -> JaxArray:
        return neuron(jax.nn.standardize(x, PIXELS, mean, variance, epsilon) * gamma + beta)

    return layer


def _inputs(given: Any) -> list[JaxArray]:
    """Return x, beta, gamma, mean and variance."""
    gamma = jnp.ones_like(given.mean) if given.gamma is None else given.gamma
    beta = jnp.zeros_like(given.mean) if given.beta is None else given.beta
    return [given.x, beta, gamma, given.mean, given.variance]


def statistics(problem: Any) -> Function:
    def moments(*inputs: JaxArray) -> tuple[JaxArray, JaxArray]:
        given = problem.named(inputs)
        mean, m2 = jnp.mean(given.x, PIXELS), jnp.var(given.x, PIXELS) * problem.pixels
        return merged(problem.count, given.mean, given.m2, problem.pixels, mean, m2) if problem.count else (mean, m2)

    return moments


def forward(problem: Any) -> Function:
    layer = _layer(problem)
    return lambda *inputs: layer(*_inputs(problem.named(inputs)))


def statistics_gradient(problem: Any) -> Function:
    layer = _layer(problem)

    def sums(*inputs: JaxArray) -> tuple[JaxArray, JaxArray]:
        given = problem.named(inputs)
        _, dbeta, dgamma, *_ = pullback(layer, given.g, *_inputs(given))
        return (dbeta + given.dbeta, dgamma + given.dgamma) if problem.count else (dbeta, dgamma)

    return sums


def gradient(problem: Any) -> Function:
    if problem.count:
        raise UnsupportedError("in training JAX differentiates mean and variance itself; it takes no sums")
    layer = _layer(problem)

    def dx(*inputs: JaxArray) -> JaxArray:
        given = problem.named(inputs)
        return pullback(layer, given.g, *_inputs(given))[0]

    return dx


IMPLEMENTATIONS = {
    (BatchNormalization, "statistics"): statistics,
    (BatchNormalization, "forward"): forward,
    (BatchNormalization, "statistics_gradient"): statistics_gradient,
    (BatchNormalization, "gradient"): gradient,
}
