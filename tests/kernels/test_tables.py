"""Per-axis tables against brute force, for small numbers and for numbers of up to 62 bits."""

from __future__ import annotations

import math
import time
from dataclasses import FrozenInstanceError, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsref.geometry import EDGE_MODES, EdgeMode, Window
from mpsref.tables import Runs, _range, divisors, gather_runs, reads, reciprocals, tap_runs, touching
from tests.kernels import oracle
from tests.kernels.oracle import HUGE, huge_integers, huge_naturals, placed_windows, small_naturals, thorough, windows

SMALL = st.integers(-8, 8)
LENGTHS = st.integers(1, 10)
INT32_MAX = 2**31 - 1

Entry = tuple[int, int]
"""An index and its tap."""


def entries(runs: Runs, direction: int) -> list[list[Entry]]:
    """Write a table out, entry by entry; taps go up (1) or down (-1)."""
    rows = zip(runs.first.tolist(), runs.count.tolist(), runs.tap.tolist(), strict=True)
    return [
        [(first + k * runs.step, tap + direction * k * runs.tap_step) for k in range(count)]
        for first, count, tap in rows
    ]


def assert_columns(n: int, *columns: npt.NDArray[Any], dtype: type = np.int32) -> None:
    for column in columns:
        assert column.dtype == dtype
        assert column.shape == (n,)
        assert column.flags.c_contiguous
        assert not column.flags.writeable, "a table is shared"


def assert_well_formed(runs: Runs, n: int) -> None:
    columns = (runs.first, runs.count, runs.tap)
    assert_columns(n, *columns)
    for column in columns:
        assert (column >= 0).all()
        assert not column[runs.count == 0].any(), "an empty run is all zeros"
    for step in (runs.step, runs.tap_step):
        assert type(step) is int
        assert 1 <= step <= INT32_MAX


def assert_entries(runs: Runs, direction: int, expected: list[list[Entry]]) -> None:
    """Compare all; a tap of 2**31 or more is stored as the largest int32, and those after it mean nothing."""
    assert len(expected) == len(runs.first)
    for run, wanted in zip(entries(runs, direction), expected, strict=True):
        if wanted and wanted[0][1] > INT32_MAX:
            assert [u for u, _ in run] == [u for u, _ in wanted]
            assert run[0][1] == INT32_MAX
        else:
            assert run == wanted


def forward_entries(w: Window, outputs: int, length: int) -> list[list[Entry]]:
    return [oracle.reads(w, i, range(length)) for i in range(outputs)]


def represented(
    w: Window,
    length: int,
    kernel_offset: int | None = None,
    clip_origin: int = 0,
    clip_size: int | None = None,
) -> list[list[int]]:
    """For each destination pixel the source pixel that it stands for; none outside the clip and the image."""
    even = 1 - ((w.kernel - 1) * w.dilation + 1) % 2
    shift = 0 if kernel_offset is None else kernel_offset + w.offset - even - clip_origin
    end = length if clip_size is None else clip_origin + clip_size
    return [[q + shift] if clip_origin <= q < end and 0 <= q + shift < length else [] for q in range(length)]


def gradient_entries(
    w: Window,
    length: int,
    gradient_length: int,
    primary_offset: int = 0,
    source_size: int | None = None,
    **placement: Any,
) -> list[list[Entry]]:
    """For each destination pixel the (gradient pixel, tap) pairs whose tap reads its source pixel."""
    included = oracle.included(primary_offset, source_size, gradient_length)
    return [
        [(u, tap) for u in included for _, tap in oracle.reads(w, u - primary_offset, pixel)]
        for pixel in represented(w, length, **placement)
    ]


# --- runs, with small numbers and with numbers of up to 62 bits -------------------------------------------------------

NUMBERS = pytest.mark.parametrize("numbers", [small_naturals, huge_naturals], ids=["small", "huge"])


