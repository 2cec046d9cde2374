"""Planted faults of cross-channel normalization: windows clipped, shifted or divided wrongly, and wrong terms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.conformance.faults.planted import Fault, of_problem, with_spec
from mpsref.kernels import CrossChannelNormalization
from mpsref.kernels.cross_channel_normalization import bases
from mpsref.registry import Operation

__all__ = ["faults"]

Table = dict[str, Callable[..., None]]

Sums = Callable[[Any, Array], Array]
"""``sums(problem, values) -> sum of the values over the window of each channel``."""


def _over(first: Callable[[int, int, int], int], count: Callable[[int, int], int] = lambda k, channels: k) -> Sums:
    """Return sums over ``first(channel, kernel size, channels)`` and the next ``count(kernel size, channels)``."""

    def sums(problem: Any, values: Array) -> Array:
        kernel, channels = problem.spec.kernel_size, values.shape[-1]
        result = np.zeros_like(values)
        for k in range(channels):
            start = first(k, kernel, channels)
            window = slice(max(0, start), max(0, start + count(kernel, channels)))
            result[..., k] = values[..., window].sum(axis=-1)
        return result

    return sums


honest_sums = _over(lambda k, kernel, channels: k - kernel // 2)
adjoint_sums = _over(lambda k, kernel, channels: k - (kernel - 1) // 2)


def _wrapped(problem: Any, values: Array) -> Array:
    """The window goes on at the other end."""
    kernel, channels = problem.spec.kernel_size, values.shape[-1]
    taps = (np.arange(channels)[:, None] - kernel // 2 + np.arange(kernel)) % channels
    return np.asarray(values[..., taps].sum(axis=-1))


def _outside_in(k: int, kernel: int, channels: int) -> int:
    """The window is pushed inside where it reaches out."""
    return max(0, min(k - kernel // 2, channels - kernel))


def _inside(problem: Any, values: Array) -> Array:
    return np.asarray(honest_sums(problem, np.ones_like(values)))


def _computed(base: Callable[[Any, Array], Array]) -> Callable[..., None]:
    """Return forward or gradient with another L, and the window's term as it should be."""

    def run(problem: Any, *inputs: Array, out: Array) -> None:
        *g, x = (array.astype(np.float64) for array in inputs)
        spec, b = problem.spec, base(problem, x)
        with np.errstate(all="ignore"):
            if not g:
                out[...] = x * b**-spec.beta
                return
            share = 2 * spec.alpha * spec.beta / spec.kernel_size * g[0] * x * b ** (-spec.beta - 1)
            out[...] = g[0] * b**-spec.beta - x * adjoint_sums(problem, share)

    return run


def _base(sums: Sums, power: int = 2) -> Callable[..., None]:
    """Return what has L with other sums of squares."""
    return _computed(
        lambda problem, x: (
            problem.spec.delta + problem.spec.alpha / problem.spec.kernel_size * sums(problem, np.abs(x) ** power)
        )
    )


def shared_faults() -> Table:
    """What can be wrong with L, forward and gradient."""
    return {
        "even windows reach one channel further up": _base(adjoint_sums),
        "the window goes on at the other end": _base(_wrapped),
        "the window is pushed inside": _base(_over(_outside_in)),
        "the first channel is never in a window": _base(_over(lambda k, kernel, channels: max(1, k - kernel // 2))),
        "the window ends where it should begin its last channel": _base(
            _over(lambda k, kernel, channels: k - kernel // 2, lambda kernel, channels: kernel - 1)
        ),
        "the clipped window starts anew at channel 0": _base(
            _over(lambda k, kernel, channels: max(0, k - kernel // 2))
        ),
        "the divisor shrinks where the window is clipped": _computed(
            lambda p, x: p.spec.delta + p.spec.alpha * honest_sums(p, x**2) / _inside(p, x)
        ),
        "the divisor is the number of channels if that is smaller": _computed(
            lambda p, x: p.spec.delta + p.spec.alpha / min(p.spec.kernel_size, x.shape[-1]) * honest_sums(p, x**2)
        ),
        "the kernel size is cut to the number of channels": of_problem(
            lambda p: replace(p, spec=replace(p.spec, kernel_size=min(p.spec.kernel_size, p.source_shape[3])))
        ),
        "magnitudes in place of squares": _base(honest_sums, power=1),
        "alpha is not divided by the window size": of_problem(
            with_spec(alpha=lambda spec: spec.alpha * spec.kernel_size)
        ),
        "delta is taken to be 1": of_problem(with_spec(delta=lambda spec: 1.0)),
        "the exponent has the wrong sign": of_problem(with_spec(beta=lambda spec: -spec.beta)),
        "the root of the power": of_problem(with_spec(beta=lambda spec: spec.beta / 2)),
    }


def _terms(
    factor: Callable[[Any], float] = lambda spec: 1.0, sums: Sums = adjoint_sums, extra: float = 1.0, own: float = 1.0
) -> Callable[..., None]:
    """Return the gradient with one piece of its terms changed."""

    def run(problem: Any, g: Array, x: Array, out: Array) -> None:
        g, x, spec = g.astype(np.float64), x.astype(np.float64), problem.spec
        b = bases(problem, x)
        share = factor(spec) * 2 * spec.alpha * spec.beta / spec.kernel_size * g * x * b ** (-spec.beta - extra)
        with np.errstate(over="ignore"):
            out[...] = own * g * b**-spec.beta - x * sums(problem, share)

    return run


def gradient_faults() -> Table:
    """What can be wrong with the terms of the gradient."""
    return {
        "the formula that Apple prints: 1 / N is missing": _terms(factor=lambda spec: spec.kernel_size),
        "the window's term is missing": _terms(factor=lambda spec: 0.0),
        "the factor 2 is missing": _terms(factor=lambda spec: 0.5),
        "the window's term has the wrong sign": _terms(factor=lambda spec: -1.0),
        "the window's term is that of the channel alone": _terms(sums=lambda problem, values: values),
        "the adjoint window is the window": _terms(sums=honest_sums),
        "the exponent of the window's term is -beta": _terms(extra=0.0),
        "the channel's own term is missing": _terms(own=0.0),
    }


def faults() -> Iterator[Fault]:
    """Yield the faults of forward and gradient."""
    for method, own in (("forward", {}), ("gradient", gradient_faults())):
        for name, run in {**shared_faults(), **own}.items():
            yield Fault(name, Operation(CrossChannelNormalization, method), run)
