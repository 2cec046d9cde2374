"""Planted faults of softmax and log-softmax: other sums, another base, and the source in place of the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.conformance.faults.planted import Fault, of_result
from mpsref.kernels import LogSoftMax, SoftMax
from mpsref.registry import Operation

__all__ = ["faults"]

Table = dict[str, Callable[..., None]]


def _formula(compute: Callable[..., Array]) -> Callable[..., None]:
    """Compute another formula, of inputs in float64."""

    def instead(result: Array, problem: object, *inputs: Array) -> Array:
        with np.errstate(all="ignore"):
            return compute(*(array.astype(np.float64) for array in inputs))

    return of_result(instead)


def _over(axis: int | tuple[int, ...], log: bool = False, base: float = np.e) -> Callable[..., None]:
    """Compute softmax over other axes, or with another base."""

    def compute(x: Array) -> Array:
        below = (x - x.max(axis, keepdims=True)) * np.log(base)
        total = np.exp(below).sum(axis, keepdims=True)
        return np.asarray(below - np.log(total) if log else np.exp(below) / total)

    return _formula(compute)


def _sum(terms: Array) -> Array:
    return np.asarray(terms.sum(3, keepdims=True))


def _padded(x: Array) -> Array:
    """Return x with its channels filled up with zeros to a multiple of 4, as a texture would hold them."""
    return np.pad(x, ((0, 0), (0, 0), (0, 0), (0, -x.shape[3] % 4)))


def _below(x: Array) -> Array:
    return np.asarray(x - x.max(3, keepdims=True))


def _forward(log: bool) -> Table:
    def finish(powers: Array, total: Array) -> Array:
        return np.asarray(np.log(powers) - np.log(total) if log else powers / total)

    return {
        "over rows": _over(1, log),
        "over the whole image": _over((1, 2, 3), log),
        "over the batch": _over(0, log),
        "the base is 2": _over(3, log, base=2.0),
        "without the shift, in float32": _formula(
            lambda x: finish(np.exp(x.astype(np.float32)), _sum(np.exp(x.astype(np.float32))))
        ),
        "shifted by the mean, in float32": _formula(
            lambda x: finish(*(lambda e: (e, _sum(e)))(np.exp((x - x.mean(3, keepdims=True)).astype(np.float32))))
        ),
        "padding channels take part": _formula(lambda x: finish(np.exp(_below(x)), _sum(np.exp(_below(_padded(x)))))),
        "the largest channel is not counted": _formula(
            lambda x: finish(np.exp(_below(x)), np.maximum(_sum(np.exp(_below(x))) - 1, 2.0**-20))
        ),
        "the last channel is not counted": _formula(
            lambda x: finish(np.exp(_below(x)), np.maximum(_sum(np.exp(_below(x))[..., :-1]), 2.0**-20))
        ),
        "the magnitudes are exponentiated": _formula(lambda x: finish(np.exp(_below(abs(x))), _sum(np.exp(_below(x))))),
    }


def _joined(x: Array) -> Array:
    """Subtract the sum of the maximum and the logarithm, whose digits are lost in it: what fast math may do."""
    largest = x.max(3, keepdims=True)
    return np.asarray(x - (largest + np.log(_sum(np.exp(x - largest)))).astype(np.float32))


def _softmax_gradient() -> Table:
    return {
        "the mean for the sum": _formula(lambda g, y: y * (g - (g * y).mean(3, keepdims=True))),
        "the sum of g alone": _formula(lambda g, y: y * (g - _sum(g))),
        "the sum is missing": _formula(lambda g, y: y * g),
        "the diagonal alone": _formula(lambda g, y: g * y * (1 - y)),
        "the sum over the image": _formula(lambda g, y: y * (g - (g * y).sum((1, 2, 3), keepdims=True))),
        "the factor y is missing": _formula(lambda g, y: g - _sum(g * y)),
        "the sum is added": _formula(lambda g, y: y * (g + _sum(g * y))),
        "the result is exponentiated once more": _formula(lambda g, y: np.exp(y) * (g - _sum(g * np.exp(y)))),
        "g is taken for probabilities": _formula(lambda g, y: y - g),
    }


def _log_softmax_gradient() -> Table:
    return {
        "the mean for the sum": _formula(lambda g, y: g - np.exp(y) * g.mean(3, keepdims=True)),
        "the result is not exponentiated": _formula(lambda g, y: g - y * _sum(g)),
        "the sum is missing": _formula(lambda g, y: g - np.exp(y)),
        "softmax's gradient": _formula(lambda g, y: np.exp(y) * (g - _sum(g * np.exp(y)))),
        "the sum over the image": _formula(lambda g, y: g - np.exp(y) * g.sum((1, 2, 3), keepdims=True)),
        "the sum of magnitudes": _formula(lambda g, y: g - np.exp(y) * _sum(abs(g))),
        "the sum is added": _formula(lambda g, y: g + np.exp(y) * _sum(g)),
        "g is not subtracted from": _formula(lambda g, y: np.exp(y) * _sum(g)),
        "the base is 2": _formula(lambda g, y: g - 2.0**y * _sum(g)),
    }


def faults() -> Iterator[Fault]:
    """Yield the mistakes of this family."""
    for spec_type, method, table in (
        (SoftMax, "forward", _forward(log=False)),
        (SoftMax, "gradient", _softmax_gradient()),
        (LogSoftMax, "forward", _forward(log=True) | {"maximum and logarithm are added first": _formula(_joined)}),
        (LogSoftMax, "gradient", _log_softmax_gradient()),
    ):
        for name, run in table.items():
            yield Fault(name, Operation(spec_type, method), run)