@NUMBERS
@given(st.data(), LENGTHS, LENGTHS)
@thorough
def test_tap_runs(numbers: st.SearchStrategy[int], data: st.DataObject, outputs: int, length: int) -> None:
    w = data.draw(placed_windows(numbers, length, count=outputs))
    runs = tap_runs(w, outputs, length)
    assert_well_formed(runs, outputs)
    assert runs.count.any(), "the strategy places a tap inside"
    assert_entries(runs, 1, forward_entries(w, outputs, length))


@st.composite
def gradients(draw: st.DrawFn, numbers: st.SearchStrategy[int]) -> tuple[Window, int, int, dict[str, Any]]:
    """A window, the lengths of source and gradient, and the options; most often some of the gradient is gathered."""
    length, gradient_length = draw(LENGTHS), draw(LENGTHS)
    p0 = draw(st.integers(0, gradient_length - 1)) - draw(st.just(0) | numbers)
    first = max(0, -p0)
    w = draw(placed_windows(numbers, length, first, gradient_length - max(0, p0)))
    origin = draw(st.integers(0, 2))
    canonical = w.kernel_offset(origin)
    return (
        w,
        length,
        gradient_length,
        {
            "primary_offset": p0,
            "source_size": draw(st.sampled_from([None, HUGE]) | st.integers(first + 1, first + gradient_length)),
            "kernel_offset": draw(st.none() | st.integers(canonical - 2, canonical + 2)),
            "clip_origin": origin,
            "clip_size": draw(st.none() | st.integers(3, 8) | numbers),
        },
    )


@NUMBERS
@given(st.data())
@thorough
def test_gather_runs(numbers: st.SearchStrategy[int], data: st.DataObject) -> None:
    w, length, gradient_length, options = data.draw(gradients(numbers))
    runs = gather_runs(w, length, gradient_length, **options)
    assert_well_formed(runs, length)
    assert_entries(runs, -1, gradient_entries(w, length, gradient_length, **options))


@NUMBERS
@given(st.data(), st.sampled_from(EDGE_MODES))
@thorough
def test_touching(numbers: st.SearchStrategy[int], data: st.DataObject, edge_mode: EdgeMode) -> None:
    w, length, gradient_length, options = data.draw(gradients(numbers))
    table = touching(w, length, gradient_length, edge_mode, **options)
    assert_columns(length, table.pixel, table.first, table.count)
    p0, source_size = options.pop("primary_offset"), options.pop("source_size")
    included = oracle.included(p0, source_size, gradient_length)
    for q, pixel in enumerate(represented(w, length, **options)):
        assert table.pixel[q] == (pixel[0] if pixel else -1)
        expected = [u for u in included if any(spans(w, u - p0, j, length, edge_mode) for j in pixel)]
        assert list(range(table.first[q], table.first[q] + table.count[q])) == expected


def spans(w: Window, i: int, j: int, length: int, edge_mode: EdgeMode) -> bool:
    """Whether pixel j lies between the first and the last pixel that window i reads."""
    first = w.offset + w.stride * i - oracle.center(w)
    last = first + (w.kernel - 1) * w.dilation
    if edge_mode == "clamp":
        first, last = (min(max(x, 0), length - 1) for x in (first, last))
    return first <= j <= last


@NUMBERS
@given(st.data(), st.just(0) | huge_integers, LENGTHS, LENGTHS, st.sampled_from(EDGE_MODES))
@thorough
def test_reads(
    numbers: st.SearchStrategy[int], data: st.DataObject, first: int, n: int, length: int, edge_mode: EdgeMode
) -> None:
    w = data.draw(placed_windows(numbers, length, first, n))
    table = reads(w, first, n, length, edge_mode)
    assert_columns(n, table.first, table.count)
    assert_columns(n, table.before, table.after, dtype=np.int64)
    assert table.step == min(w.dilation, INT32_MAX)
    assert (table.low, table.high) == ((0, length - 1) if edge_mode == "clamp" else (-1, -1))
    for k in range(n):
        inside = oracle.reads(w, first + k, range(length))
        run = [table.first[k] + m * table.step for m in range(table.count[k])]
        assert run == [j for j, _ in inside]
        start = w.offset + w.stride * (first + k) - oracle.center(w)
        before = inside[0][1] if inside else taps_below_zero(w, start)
        assert (table.before[k], table.after[k]) == (before, w.kernel - before - len(inside))


