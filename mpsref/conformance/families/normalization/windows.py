"""Tests of spatial, local contrast and cross-channel normalization."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TypeAlias, TypeVar, cast

import numpy as np
from hypothesis import strategies as st

from mpsref.arguments.arrays import Array
from mpsref.conformance.case import Case
from mpsref.conformance.family import KernelTests
from mpsref.conformance.geometry_mutants import window_mutants
from mpsref.conformance.golden_entries import Adapter, Comparison, Entry
from mpsref.conformance.mutants import MutantTable, computed, correct, of_problem, of_result, of_spec
from mpsref.conformance.properties import (
    EquivalentProblem,
    equivalent,
    near,
    one_image_at_a_time,
    repeatable,
    with_limits,
)
from mpsref.conformance.runner import compute
from mpsref.conformance.strategies import pairs, seldom
from mpsref.geometry import Window
from mpsref.kernels import CrossChannelNormalization, LocalContrastNormalization, SpatialNormalization
from mpsref.kernels import cross_channel_normalization as cross_channel
from mpsref.kernels import local_contrast_normalization as local_contrast
from mpsref.kernels import spatial_normalization as spatial
from mpsref.kernels.cross_channel_normalization import CrossChannelProblem
from mpsref.kernels.local_contrast_normalization import LocalContrastForward, LocalContrastGradient
from mpsref.kernels.normalization_windows import WindowedForward, WindowedNormalization, WindowedProblem
from mpsref.kernels.spatial_normalization import SpatialForward, SpatialGradient
from mpsref.registry import Backend, Implementation, Problem, Spec

AnyWindowed = TypeVar("AnyWindowed", bound=WindowedProblem)

# --- strategies -------------------------------------------------------------------------------------------------------

_QUARTERS = st.sampled_from([0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 5.0])
_EXPONENTIATED: dict[str, st.SearchStrategy[float]] = {
    "alpha": st.sampled_from([0.0, 0.1, 1.0, 4.0]) | st.sampled_from([1.0, 4.0]),
    "beta": _QUARTERS | st.sampled_from([0.3, -1.25]),
    "delta": st.sampled_from([0.125, 1.0, 2.0]),
}
"""Parameters whose base is far from 0, and whose powers stay in range."""


def windowed(kind: type[Spec], method: str) -> st.SearchStrategy[Problem]:
    """Draw a problem of spatial or local contrast normalization: windows partly and wholly outside, odd and even."""
    own = {name: st.sampled_from([0.0, 1.0, 0.5, -2.0]) for name in ("p0", "pm")} | {"ps": st.sampled_from([1.0, -2.0])}
    specs = st.builds(
        kind,
        kernel_size=pairs(1, 5),
        offset=seldom((0, 0), pairs(-3, 4)) | pairs(-1, 1),
        **_EXPONENTIATED,
        **(own if kind is LocalContrastNormalization else {}),
    )
    shapes = st.tuples(st.integers(1, 2), st.integers(1, 8), st.integers(1, 8), st.integers(1, 6))
    return st.builds(kind.problems[method], specs, shapes, pairs(1, 8))


def along_channels(method: str) -> st.SearchStrategy[Problem]:
    """Draw a problem of cross-channel normalization: windows up to twice as large as the image has channels."""
    specs = st.builds(CrossChannelNormalization, kernel_size=st.integers(1, 7) | st.integers(1, 24), **_EXPONENTIATED)
    shapes = st.tuples(st.integers(1, 2), st.integers(1, 5), st.integers(1, 5), st.integers(1, 12))
    return st.builds(CrossChannelNormalization.problems[method], specs, shapes)


# --- properties -------------------------------------------------------------------------------------------------------


def _moved(spec: WindowedNormalization, step: Callable[[Window], int]) -> SpatialNormalization:
    """Return the spec whose windows start ``step(window)`` pixels later on each axis."""
    y, x = (window.offset + step(window) for window in spec.windows)
    return replace(cast(SpatialNormalization, spec), offset=(y, x))


def offset_is_crop(case: Case, backend: Backend) -> None:
    """With an offset of (1, 1) more, outputs are those of the next pixels."""
    problem = case.of(WindowedForward)
    moved = replace(problem, spec=_moved(problem.spec, lambda window: 1))
    height, width = problem.output_size
    larger = replace(problem, output_size=(height + 1, width + 1))
    (x,) = case.inputs()
    ((whole, limit),), (shifted,) = with_limits(larger, backend, (x,)), compute(moved, backend, x)
    near("offset is crop", whole[:, 1:, 1:], shifted, 2 * limit[:, 1:, 1:])


@equivalent
def zeros_around_change_nothing(problem: WindowedProblem, *inputs: Array) -> EquivalentProblem:
    """A row and column of zeros in front is compensated by an offset of (1, 1) more, in the gradient as well."""
    n, height, width, channels = problem.source_shape
    moved = replace(
        problem, spec=_moved(problem.spec, lambda window: 1), source_shape=(n, height + 1, width + 1, channels)
    )
    *g, x = inputs
    wider = [*g, np.pad(x, ((0, 0), (1, 0), (1, 0), (0, 0)))]
    return EquivalentProblem(moved, wider, lambda results: [results[0][:, 1:, 1:]] if g else results)


def linear_in_g(case: Case, backend: Backend) -> None:
    """The gradients from every second pixel of g, and from the others, add up to that from all of them."""
    g, *others = case.inputs()
    even = (np.indices(g.shape[1:3]).sum(axis=0) % 2 == 0)[None, :, :, None]
    ((whole, limit),) = with_limits(case.problem, backend, (g, *others))
    ((first, one),), ((second, other),) = (
        with_limits(case.problem, backend, (g * mask, *others)) for mask in (even, ~even)
    )
    if all(np.isfinite(result).all() for result in (whole, first, second)):  # no overflow of float16
        near("linear in g", whole, first.astype(np.float64) + second, limit + one + other)


@equivalent
def odd_in_x(problem: Problem, x: Array) -> EquivalentProblem | None:
    """The negative image has the negative result, unless a number is added to it."""
    return None if getattr(problem.spec, "pm", 0) else EquivalentProblem(problem, [-x], lambda results: [-results[0]])


@equivalent
def pixels_are_independent(problem: CrossChannelProblem, *inputs: Array) -> EquivalentProblem:
    """All pixels of the batch in one row have the same results."""
    row = [array.reshape(1, 1, -1, array.shape[3]) for array in inputs]
    flat = replace(problem, source_shape=row[0].shape)
    return EquivalentProblem(flat, row, lambda results: [results[0].reshape(problem.source_shape)])


@equivalent
def odd_windows_are_symmetric(problem: CrossChannelProblem, *inputs: Array) -> EquivalentProblem | None:
    """With an odd window, reversed channels have the reversed result."""
    if problem.spec.kernel_size % 2 == 0:
        return None
    backwards = [np.ascontiguousarray(array[..., ::-1]) for array in inputs]
    return EquivalentProblem(problem, backwards, lambda results: [results[0][..., ::-1]])


# --- mutants of all three kernels -------------------------------------------------------------------------------------

_POWERS: MutantTable = {
    "delta is taken to be 1": of_spec(delta=lambda spec: 1.0),
    "the exponent has the wrong sign": of_spec(beta=lambda spec: -spec.beta),
}


# --- mutants of spatial normalization ---------------------------------------------------------------------------------


def _mirrored(problem: AnyWindowed) -> AnyWindowed:
    """Return the problem whose even windows extend one pixel further to the bottom right, as their adjoints do."""
    return replace(problem, spec=_moved(problem.spec, lambda window: window.even))


def _taps_inside(problem: WindowedProblem) -> Array:
    """Return the number of taps of each window that lie inside the image, at least 1."""
    counts = np.zeros((1, *problem.output_size, 1))
    for window in problem.windows():
        height, width = window.rows.stop - window.rows.start, window.columns.stop - window.columns.start
        window.output(counts)[...] = max(1, height * width)
    return counts


_WINDOWS: MutantTable = {
    "alpha is not divided by the window size": of_spec(alpha=lambda spec: spec.alpha * spec.taps),
    **_POWERS,
}


def _spatial(bases: Callable[[SpatialForward, Array], Array]) -> Implementation:
    """Return forward with another base of the power."""
    return computed(lambda problem, x: problem.centres(x) * bases(problem, x) ** -problem.spec.beta)


def _without_centre(problem: SpatialForward, x: Array) -> Array:
    return np.asarray(spatial.bases(problem, x) - problem.spec.alpha / problem.spec.taps * problem.centres(x) ** 2)


def _clamped(problem: SpatialForward, x: Array) -> Array:
    """Return the bases of an image whose border pixels continue outside."""
    pad = 12
    around = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)), mode="edge")
    moved = replace(problem, spec=_moved(problem.spec, lambda window: pad), source_shape=around.shape)
    return spatial.bases(moved, around)


def _spatial_gradient(
    factor: float = 1.0,
    adjoint: Callable[[SpatialGradient], SpatialGradient] = lambda problem: problem,
    extra: float = 1.0,
) -> Implementation:
    """Return the gradient with another factor, adjoint window or exponent of the term of the window."""

    def formula(problem: SpatialGradient, g: Array, x: Array) -> Array:
        spec, t = problem.spec, spatial.bases(problem, x)
        slope = factor * 2 * spec.alpha * spec.beta / spec.taps
        terms = slope * g * problem.centres(x) * t ** (-spec.beta - extra)
        dx: Array = problem.at_centres(g * t**-spec.beta)
        for window in adjoint(problem).windows():
            window.of(dx)[...] -= window.of(x) * window.output(terms)
        return dx

    return computed(formula)


def _printed_spatial_gradient(problem: SpatialGradient, g: Array, x: Array) -> Array:
    """Return the formula that Apple prints for its spatial gradient kernel, literally."""
    spec, t = problem.spec, spatial.bases(problem, x)
    products = np.zeros(problem.source_shape)
    for window in problem.windows():
        window.of(products)[...] += window.output(g) * window.output(problem.centres(x))
    power, base = problem.at_centres(t**-spec.beta), problem.at_centres(t)
    ratio = np.divide(x, base, out=np.zeros_like(x), where=base != 0)
    return np.asarray(power * (problem.at_centres(g) - 2 * spec.alpha * spec.beta * ratio * products))


def _gradient_without_division(problem: SpatialGradient, g: Array, x: Array) -> Array:
    taps, own = problem.spec.taps, problem.at_centres(g * spatial.bases(problem, x) ** -problem.spec.beta)
    return np.asarray(correct(problem, g, x) * taps + (1 - taps) * own)


_SPATIAL_FORWARD: MutantTable = {
    "even windows extend further to the bottom right": _spatial(lambda p, x: spatial.bases(_mirrored(p), x)),
    "the divisor shrinks at the border": _spatial(
        lambda p, x: p.spec.delta + (spatial.bases(p, x) - p.spec.delta) * p.spec.taps / _taps_inside(p)
    ),
    "magnitudes in place of squares": _spatial(lambda p, x: spatial.bases(p, np.sqrt(np.abs(x)))),
    "the pixel itself is left out of its window": _spatial(_without_centre),
    "the sum of squares is over all channels": _spatial(
        lambda p, x: np.broadcast_to(spatial.bases(p, x).mean(axis=-1, keepdims=True), p.output_shape)
    ),
    "outside reads the border pixel": _spatial(_clamped),
}

_SPATIAL_GRADIENT: MutantTable = {
    "the formula that Apple prints": computed(_printed_spatial_gradient),
    "the factor 2 is missing": _spatial_gradient(factor=0.5),
    "the term of the window has the wrong sign": _spatial_gradient(factor=-1.0),
    "the exponent of the term of the window is -beta": _spatial_gradient(extra=0.0),
    "the adjoint windows are not mirrored": _spatial_gradient(adjoint=_mirrored),
    "1 / N is missing": computed(_gradient_without_division),
}

# --- mutants of local contrast normalization --------------------------------------------------------------------------


def _contrast(statistics: Callable[[LocalContrastForward, Array], tuple[Array, Array]]) -> Implementation:
    """Return forward with other means and variances."""

    def formula(problem: LocalContrastForward, x: Array) -> Array:
        spec = problem.spec
        mean, variance = statistics(problem, x)
        power = (spec.delta + spec.alpha * variance) ** -spec.beta
        return np.asarray(spec.pm + spec.ps * (problem.centres(x) - spec.p0 * mean) * power)

    return computed(formula)


def _moments(problem: LocalContrastForward, x: Array) -> tuple[Array, Array]:
    mean, variance, _ = local_contrast.contrast(problem, x)
    return mean, variance


def _shrunk_moments(problem: LocalContrastForward, x: Array) -> tuple[Array, Array]:
    mean, variance = _moments(problem, x)
    ratio = problem.spec.taps / _taps_inside(problem)
    return mean * ratio, (variance + mean**2) * ratio - (mean * ratio) ** 2


def _moments_without_zeros(problem: LocalContrastForward, x: Array) -> tuple[Array, Array]:
    mean, variance = _moments(problem, x)
    return mean, variance - (1 - _taps_inside(problem) / problem.spec.taps) * mean**2


def _moments_not_centred(problem: LocalContrastForward, x: Array) -> tuple[Array, Array]:
    mean, variance = _moments(problem, x)
    return mean, variance + mean**2


def _unbiased_moments(problem: LocalContrastForward, x: Array) -> tuple[Array, Array]:
    mean, variance = _moments(problem, x)
    return mean, variance * problem.spec.taps / max(1, problem.spec.taps - 1)


def _narrow_moments(problem: LocalContrastForward, x: Array) -> tuple[Array, Array]:
    mean, variance = _moments(problem, x)
    narrow = (variance + mean**2).astype(np.float16) - (mean**2).astype(np.float16)
    return mean, np.maximum(narrow.astype(np.float64), 0)


def _contrast_gradient(
    of_mean: float = 1.0,
    of_variance: float = 1.0,
    adjoint: Callable[[LocalContrastGradient], LocalContrastGradient] = lambda problem: problem,
    centre: Callable[[LocalContrastNormalization, Array], Array] = lambda spec, mean: mean,
) -> Implementation:
    """Return the gradient with another factor or adjoint window; the tap is less ``centre(spec, mean)``."""

    def formula(problem: LocalContrastGradient, g: Array, x: Array) -> Array:
        spec = problem.spec
        mean, _, t = local_contrast.contrast(problem, x)
        slope = spec.ps * g * t**-spec.beta
        difference = problem.centres(x) - spec.p0 * mean
        first = of_mean * spec.p0 / spec.taps * slope
        second = of_variance * 2 * spec.alpha * spec.beta / spec.taps * slope * difference / t
        dx: Array = problem.at_centres(slope)
        for window in adjoint(problem).windows():
            tap = window.of(x) - window.output(centre(spec, mean))
            window.of(dx)[...] -= window.output(first) + window.output(second) * tap
        return dx

    return computed(formula)


def _printed_contrast_gradient(problem: LocalContrastGradient, g: Array, x: Array) -> Array:
    """Return the formula that Apple prints for its local contrast gradient kernel, literally."""
    spec, (mean, _, t) = problem.spec, local_contrast.contrast(problem, x)
    n, slope = spec.taps, 2 * spec.alpha * spec.beta / spec.taps
    power, m, base = (problem.at_centres(values) for values in (t**-spec.beta, mean, t))
    own = np.divide(x - spec.p0 * m, base, out=np.zeros_like(x), where=base != 0)
    sums = np.zeros(problem.source_shape)
    for window in problem.windows():
        centre = window.output(problem.centres(x))
        window.of(sums)[...] += window.output(g) * (spec.p0 / n + slope * (centre - 1) * window.of(own))
    return np.asarray(spec.ps * power * (problem.at_centres(g) - sums))


_CONTRAST_FORWARD: MutantTable = {
    "even windows extend further to the bottom right": _contrast(lambda p, x: _moments(_mirrored(p), x)),
    "the divisors shrink at the border": _contrast(_shrunk_moments),
    "zeros outside do not count in the variance": _contrast(_moments_without_zeros),
    "the variance is not centred": _contrast(_moments_not_centred),
    "the variance is unbiased": _contrast(_unbiased_moments),
    "the variance is computed from sums of squares in float16": _contrast(_narrow_moments),
    "p0 is ignored": of_spec(p0=lambda spec: 1.0),
    "ps is ignored": of_spec(ps=lambda spec: 1.0),
    "pm is ignored": of_spec(pm=lambda spec: 0.0),
    "pm is scaled by ps": of_spec(pm=lambda spec: spec.pm * spec.ps),
}

_CONTRAST_GRADIENT: MutantTable = {
    "the formula that Apple prints": computed(_printed_contrast_gradient),
    "the term of the mean is missing": _contrast_gradient(of_mean=0.0),
    "the factor 2 is missing": _contrast_gradient(of_variance=0.5),
    "the term of the variance has the wrong sign": _contrast_gradient(of_variance=-1.0),
    "p0 times the mean is subtracted from the tap": _contrast_gradient(centre=lambda spec, mean: spec.p0 * mean),
    "the tap is not centred": _contrast_gradient(centre=lambda spec, mean: np.zeros_like(mean)),
    "the adjoint windows are not mirrored": _contrast_gradient(adjoint=_mirrored),
    "ps is left out": of_result(lambda result, problem, *_: result / problem.spec.ps),
    "p0 is ignored": of_spec(p0=lambda spec: 1.0),
}

# --- mutants of cross-channel normalization ---------------------------------------------------------------------------

Sums: TypeAlias = Callable[[CrossChannelProblem, Array], Array]
"""``sums(problem, values) -> sum of the values over the window of each channel``."""


def _over(first: Callable[[int, int, int], int], count: Callable[[int, int], int] = lambda k, channels: k) -> Sums:
    """Return sums over ``first(channel, kernel size, channels)`` and the next ``count(kernel size, channels)``."""

    def sums(problem: CrossChannelProblem, values: Array) -> Array:
        kernel, channels = problem.spec.kernel_size, values.shape[-1]
        result = np.zeros_like(values)
        for k in range(channels):
            start = first(k, kernel, channels)
            window = slice(max(0, start), max(0, start + count(kernel, channels)))
            result[..., k] = values[..., window].sum(axis=-1)
        return result

    return sums


_correct_sums = _over(lambda k, kernel, channels: k - kernel // 2)
_adjoint_sums = _over(lambda k, kernel, channels: k - (kernel - 1) // 2)


def _wrapped_sums(problem: CrossChannelProblem, values: Array) -> Array:
    """Sum over windows that continue at the other end."""
    kernel, channels = problem.spec.kernel_size, values.shape[-1]
    taps = (np.arange(channels)[:, None] - kernel // 2 + np.arange(kernel)) % channels
    return np.asarray(values[..., taps].sum(axis=-1))


def _of_base(base: Sums) -> Implementation:
    """Return forward or gradient with another base of the power, and the correct term of the window."""

    def formula(problem: CrossChannelProblem, *inputs: Array) -> Array:
        *g, x = inputs
        spec, b = problem.spec, base(problem, x)
        if not g:
            return np.asarray(x * b**-spec.beta)
        terms = 2 * spec.alpha * spec.beta / spec.kernel_size * g[0] * x * b ** (-spec.beta - 1)
        return np.asarray(g[0] * b**-spec.beta - x * _adjoint_sums(problem, terms))

    return computed(formula)


def _of_sums(sums: Sums, power: int = 2) -> Implementation:
    """Return forward or gradient with another sum of squares."""
    return _of_base(
        lambda p, x: p.spec.delta + p.spec.alpha / p.spec.kernel_size * sums(p, np.abs(x) ** power)
    )  # fmt: skip


_CHANNELS: MutantTable = {
    "even windows extend one channel further up": _of_sums(_adjoint_sums),
    "the window continues at the other end": _of_sums(_wrapped_sums),
    "a clipped window is moved inside": _of_sums(
        _over(lambda k, kernel, channels: max(0, min(k - kernel // 2, channels - kernel)))
    ),
    "the last channel of the window is left out": _of_sums(
        _over(lambda k, kernel, channels: k - kernel // 2, lambda kernel, channels: kernel - 1)
    ),
    "a clipped window keeps its size from channel 0 on": _of_sums(
        _over(lambda k, kernel, channels: max(0, k - kernel // 2))
    ),
    "the divisor shrinks where the window is clipped": _of_base(
        lambda p, x: p.spec.delta + p.spec.alpha * _correct_sums(p, x**2) / _correct_sums(p, np.ones_like(x))
    ),
    "the kernel size is cut to the number of channels": of_problem(
        lambda p: replace(p, spec=replace(p.spec, kernel_size=min(p.spec.kernel_size, p.source_shape[3])))
    ),
    "magnitudes in place of squares": _of_sums(_correct_sums, power=1),
    "alpha is not divided by the window size": of_spec(alpha=lambda spec: spec.alpha * spec.kernel_size),
    **_POWERS,
}


def _channels_gradient(
    factor: Callable[[CrossChannelNormalization], float] = lambda spec: 1.0,
    sums: Sums = _adjoint_sums,
    extra: float = 1.0,
) -> Implementation:
    """Return the gradient with another factor, sum or exponent of the term of the window."""

    def formula(problem: CrossChannelProblem, g: Array, x: Array) -> Array:
        spec, b = problem.spec, cross_channel.bases(problem, x)
        terms = factor(spec) * 2 * spec.alpha * spec.beta / spec.kernel_size * g * x * b ** (-spec.beta - extra)
        return np.asarray(g * b**-spec.beta - x * sums(problem, terms))

    return computed(formula)


_CHANNELS_GRADIENT: MutantTable = {
    "the formula that Apple prints: 1 / N is missing": _channels_gradient(factor=lambda spec: spec.kernel_size),
    "the factor 2 is missing": _channels_gradient(factor=lambda spec: 0.5),
    "the term of the window has the wrong sign": _channels_gradient(factor=lambda spec: -1.0),
    "the term of the window is that of the channel alone": _channels_gradient(sums=lambda problem, values: values),
    "the adjoint window is the window": _channels_gradient(sums=_correct_sums),
    "the exponent of the term of the window is -beta": _channels_gradient(extra=0.0),
}

MUTANTS = {
    (SpatialNormalization, "forward"): {**window_mutants(SpatialNormalization), **_WINDOWS, **_SPATIAL_FORWARD},
    (SpatialNormalization, "gradient"): {**window_mutants(SpatialNormalization), **_WINDOWS, **_SPATIAL_GRADIENT},
    (LocalContrastNormalization, "forward"): {
        **window_mutants(LocalContrastNormalization), **_WINDOWS, **_CONTRAST_FORWARD
    },
    (LocalContrastNormalization, "gradient"): {
        **window_mutants(LocalContrastNormalization), **_WINDOWS, **_CONTRAST_GRADIENT
    },
    (CrossChannelNormalization, "forward"): _CHANNELS,
    (CrossChannelNormalization, "gradient"): {**_CHANNELS, **_CHANNELS_GRADIENT},
}  # fmt: skip

# --- golden results ---------------------------------------------------------------------------------------------------

Windowed = type[SpatialNormalization] | type[LocalContrastNormalization] | type[CrossChannelNormalization]


def _golden_forward(spec_type: Windowed) -> Adapter:
    def adapter(entry: Entry, backend: Backend) -> Iterator[Comparison]:
        y = spec_type(**entry.parameters).forward(entry.image("x"), backend=backend)
        yield Comparison("y", y, entry.expected["y"])

    return adapter


GOLDEN: dict[str, Adapter] = {
    "MPSCNNSpatialNormalization": _golden_forward(SpatialNormalization),
    "MPSCNNLocalContrastNormalization": _golden_forward(LocalContrastNormalization),
    "MPSCNNCrossChannelNormalization": _golden_forward(CrossChannelNormalization),
}

_WINDOWED = (repeatable, one_image_at_a_time, zeros_around_change_nothing)
_ALONG_CHANNELS = (repeatable, one_image_at_a_time, pixels_are_independent, odd_windows_are_symmetric)

KERNELS: dict[type[Spec], KernelTests] = {
    **{
        kind: KernelTests(
            partial(windowed, kind),
            {"forward": (*_WINDOWED, offset_is_crop, odd_in_x), "gradient": (*_WINDOWED, linear_in_g)},
        )
        for kind in (SpatialNormalization, LocalContrastNormalization)
    },
    CrossChannelNormalization: KernelTests(
        along_channels,
        {"forward": (*_ALONG_CHANNELS, odd_in_x), "gradient": (*_ALONG_CHANNELS, linear_in_g)},
    ),
}
