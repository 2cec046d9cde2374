"""One axis of windows: the worked tables of the documentation, and every function against brute force."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsref import geometry
from mpsref.geometry import EDGE_MODES, EdgeMode, Window
from mpsref.padding import PaddingMethod, policy_forward
from tests.kernels import oracle
from tests.kernels.oracle import HUGE, huge_integers, huge_naturals, thorough, windows

SMALL = st.integers(-8, 8)
SIZES = st.integers(0, 10)

# --- integer helpers --------------------------------------------------------------------------------------------------


@given(st.one_of(SMALL, huge_integers), st.one_of(st.integers(1, 9), huge_naturals))
@thorough
def test_floor_div_and_ceil_div_bracket_the_quotient(a: int, b: int) -> None:
    low, high = geometry.floor_div(a, b), geometry.ceil_div(a, b)
    assert low * b <= a < (low + 1) * b
    assert (high - 1) * b < a <= high * b


def test_tdiv2_divides_as_c_does() -> None:
    assert {a: geometry.tdiv2(a) for a in range(-5, 6)} == {
        -5: -2, -4: -2, -3: -1, -2: -1, -1: 0, 0: 0, 1: 0, 2: 1, 3: 1, 4: 2, 5: 2,
    }  # fmt: skip
    assert geometry.tdiv2(-HUGE - 1) == -HUGE // 2, "exact, not through a float"


# --- worked windows ---------------------------------------------------------------------------------------------------

WINDOWS = [  # (K, s, d, o), taps of windows 0, 1, 2
    ((2, 3, 1, 0), [[-1, 0], [2, 3], [5, 6]]),
    ((2, 3, 1, 1), [[0, 1], [3, 4], [6, 7]]),
    ((3, 3, 1, 1), [[0, 1, 2], [3, 4, 5], [6, 7, 8]]),
    ((2, 1, 3, 2), [[0, 3], [1, 4], [2, 5]]),
    ((2, 1, 2, 0), [[-1, 1], [0, 2], [1, 3]]),
    ((4, 2, 1, 0), [[-2, -1, 0, 1], [0, 1, 2, 3], [2, 3, 4, 5]]),
]


@pytest.mark.parametrize(("window", "expected"), WINDOWS)
def test_taps_of_the_documented_windows(window: tuple[int, int, int, int], expected: list[list[int]]) -> None:
    w = Window(*window)
    assert [[w.tap(i, t) for t in range(w.kernel)] for i in range(3)] == expected


def test_a_window_is_a_value_that_steps_by_one_from_pixel_zero() -> None:
    assert len({Window(3), Window(3, 1, 1, 0)}) == 1
    assert Window(3).divisor(0, 5, "clamp") == 2


@given(windows(), SMALL)
@thorough
def test_window_against_its_list_of_taps(w: Window, i: int) -> None:
    taps = oracle.taps(w, i)
    assert [w.tap(i, t) for t in range(w.kernel)] == taps
    assert w.start(i) == taps[0]
    assert w.extent == taps[-1] - taps[0] + 1
    assert w.center == w.offset + w.stride * i - taps[0]
    assert w.even == (w.extent % 2 == 0)
    assert 2 * w.center == w.extent - 1 + w.even
    assert taps[-1] == w.offset + w.stride * i + w.center - w.even


@given(windows(), st.integers(1, 12))
@thorough
def test_default_outputs_counts_the_centres_before_the_end(w: Window, length: int) -> None:
    expected = sum(w.offset + w.stride * i < length for i in range(1100))
    assert max(0, w.default_outputs(length)) == expected


# --- what a window reads ----------------------------------------------------------------------------------------------


@given(windows(), SMALL, SMALL, SIZES)
@thorough
def test_taps_between(w: Window, i: int, low: int, size: int) -> None:
    expected = [t for t, x in enumerate(oracle.taps(w, i)) if low <= x < low + size]
    assert list(w.taps_between(i, low, low + size)) == expected


@given(windows(), SMALL, st.integers(1, 12))
@thorough
def test_inside_slices_the_pixels_that_exist(w: Window, i: int, length: int) -> None:
    part = w.inside(i, length)
    assert part.start >= 0, "a negative start would count from the end"
    assert list(range(length))[part] == [x for x in oracle.taps(w, i) if 0 <= x < length]


@given(windows(), SMALL, st.integers(1, 12), st.sampled_from(EDGE_MODES), st.integers(0, 8))
@thorough
def test_divisor_counts_taps(w: Window, i: int, length: int, edge_mode: EdgeMode, zero_pad: int) -> None:
    inside_ring = sum(-zero_pad <= x <= length - 1 + zero_pad for x in oracle.taps(w, i))
    assert w.divisor(i, length, edge_mode, zero_pad) == (w.kernel if edge_mode == "zero" else inside_ring)


# --- which windows read a pixel ---------------------------------------------------------------------------------------


@given(windows(), SMALL, SIZES)
@thorough
def test_cover_is_every_window_whose_extent_spans_the_pixel(w: Window, j: int, n: int) -> None:
    expected = [i for i in range(n) if min(oracle.taps(w, i)) <= j <= max(oracle.taps(w, i))]
    assert list(w.cover(j, n)) == expected


@given(windows(), SMALL, SIZES)
@thorough
def test_gather_set_is_every_window_and_tap_at_the_pixel_once(w: Window, j: int, n: int) -> None:
    assert list(w.gather_set(j, n)) == [(i, t) for i in range(n) for t, x in enumerate(oracle.taps(w, i)) if x == j]


@given(windows(), SMALL)
@thorough
def test_steps_lead_from_one_window_at_a_pixel_to_the_next(w: Window, distance: int) -> None:
    j = oracle.taps(w, 0)[0] + distance
    hits = [(i, t) for i in range(-40, 10) for t, x in enumerate(oracle.taps(w, i)) if x == j]
    for (i, t), (next_i, next_t) in itertools.pairwise(hits):
        assert (next_i - i, t - next_t) == (w.window_step, w.tap_step)


# --- clip, included windows, offsets ----------------------------------------------------------------------------------


@given(SIZES, st.one_of(st.none(), SIZES), SIZES)
@thorough
def test_clip_intersects_with_the_image(origin: int, size: int | None, length: int) -> None:
    pixels = [x for x in range(length) if x >= origin and (size is None or x < origin + size)]
    assert geometry.clip(origin, size, length) == (origin, len(pixels))


@given(SMALL, st.one_of(st.none(), SIZES), SIZES)
@thorough
def test_included_windows(p0: int, source_size: int | None, gradient_length: int) -> None:
    expected = [u - p0 for u in oracle.included(p0, source_size, gradient_length)]
    assert list(geometry.included_windows(p0, source_size, gradient_length)) == expected


@given(windows(), st.integers(0, 20), SMALL)
@thorough
def test_the_canonical_kernel_offset_maps_each_destination_pixel_to_itself(w: Window, origin: int, q: int) -> None:
    assert w.represented_pixel(q, w.kernel_offset(origin)) == q + origin


@given(windows())
@thorough
def test_the_pooling_kernel_offset_starts_at_the_first_window_pixel_inside_the_image(w: Window) -> None:
    first = max(0, oracle.taps(w, 0)[0])
    assert w.represented_pixel(0, w.pooling_kernel_offset()) == first


def test_the_kernel_offset_of_an_explicit_padding_is_the_one_that_other_frameworks_set() -> None:
    for kernel in range(1, 20):
        for pad in range(6):
            w = Window(kernel, offset=kernel // 2 - pad)
            assert w.kernel_offset() == kernel // 2 - kernel + 1 + pad


# --- the gradient -----------------------------------------------------------------------------------------------------

SAME, VALID, FULL = PaddingMethod.SizeSame, PaddingMethod.SizeValidOnly, PaddingMethod.SizeFull
TL, BR = PaddingMethod.AddRemainderToTopLeft, PaddingMethod.AddRemainderToBottomRight
ALIGN_BR = PaddingMethod.AlignBottomRight

# (L, K, s, d), policy: O, o, (E, c, ev), (first, last pixel read), (unread left, right), ko, y0, pooling ko
GRADIENT_GEOMETRY = [
    ((5, 3, 1, 1), SAME | TL, 5, 0, (3, 1, 0), (-1, 5), (0, 0), 0, 0, 0),
    ((5, 2, 1, 1), SAME | TL, 5, 0, (2, 1, 1), (-1, 4), (0, 0), 1, 0, 1),
    ((5, 2, 1, 1), SAME | BR, 5, 1, (2, 1, 1), (0, 5), (0, 0), 0, 0, 0),
    ((6, 4, 1, 1), SAME | TL, 6, 0, (4, 2, 1), (-2, 6), (0, 0), 1, 0, 1),
    ((6, 4, 1, 1), SAME | BR, 6, 1, (4, 2, 1), (-1, 7), (0, 0), 0, 0, 0),
    ((6, 3, 2, 1), SAME | TL, 3, 0, (3, 1, 0), (-1, 5), (0, 0), 0, 0, 0),
    ((6, 3, 2, 1), SAME | BR, 3, 1, (3, 1, 0), (0, 6), (0, 0), -1, 0, -1),
    ((4, 2, 2, 1), VALID, 2, 1, (2, 1, 1), (0, 3), (0, 0), 0, 0, 0),
    ((5, 2, 2, 1), VALID | TL, 2, 1, (2, 1, 1), (0, 3), (0, 1), 0, 0, 0),
    ((9, 3, 4, 1), VALID | BR, 2, 2, (3, 1, 0), (1, 7), (1, 1), -2, 1, -1),
    ((9, 3, 4, 1), VALID | ALIGN_BR, 2, 1, (3, 1, 0), (0, 6), (0, 2), -1, 0, -1),
    ((10, 2, 5, 1), VALID | BR, 2, 2, (2, 1, 1), (1, 7), (1, 2), -1, 1, 0),
    ((7, 3, 1, 2), VALID, 3, 2, (5, 2, 0), (0, 6), (0, 0), -2, 0, -2),
    ((7, 3, 1, 2), SAME | TL, 7, 0, (5, 2, 0), (-2, 8), (0, 0), 0, 0, 0),
    ((6, 2, 1, 3), SAME | TL, 6, 0, (4, 2, 1), (-2, 6), (0, 0), 1, 0, 1),
    ((6, 2, 1, 3), SAME | BR, 6, 1, (4, 2, 1), (-1, 7), (0, 0), 0, 0, 0),
    ((12, 2, 3, 3), VALID | TL, 3, 2, (4, 2, 1), (0, 9), (0, 2), -1, 0, -1),
    ((5, 3, 1, 1), FULL, 7, -1, (3, 1, 0), (-2, 6), (0, 0), 1, 0, 1),
    ((6, 4, 2, 1), FULL | TL, 5, -1, (4, 2, 1), (-3, 8), (0, 0), 2, 0, 2),
    ((8, 3, 2, 1), FULL | BR, 5, 0, (3, 1, 0), (-1, 9), (0, 0), 0, 0, 0),
]


@pytest.mark.parametrize("row", GRADIENT_GEOMETRY)
def test_worked_gradient_geometry(row: tuple[Any, ...]) -> None:
    (length, kernel, stride, dilation), policy, outputs, offset, shape, ends, unread, ko, y0, pooling_ko = row
    assert policy_forward(length, Window(kernel, stride, dilation), policy, axis=1) == (outputs, offset)
    w = Window(kernel, stride, dilation, offset)
    assert (w.extent, w.center, w.even) == shape
    first, last = w.start(0), w.tap(outputs - 1, w.kernel - 1)
    assert (first, last) == ends
    assert (max(0, first), max(0, length - 1 - last)) == unread
    assert w.kernel_offset() == ko
    assert w.represented_pixel(0, w.pooling_kernel_offset()) == y0
    assert w.pooling_kernel_offset() == pooling_ko


def gather(w: Window, weights: list[int], g: list[int], p0: int, source_size: int | None, j: int) -> int:
    """Form B, with the functions under test."""
    kept = geometry.included_windows(p0, source_size, len(g))
    return sum(weights[t] * g[p0 + i] for i, t in w.gather_set(j, kept.stop) if i in kept)


def correlation(w: Window, weights: list[int], g: list[int], p0: int, pixels: list[int], ko: int, q: int) -> int:
    """Form C: the rotated window over the zero-inserted gradient, at the effective offset under test."""
    inserted = oracle.zero_inserted(g, w.stride, pixels)
    return oracle.correlate(w, weights[::-1], inserted, q + geometry.effective_offset(p0, ko, w.stride))


NUMERIC = [  # L, w, g, (s, d, o), ko, taps of each window, dx
    (6, [1, 2, 3], [1, 10, 100], (2, 1, 0), 0, [[-1, 0, 1], [1, 2, 3], [3, 4, 5]], [2, 13, 20, 130, 200, 300]),
    (5, [1, 2], [1, 10, 100], (2, 1, 1), 0, [[0, 1], [2, 3], [4, 5]], [1, 2, 10, 20, 100]),
    (6, [1, 2], [1, 10, 100, 1000], (1, 3, 1), 0, [[-1, 2], [0, 3], [1, 4], [2, 5]], [10, 100, 1002, 20, 200, 2000]),
    (9, [1, 2, 3], [1, 10], (4, 1, 2), -2, [[1, 2, 3], [5, 6, 7]], [0, 1, 2, 3, 0, 10, 20, 30, 0]),
    (
        7, [1, 2, 3, 4], [1, 10, 100], (2, 1, 1), 0,
        [[-1, 0, 1, 2], [1, 2, 3, 4], [3, 4, 5, 6]], [2, 13, 24, 130, 240, 300, 400],
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", NUMERIC)
def test_numeric_examples_in_three_forms(row: tuple[Any, ...]) -> None:
    length, weights, g, sdo, ko, taps, dx = row
    w = Window(len(weights), *sdo)
    everything = list(range(len(g)))
    assert [oracle.taps(w, i) for i in everything] == taps
    assert w.kernel_offset() == ko
    a = oracle.scatter(w, weights, g, 0, everything)
    assert [a[j] for j in range(length)] == dx
    assert [gather(w, weights, g, 0, None, j) for j in range(length)] == dx
    assert [correlation(w, weights, g, 0, everything, ko, q) for q in range(length)] == dx


def test_a_pooling_gradient_with_unset_kernel_offset_is_placed_by_its_first_window() -> None:
    """The fourth numeric example, written to the clip of origin o - c = 1 and size 8."""
    w, weights, g = Window(3, 4, 1, 2), [1, 2, 3], [1, 10]
    pixels = [w.represented_pixel(q, w.pooling_kernel_offset()) for q in range(8)]
    assert [gather(w, weights, g, 0, None, j) for j in pixels] == [1, 2, 3, 0, 10, 20, 30, 0]


values = st.lists(st.integers(-9, 9), min_size=0, max_size=8)
offsets = st.one_of(st.none(), SMALL)  # None: the canonical kernel offset


@given(windows(), values, SMALL, st.one_of(st.none(), SIZES), offsets, SIZES)
@thorough
def test_the_three_forms_of_the_gradient_agree(
    w: Window, g: list[int], p0: int, size: int | None, ko: int | None, origin: int
) -> None:
    """On every pixel of an unbounded plane, whatever is unread, outside, before the first pixel or in a tile."""
    weights = [3, -7, 11, 2, -5, 13][: w.kernel]
    ko = w.kernel_offset(origin) if ko is None else ko
    pixels = oracle.included(p0, size, len(g))
    scattered = oracle.scatter(w, weights, g, p0, pixels)
    reached = [j - w.represented_pixel(0, ko) for j in scattered]  # as destination pixels
    for q in {*reached, *range(-3, 10)}:
        j = w.represented_pixel(q, ko)
        assert gather(w, weights, g, p0, size, j) == scattered[j]
        assert correlation(w, weights, g, p0, pixels, ko, q) == scattered[j]


@given(windows(), st.lists(st.integers(-9, 9), max_size=10), values)
@thorough
def test_the_gradient_is_the_adjoint_of_the_forward_pass(w: Window, x: list[int], g: list[int]) -> None:
    weights = [3, -7, 11, 2, -5, 13][: w.kernel]
    y = oracle.forward(w, weights, x, len(g))
    dx = [gather(w, weights, g, 0, None, j) for j in range(len(x))]
    assert sum(a * b for a, b in zip(g, y, strict=True)) == sum(a * b for a, b in zip(dx, x, strict=True))


# --- the zero-inserted picture of a transposed convolution ------------------------------------------------------------

TRANSPOSED = [  # weights, offset, kernel offset, out; source 1 2 3 4, stride 2
    ([1, 10, 100], 0, 0, [10, 201, 20, 302, 30, 403, 40]),
    ([1, 10, 100], 0, 1, [201, 20, 302, 30, 403, 40, 4]),
    ([1, 10, 100], 0, -1, [100, 10, 201, 20, 302, 30, 403]),
    ([1, 10, 100], 2, 0, [30, 403, 40, 4, 0, 0, 0]),
    ([1, 10, 100], 1, 2, [30, 403, 40, 4, 0, 0, 0]),
    ([1, 10, 100], 3, -2, [30, 403, 40, 4, 0, 0, 0]),
    ([1, 10], 0, 0, [10, 1, 20, 2, 30, 3, 40, 4]),
    ([1, 10], 0, 1, [1, 20, 2, 30, 3, 40, 4, 0]),
    ([1, 10], 0, -1, [0, 10, 1, 20, 2, 30, 3, 40]),
]


@pytest.mark.parametrize(("weights", "offset", "ko", "out"), TRANSPOSED)
def test_worked_transposed_convolution(weights: list[int], offset: int, ko: int, out: list[int]) -> None:
    w = Window(len(weights), stride=2)
    inserted = oracle.zero_inserted([1, 2, 3, 4], w.stride, range(4))
    e = geometry.effective_offset(offset, ko, w.stride)
    assert [oracle.correlate(w, weights, inserted, q + e) for q in range(len(out))] == out
    # As the gradient of a window whose weights are read backwards: one rule for both.
    equivalent = Window(w.kernel, w.stride, offset=w.even - e)
    assert [gather(equivalent, weights[::-1], [1, 2, 3, 4], 0, None, j) for j in range(len(out))] == out