def taps_below_zero(w: Window, start: int) -> int:
    return min(w.kernel, (-start - 1) // w.dilation + 1) if start < 0 else 0


@given(windows(), LENGTHS, LENGTHS)
@thorough
def test_windows_anywhere(w: Window, length: int, n: int) -> None:
    """Also far from the image, where both tables are empty."""
    assert_entries(tap_runs(w, n, length), 1, forward_entries(w, n, length))
    assert_entries(gather_runs(w, length, n), -1, gradient_entries(w, length, n))


def test_gather_runs_exhaustively_for_every_common_factor_of_stride_and_dilation() -> None:
    for stride in range(1, 7):
        for dilation in range(1, 7):
            for kernel in (1, 2, 3, 4):
                w = Window(kernel, stride, dilation, offset=1)
                runs = gather_runs(w, 9, 6)
                assert (runs.step, runs.tap_step) == (
                    dilation // math.gcd(stride, dilation),
                    stride // math.gcd(stride, dilation),
                )
                assert_entries(runs, -1, gradient_entries(w, 9, 6))


# --- divisors ---------------------------------------------------------------------------------------------------------


@given(windows(), SMALL, LENGTHS, st.integers(1, 12), st.sampled_from(EDGE_MODES), st.integers(0, 8))
@thorough
def test_divisors_and_their_reciprocals(
    w: Window, first: int, n: int, length: int, edge_mode: EdgeMode, zero_pad: int
) -> None:
    ring = range(-zero_pad, length + zero_pad)
    expected = [
        w.kernel if edge_mode == "zero" else sum(x in ring for x in oracle.taps(w, first + k)) for k in range(n)
    ]
    arguments = (w, first, n, length, edge_mode, zero_pad)
    assert divisors(*arguments).tolist() == expected
    inverse = reciprocals(*arguments)
    assert inverse.dtype == np.float64
    assert not inverse.flags.writeable, "a table is shared"
    assert inverse.tolist() == [1 / count if count else 0.0 for count in expected]


@given(st.data(), st.integers(1, 8), st.integers(0, 4), st.sampled_from(EDGE_MODES), st.integers(0, 6) | huge_naturals)
@thorough
def test_divisors_of_huge_windows(data: st.DataObject, length: int, n: int, edge_mode: EdgeMode, zero_pad: int) -> None:
    first = data.draw(huge_integers)
    w = data.draw(placed_windows(huge_naturals, length, first, max(n, 1)))
    low, high = -zero_pad, length + zero_pad  # a ring of zeros on both sides counts
    expected = []
    for i in range(first, first + n):
        start = w.offset + w.stride * i - oracle.center(w)
        counted = range(start, start + w.kernel * w.dilation, w.dilation)
        before = -((start - low) // w.dilation) if start < low else 0
        after = (counted[-1] - high) // w.dilation + 1 if counted[-1] >= high else 0
        expected.append(w.kernel if edge_mode == "zero" else max(0, w.kernel - max(0, before) - after))
    arguments = (w, first, n, length, edge_mode, zero_pad)
    assert divisors(*arguments).tolist() == expected
    inverse = [1 / count if count else 0.0 for count in expected]
    assert reciprocals(*arguments).tolist() == pytest.approx(inverse, rel=2**-52, abs=0)


# --- one huge number, and cost ----------------------------------------------------------------------------------------

NATURAL = ("kernel", "stride", "dilation", "source_size", "clip_origin", "clip_size")
SIGNED = ("offset", "primary_offset", "kernel_offset")
LARGE = (2**30 - 1, 2**30, 2**31 - 1, 2**31, 2**32, 2**53 + 1, HUGE)


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name in NATURAL + SIGNED for value in LARGE] + [(name, -HUGE) for name in SIGNED],
)
def test_one_huge_number_among_small_ones(name: str, value: int) -> None:
    numbers = {"kernel": 3, "stride": 2, "dilation": 1, "offset": 1}
    others: dict[str, Any] = {}
    (numbers if name in numbers else others)[name] = value
    w = Window(**numbers)
    runs = gather_runs(w, 7, 4, **others)
    assert_well_formed(runs, 7)
    assert_entries(runs, -1, gradient_entries(w, 7, 4, **others))
    forward = tap_runs(w, 4, 7)
    assert_well_formed(forward, 4)
    assert_entries(forward, 1, forward_entries(w, 4, 7))


