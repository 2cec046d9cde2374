from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from mpsref import LogSoftMax, SoftMax
from mpsref_jax.run import Function, pullback


def forward(problem: Any) -> Function:
    softmax = jax.nn.log_softmax if isinstance(problem.spec, LogSoftMax) else jax.nn.softmax
    return lambda x: softmax(x, axis=-1)


def gradient(problem: Any) -> Function:
    """Return the gradient at a source whose result is y."""
    logarithmic, function = isinstance(problem.spec, LogSoftMax), forward(problem)
    return lambda g, y: pullback(function, g, y if logarithmic else jnp.log(y))[0]


IMPLEMENTATIONS = {
    (kind, method): function
    for kind in (SoftMax, LogSoftMax)
    for method, function in (("forward", forward), ("gradient", gradient))
}
