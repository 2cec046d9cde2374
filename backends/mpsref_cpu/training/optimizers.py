"""Optimizers: one pass over all arrays; a block's gradient is prepared in the cache, then the update is one loop.

Constants are computed in float64 and rounded once. Divisions and square roots are those of IEEE 754.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.optimizers import (
    REGULARIZATIONS,
    Adam,
    AdamStep,
    Optimizer,
    OptimizerStep,
    RMSProp,
    RMSPropStep,
    SGDStep,
    StochasticGradientDescent,
)
from mpsref.operations import cached_in_problem
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.compiling import compiled, inlined
from mpsref_cpu.threads import as_storage, for_rows

BLOCK = 4096
"""Number of elements of a block: 16 KB of an array."""

real = np.float32
ZERO, ONE = real(0), real(1)


class Preparation(NamedTuple):
    """How a gradient is clipped (to infinite bounds if it is not), rescaled, and joined with a penalty."""

    low: Any
    high: Any
    rescale: Any
    penalty: int
    scale: Any


@cached_in_problem
def _preparation(optimizer: Optimizer) -> Preparation:
    """Return the preparation of ``optimizer`` in float32."""
    bounds = optimizer.gradient_clip_min, optimizer.gradient_clip_max
    low, high = bounds if optimizer.apply_gradient_clipping else (-math.inf, math.inf)
    penalty = REGULARIZATIONS.index(optimizer.regularization_type)
    rescale, scale = real(optimizer.gradient_rescale), real(optimizer.regularization_scale)
    return Preparation(real(low), real(high), rescale, penalty, scale)


def _run(update: Callable[..., None], problem: OptimizerStep, constants: tuple[float, ...], arrays: Any) -> None:
    """Call ``update`` on blocks of all ``arrays``."""
    flat = [as_storage(array) for array in arrays]
    preparation, numbers = _preparation(problem.spec), np.array(constants, np.float32)
    for_rows(update, -(-flat[0].size // BLOCK), preparation, numbers, *flat, nbytes=sum(array.nbytes for array in flat))


def sgd(problem: SGDStep, *inputs: Array, out: Array | tuple[Array, ...]) -> None:
    """Fill ``out`` with the new values, and the new momentum where there is one."""
    spec = problem.spec
    constants = spec.learning_rate, spec.momentum_scale
    outs = out if isinstance(out, tuple) else (out,)
    update = (_nesterov if spec.use_nesterov_momentum else _momentum) if problem.momentum else _plain
    _run(update, problem, constants, (*inputs, *outs))


def rmsprop(problem: RMSPropStep, *inputs: Array, out: tuple[Array, ...]) -> None:
    """Fill ``out`` with the new values and sums of squares."""
    spec = problem.spec
    _run(_rmsprop, problem, (spec.learning_rate, spec.decay, 1 - spec.decay, spec.epsilon), (*inputs, *out))


def adam(problem: AdamStep, *inputs: Array, out: tuple[Array, ...]) -> None:
    """Fill ``out`` with the new values, momentum and velocities."""
    spec = problem.spec
    rate = spec.corrected_rate(problem.time_step)
    constants = rate, spec.beta1, 1 - spec.beta1, spec.beta2, 1 - spec.beta2, spec.epsilon
    _run(_amsgrad if problem.maximum else _adam, problem, constants, (*inputs, *out))


@inlined
def _prepare(prepared, p, gradient, value, at, n):
    """Set ``prepared`` to the gradients from ``at`` on as the update uses them."""
    for i in range(n):
        g = gradient[at + i]
        g = p.low if g < p.low else (p.high if g > p.high else g)
        prepared[i] = g * p.rescale
    if p.penalty == 1:
        for i in range(n):
            v = value[at + i]
            prepared[i] += p.scale if v > ZERO else (-p.scale if v < ZERO else v)  # NaN stays
    elif p.penalty == 2:
        for i in range(n):
            prepared[i] += p.scale * value[at + i]


@inlined
def _block(row, size):
    """Return where a block begins and how many elements it has."""
    at = row * BLOCK
    return np.uintp(at), np.uintp(min(BLOCK, size - at))


@compiled
def _plain(begin, end, p, c, gradient, value, new_value):
    prepared, lr = np.empty(BLOCK, real), c[0]
    for row in range(begin, end):
        at, n = _block(row, value.size)
        _prepare(prepared, p, gradient, value, at, n)
        for i in range(n):
            new_value[at + i] = value[at + i] - lr * prepared[i]


@compiled
def _momentum(begin, end, p, c, gradient, value, m, new_value, new_m):
    prepared, lr, scale = np.empty(BLOCK, real), c[0], c[1]
    for row in range(begin, end):
        at, n = _block(row, value.size)
        _prepare(prepared, p, gradient, value, at, n)
        for i in range(n):
            moved = scale * m[at + i] + lr * prepared[i]
            new_m[at + i] = moved
            new_value[at + i] = value[at + i] - moved


@compiled
def _nesterov(begin, end, p, c, gradient, value, m, new_value, new_m):
    prepared, lr, scale = np.empty(BLOCK, real), c[0], c[1]
    for row in range(begin, end):
        at, n = _block(row, value.size)
        _prepare(prepared, p, gradient, value, at, n)
        for i in range(n):
            moved = scale * m[at + i] + prepared[i]
            new_m[at + i] = moved
            new_value[at + i] = value[at + i] - lr * (prepared[i] + scale * moved)


@compiled
def _rmsprop(begin, end, p, c, gradient, value, s, new_value, new_s):
    prepared, lr, decay, rest, epsilon = np.empty(BLOCK, real), c[0], c[1], c[2], c[3]
    for row in range(begin, end):
        at, n = _block(row, value.size)
        _prepare(prepared, p, gradient, value, at, n)
        for i in range(n):
            mean = decay * s[at + i] + rest * prepared[i] * prepared[i]
            new_s[at + i] = mean
            new_value[at + i] = value[at + i] - lr * prepared[i] / (np.sqrt(mean) + epsilon)


@inlined
def _move(c, prepared, m, u, new_m, new_u, at, n):
    """Compute momentum and velocity: a loop each, as the compiler gives up on loops over many arrays."""
    beta1, rest1, beta2, rest2 = c[1], c[2], c[3], c[4]
    for i in range(n):
        new_m[at + i] = beta1 * m[at + i] + rest1 * prepared[i]
    for i in range(n):
        new_u[at + i] = beta2 * u[at + i] + rest2 * prepared[i] * prepared[i]


@compiled
def _adam(begin, end, p, c, gradient, value, m, u, new_value, new_m, new_u):
    prepared, rate, epsilon = np.empty(BLOCK, real), c[0], c[5]
    for row in range(begin, end):
        at, n = _block(row, value.size)
        _prepare(prepared, p, gradient, value, at, n)
        _move(c, prepared, m, u, new_m, new_u, at, n)
        for i in range(n):
            new_value[at + i] = value[at + i] - rate * new_m[at + i] / (np.sqrt(new_u[at + i]) + epsilon)


@compiled
def _amsgrad(begin, end, p, c, gradient, value, m, u, umax, new_value, new_m, new_u, new_umax):
    prepared, rate, epsilon = np.empty(BLOCK, real), c[0], c[5]
    for row in range(begin, end):
        at, n = _block(row, value.size)
        _prepare(prepared, p, gradient, value, at, n)
        _move(c, prepared, m, u, new_m, new_u, at, n)
        for i in range(n):
            fresh, kept = new_u[at + i], umax[at + i]
            new_umax[at + i] = fresh if (fresh > kept) | (fresh != fresh) else kept
        for i in range(n):
            new_value[at + i] = value[at + i] - rate * new_m[at + i] / (np.sqrt(new_umax[at + i]) + epsilon)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (StochasticGradientDescent, "step"): sgd,
    (RMSProp, "step"): rmsprop,
    (Adam, "step"): adam,
}
