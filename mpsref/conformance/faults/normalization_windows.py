"""Planted faults of spatial and local contrast normalization: windows, divisors, borders, terms of gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.conformance.faults.planted import Fault, honest, of_problem, of_result, with_spec
from mpsref.kernels import LocalContrastNormalization, SpatialNormalization
from mpsref.kernels import local_contrast_normalization as local_contrast
from mpsref.kernels import spatial_normalization as spatial
from mpsref.registry import Operation

__all__ = ["faults"]

Table = dict[str, Callable[..., None]]


def mirrored(problem: Any) -> Any:
    """Return the problem whose even windows reach one pixel further to the bottom right, as their adjoints do."""
    offset = tuple(window.offset + window.even for window in problem.spec.windows)
    return replace(problem, spec=replace(problem.spec, offset=offset))


def inside(problem: Any) -> Array:
    """Return how many taps of each window lie inside the image, at least 1."""
    counts = np.zeros((1, *problem.output_size, 1))
    for window in problem.windows():
        height, width = window.rows.stop - window.rows.start, window.columns.stop - window.columns.start
        window.output(counts)[...] = max(1, height * width)
    return counts


def _swapped(name: str) -> Callable[..., None]:
    return of_problem(with_spec(**{name: lambda spec: getattr(spec, name)[::-1]}))


def shared_faults() -> Table:
    """What can be wrong with windows and powers of both kernels, forward and gradient."""
    return {
        "the kernel size of the other axis is taken": _swapped("kernel_size"),
        "the offset of the other axis is taken": _swapped("offset"),
        "the offset is ignored": of_problem(with_spec(offset=lambda spec: 0)),
        "the offset has the wrong sign": of_problem(with_spec(offset=lambda spec: tuple(-o for o in spec.offset))),
        "centre and window of an even kernel lie a pixel further": of_problem(mirrored),
        "the window is one pixel larger": of_problem(
            with_spec(kernel_size=lambda spec: tuple(k + 1 for k in spec.kernel_size))
        ),
        "alpha is not divided by the window size": of_problem(with_spec(alpha=lambda spec: spec.alpha * spec.taps)),
        "delta is taken to be 1": of_problem(with_spec(delta=lambda spec: 1.0)),
        "the exponent has the wrong sign": of_problem(with_spec(beta=lambda spec: -spec.beta)),
        "the root of the power": of_problem(with_spec(beta=lambda spec: spec.beta / 2)),
    }


# --- spatial ----------------------------------------------------------------------------------------------------------


def _spatial(bases: Callable[[Any, Array], Array]) -> Callable[..., None]:
    """Return forward with another T."""

    def run(problem: Any, x: Array, out: Array) -> None:
        x = x.astype(np.float64)
        with np.errstate(all="ignore"):
            out[...] = problem.centres(x) * bases(problem, x) ** -problem.spec.beta

    return run


def _shrunk(problem: Any, x: Array) -> Array:
    spec = problem.spec
    return np.asarray(spec.delta + (spatial.bases(problem, x) - spec.delta) * spec.taps / inside(problem))


def _magnitudes(problem: Any, x: Array) -> Array:
    return spatial.bases(problem, np.sqrt(np.abs(x)))


def _without_centre(problem: Any, x: Array) -> Array:
    return np.asarray(spatial.bases(problem, x) - problem.spec.alpha / problem.spec.taps * problem.centres(x) ** 2)


def _all_channels(problem: Any, x: Array) -> Array:
    return np.broadcast_to(spatial.bases(problem, x).mean(axis=-1, keepdims=True), problem.output_shape)


def _clamped(problem: Any, x: Array) -> Array:
    """Outside the image the border pixel is read."""
    spec, pad = problem.spec, 12
    around = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)), mode="edge")
    moved = replace(
        problem,
        spec=replace(spec, offset=tuple(o + pad for o in spec.offset)),
        source_shape=around.shape,
    )
    return spatial.bases(moved, around)


def spatial_forward_faults() -> Table:
    """What can be wrong with T."""
    return {
        "even windows reach further to the bottom right": _spatial(lambda p, x: spatial.bases(mirrored(p), x)),
        "the divisor shrinks at the border": _spatial(_shrunk),
        "magnitudes in place of squares": _spatial(_magnitudes),
        "the pixel itself is left out of its window": _spatial(_without_centre),
        "the window takes in all channels": _spatial(_all_channels),
        "outside reads the border pixel": _spatial(_clamped),
    }


def _spatial_gradient(
    base: Callable[[Array, Array], Array] = lambda t, power: power,
    factor: float = 1.0,
    adjoint: Callable[[Any], Any] = lambda problem: problem,
    own: float = 1.0,
    extra: float = 1.0,
) -> Callable[..., None]:
    """Return the gradient with one of its pieces changed."""

    def run(problem: Any, g: Array, x: Array, out: Array) -> None:
        g, x = g.astype(np.float64), x.astype(np.float64)
        spec, t = problem.spec, spatial.bases(problem, x)
        power = t ** (-spec.beta - extra)
        slope = factor * 2 * spec.alpha * spec.beta / spec.taps
        share = slope * g * problem.centres(x) * power
        dx = own * problem.at_centres(g * t**-spec.beta)
        for window in adjoint(problem).windows():
            window.of(dx)[...] -= window.of(x) * window.output(share)
        with np.errstate(over="ignore"):
            out[...] = dx

    return run


def printed_spatial(problem: Any, g: Array, x: Array) -> Array:
    """Return what Apple prints beside its spatial gradient kernel, literally."""
    spec, t = problem.spec, spatial.bases(problem, x)
    products = np.zeros(problem.source_shape)
    for window in problem.windows():
        window.of(products)[...] += window.output(g) * window.output(problem.centres(x))
    power, base = problem.at_centres(t**-spec.beta), problem.at_centres(t)
    ratio = np.divide(x, base, out=np.zeros_like(x), where=base != 0)
    return np.asarray(power * (problem.at_centres(g) - 2 * spec.alpha * spec.beta * ratio * products))


def _own_formula(formula: Callable[[Any, Array, Array], Array]) -> Callable[..., None]:
    def run(problem: Any, g: Array, x: Array, out: Array) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            out[...] = formula(problem, g.astype(np.float64), x.astype(np.float64))

    return run


def spatial_gradient_faults() -> Table:
    """What can be wrong with the terms of the gradient."""
    return {
        "the formula that Apple prints": _own_formula(printed_spatial),
        "the window's term is missing": _spatial_gradient(factor=0.0),
        "the factor 2 is missing": _spatial_gradient(factor=0.5),
        "the window's term has the wrong sign": _spatial_gradient(factor=-1.0),
        "the exponent of the window's term is -beta": _spatial_gradient(extra=0.0),
        "the pixel's own term is missing": _spatial_gradient(own=0.0),
        "the adjoint windows are not mirrored": _spatial_gradient(adjoint=mirrored),
        "1 / N is missing": _own_formula(
            lambda p, g, x: honest(p, g, x) * p.spec.taps + (1 - p.spec.taps) * p.at_centres(_divided_by_power(p, g, x))
        ),
    }


def _divided_by_power(problem: Any, g: Array, x: Array) -> Array:
    return np.asarray(g * spatial.bases(problem, x) ** -problem.spec.beta)


# --- local contrast ---------------------------------------------------------------------------------------------------


def _contrast(statistics: Callable[[Any, Array], tuple[Array, Array]]) -> Callable[..., None]:
    """Return forward with other means and variances."""

    def run(problem: Any, x: Array, out: Array) -> None:
        x, spec = x.astype(np.float64), problem.spec
        mean, variance = statistics(problem, x)
        with np.errstate(all="ignore"):
            power = (spec.delta + spec.alpha * variance) ** -spec.beta
            out[...] = spec.pm + spec.ps * (problem.centres(x) - spec.p0 * mean) * power

    return run


def _moments(problem: Any, x: Array) -> tuple[Array, Array]:
    mean, variance, _ = local_contrast.contrast(problem, x)
    return mean, variance


def _shrunk_moments(problem: Any, x: Array) -> tuple[Array, Array]:
    mean, variance = _moments(problem, x)
    ratio = problem.spec.taps / inside(problem)
    return mean * ratio, (variance + mean**2) * ratio - (mean * ratio) ** 2


def local_contrast_forward_faults() -> Table:
    """What can be wrong with mean and variance."""
    return {
        "even windows reach further to the bottom right": _contrast(lambda p, x: _moments(mirrored(p), x)),
        "the divisors shrink at the border": _contrast(_shrunk_moments),
        "the divisor of the mean shrinks at the border": _contrast(
            lambda p, x: (_shrunk_moments(p, x)[0], _moments(p, x)[1])
        ),
        "zeros outside do not count in the variance": _contrast(
            lambda p, x: (
                _moments(p, x)[0], _moments(p, x)[1] - (1 - inside(p) / p.spec.taps) * _moments(p, x)[0] ** 2
            )
        ),
        "the variance is not centred": _contrast(lambda p, x: (_moments(p, x)[0], np.add(*_squares(p, x)))),
        "the variance is unbiased": _contrast(
            lambda p, x: (_moments(p, x)[0], _moments(p, x)[1] * p.spec.taps / max(1, p.spec.taps - 1))
        ),
        "the variance from sums of squares in float16": _contrast(_narrow_moments),
        "p0 is ignored": of_problem(with_spec(p0=lambda spec: 1.0)),
        "ps is ignored": of_problem(with_spec(ps=lambda spec: 1.0)),
        "pm is ignored": of_problem(with_spec(pm=lambda spec: 0.0)),
        "pm is scaled by ps": of_problem(with_spec(pm=lambda spec: spec.pm * spec.ps)),
        "pm is subtracted": of_problem(with_spec(pm=lambda spec: -spec.pm)),
    }  # fmt: skip


def _squares(problem: Any, x: Array) -> tuple[Array, Array]:
    mean, variance = _moments(problem, x)
    return variance, mean**2


def _narrow_moments(problem: Any, x: Array) -> tuple[Array, Array]:
    mean, variance = _moments(problem, x)
    narrow = (variance + mean**2).astype(np.float16) - (mean**2).astype(np.float16)
    return mean, np.maximum(narrow.astype(np.float64), 0)


def _local_contrast_gradient(
    of_mean: float = 1.0, of_variance: float = 1.0, own: float = 1.0, adjoint: Any = None, distance: str = "mean"
) -> Callable[..., None]:
    """Return the gradient with one of its pieces changed."""

    def run(problem: Any, g: Array, x: Array, out: Array) -> None:
        g, x, spec = g.astype(np.float64), x.astype(np.float64), problem.spec
        mean, _, t = local_contrast.contrast(problem, x)
        slope = spec.ps * g * t**-spec.beta
        difference = problem.centres(x) - spec.p0 * mean
        first = of_mean * spec.p0 / spec.taps * slope
        second = of_variance * 2 * spec.alpha * spec.beta / spec.taps * slope * difference / t
        reference = {"mean": mean, "p0 mean": spec.p0 * mean, "nothing": 0 * mean, "one": 0 * mean + 1}[distance]
        dx = own * problem.at_centres(slope)
        for window in (adjoint or (lambda same: same))(problem).windows():
            share = window.output(first) + window.output(second) * (window.of(x) - window.output(reference))
            window.of(dx)[...] -= share
        with np.errstate(over="ignore"):
            out[...] = dx

    return run


def printed_local_contrast(problem: Any, g: Array, x: Array) -> Array:
    """Return what Apple prints beside its local contrast gradient kernel, literally."""
    spec, (mean, _, t) = problem.spec, local_contrast.contrast(problem, x)
    n, slope = spec.taps, 2 * spec.alpha * spec.beta / spec.taps
    power, m, base = (problem.at_centres(values) for values in (t**-spec.beta, mean, t))
    own = np.divide(x - spec.p0 * m, base, out=np.zeros_like(x), where=base != 0)
    sums = np.zeros(problem.source_shape)
    for window in problem.windows():
        centre = window.output(problem.centres(x))
        window.of(sums)[...] += window.output(g) * (spec.p0 / n + slope * (centre - 1) * window.of(own))
    return np.asarray(spec.ps * power * (problem.at_centres(g) - sums))


def local_contrast_gradient_faults() -> Table:
    """What can be wrong with the terms of the gradient."""
    return {
        "the formula that Apple prints": _own_formula(printed_local_contrast),
        "the mean's term is missing": _local_contrast_gradient(of_mean=0.0),
        "the variance's term is missing": _local_contrast_gradient(of_variance=0.0),
        "the pixel's own term is missing": _local_contrast_gradient(own=0.0),
        "the factor 2 is missing": _local_contrast_gradient(of_variance=0.5),
        "the variance's term has the wrong sign": _local_contrast_gradient(of_variance=-1.0),
        "the tap less p0 means": _local_contrast_gradient(distance="p0 mean"),
        "the tap is not centred": _local_contrast_gradient(distance="nothing"),
        "the tap less 1": _local_contrast_gradient(distance="one"),
        "the adjoint windows are not mirrored": _local_contrast_gradient(adjoint=mirrored),
        "ps is forgotten": of_result(lambda result, problem, *_: result / problem.spec.ps),
        "p0 is ignored": of_problem(with_spec(p0=lambda spec: 1.0)),
    }


def faults() -> Iterator[Fault]:
    """Yield the faults of both kernels."""
    for spec_type, method, own in (
        (SpatialNormalization, "forward", spatial_forward_faults()),
        (SpatialNormalization, "gradient", spatial_gradient_faults()),
        (LocalContrastNormalization, "forward", local_contrast_forward_faults()),
        (LocalContrastNormalization, "gradient", local_contrast_gradient_faults()),
    ):
        yield from map(partial(_fault, spec_type, method), {**shared_faults(), **own}.items())


def _fault(spec_type: type[Any], method: str, named: tuple[str, Callable[..., None]]) -> Fault:
    return Fault(named[0], Operation(spec_type, method), named[1])
