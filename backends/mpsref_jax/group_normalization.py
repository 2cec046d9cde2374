"""Instance and group normalization by ``jax.numpy.mean`` and ``var``, and ``jax.nn.standardize``."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from mpsref import GroupNormalization, InstanceNormalization
from mpsref.kernels.group_normalization import ALL_VALUES
from mpsref_jax.run import Function, JaxArray, pullback


def _layer(problem: Any) -> Function:
    """Return the layer as a function of x, gamma and beta."""

    def normalize(x: JaxArray, gamma: JaxArray, beta: JaxArray) -> JaxArray:
        grouped = x.reshape(problem.grouped_shape)
        mean, variance = (moment(grouped, ALL_VALUES, keepdims=True) for moment in (jnp.mean, jnp.var))
        xhat = jax.nn.standardize(grouped, ALL_VALUES, mean, variance, problem.spec.epsilon)
        return xhat.reshape(x.shape) * gamma + beta

    return normalize


def forward(problem: Any) -> Function:
    layer = _layer(problem)
    return lambda x, *vectors: layer(x, *problem.parameters(vectors, x.dtype))


def gradient(problem: Any) -> Function:
    layer = _layer(problem)

    def gradients(g: JaxArray, x: JaxArray, *vectors: JaxArray) -> tuple[JaxArray, ...]:
        n, *_, channels = x.shape
        gamma = jnp.broadcast_to(problem.parameters(vectors, x.dtype), (n, 1, 1, channels))  # a row for each image
        dx, dgamma, dbeta = pullback(layer, g, x, gamma, jnp.zeros_like(gamma))
        return dx, dgamma.reshape(n, channels), dbeta.reshape(n, channels)

    return gradients


IMPLEMENTATIONS = {
    (kind, method): function
    for kind in (InstanceNormalization, GroupNormalization)
    for method, function in (("forward", forward), ("gradient", gradient))
}