def test_the_time_does_not_grow_with_the_numbers() -> None:
    began = time.process_time()
    w = Window(HUGE, HUGE - 1, HUGE - 3, HUGE)
    tap_runs(w, 100, 100)
    gather_runs(w, 100, 100, -HUGE, HUGE, -HUGE, 0, HUGE)
    divisors(w, -HUGE, 100, 100, "clamp", HUGE)
    assert time.process_time() - began < 0.5


# --- nothing to do ----------------------------------------------------------------------------------------------------


def test_empty_axes() -> None:
    w = Window(3, 2)
    for runs in (tap_runs(w, 0, 5), gather_runs(w, 0, 5)):
        assert_well_formed(runs, 0)
    for runs in (tap_runs(w, 4, 0), gather_runs(w, 4, 0), gather_runs(w, 4, 3, clip_size=0)):
        assert_well_formed(runs, 4)
        assert not runs.count.any()
    assert divisors(w, 0, 0, 5, "zero").shape == divisors(w, 0, 0, 5, "clamp").shape == (0,)
    assert reciprocals(w, 0, 0, 5, "clamp").shape == (0,)


def test_a_window_beyond_the_image_and_its_ring_divides_by_nothing() -> None:
    w = Window(2, 3, offset=-1)
    assert divisors(w, 0, 3, 2, "clamp").tolist() == [0, 1, 0]
    assert reciprocals(w, 0, 3, 2, "clamp").tolist() == [0.0, 1.0, 0.0]


def test_one_reciprocal_of_a_huge_divisor_is_exact_to_a_rounding() -> None:
    assert reciprocals(Window(HUGE), 0, 1, 5, "zero").tolist() == [2.0**-62]
    assert reciprocals(Window(2**53 + 1), 0, 1, 5, "zero")[0] == pytest.approx(1 / (2**53 + 1), rel=2**-52, abs=0)


def test_integers_of_64_bits_suffice_up_to_a_limit() -> None:
    """Python integers take fifty times as long, and only huge numbers need them."""
    assert _range(3, 5, None, -(2**30) + 1).dtype == np.int64
    assert _range(3, 5, 2**30).dtype == _range(3, -(2**30)).dtype == object


def test_a_window_that_reads_nothing_begins_at_pixel_0() -> None:
    table = reads(Window(kernel=2, offset=9), 0, 2, length=3, edge_mode="zero")
    assert (table.first.tolist(), table.count.tolist()) == ([0, 0], [0, 0])


@pytest.mark.parametrize(
    "table",
    [
        tap_runs(Window(kernel=2), 2, 3),
        reads(Window(kernel=2), 0, 2, 3, "zero"),
        touching(Window(kernel=2), 3, 3, edge_mode="zero"),
    ],
    ids=lambda table: type(table).__name__,
)
def test_tables_are_shared_and_cannot_be_changed(table: Any) -> None:
    with pytest.raises(FrozenInstanceError):
        table.first = table.count
    with pytest.raises(ValueError, match="read-only"):
        table.first[0] = 1
    assert table != replace(table), "they are compared by identity, as keys of caches are"
    assert not hasattr(table, "__dict__")
