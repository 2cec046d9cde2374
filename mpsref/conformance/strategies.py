"""Hypothesis strategies that several families share."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple, TypeVar

from hypothesis import strategies as st

from mpsref import padding
from mpsref.arguments.parameters import Pair
from mpsref.geometry import by_axis
from mpsref.padding import Placement

T = TypeVar("T")
U = TypeVar("U")


@cache  # Hypothesis examines every new strategy
def pairs(low: int, high: int) -> st.SearchStrategy[tuple[int, int]]:
    """Draw two integers (y, x)."""
    return st.tuples(st.integers(low, high), st.integers(low, high))


@cache  # Hypothesis examines every new strategy
def sizes(high: int) -> st.SearchStrategy[tuple[int, int]]:
    """Draw a size (height, width) of a result, often of one row or one column: frameworks have special cases there."""
    lengths = st.integers(1, high)
    return pairs(1, high) | st.tuples(st.just(1), lengths) | st.tuples(lengths, st.just(1))


def seldom(usual: T, strategy: st.SearchStrategy[U]) -> st.SearchStrategy[T | U]:
    """Draw ``usual`` three times out of four."""
    alone = st.just(usual)  # made once: Hypothesis examines every new strategy
    return st.integers(0, 3).flatmap(lambda k: strategy if k == 3 else alone)


def often(usual: T, strategy: st.SearchStrategy[U]) -> st.SearchStrategy[T | U]:
    """Draw ``usual`` every second time: for parameters of which two must occur together to expose a mistake."""
    alone = st.just(usual)
    return st.booleans().flatmap(lambda other: strategy if other else alone)


def thirds(usual: st.SearchStrategy[T], other: st.SearchStrategy[U]) -> st.SearchStrategy[T | U]:
    """Draw from ``other`` one time out of three."""
    return st.integers(0, 2).flatmap(lambda k: other if k == 2 else usual)


@cache  # Hypothesis examines every new strategy
def channels(high: int) -> st.SearchStrategy[int]:
    """Draw up to ``high`` channels, one time out of four a number next to the widths of vectors."""
    return st.integers(1, high) | st.integers(1, high) | st.integers(1, high) | st.sampled_from(WIDTHS)


WIDTHS = (1, 3, 4, 5, 7, 8, 9, 15, 16, 17)


# --- windows by the arguments of frameworks ---------------------------------------------------------------------------


class Windows(NamedTuple):
    """The size of an image, and the windows that a framework places on it."""

    input_size: Pair
    kernel_size: Pair
    strides: Pair
    dilations: Pair
    placement: Placement


@st.composite
def framework_windows(draw: st.DrawFn, pooling: bool, dilated: bool) -> Windows:
    """Draw windows by the arguments of PyTorch, TensorFlow or ONNX.

    Often there is one window, or strides are larger than the kernel; of convolutions, padding may be larger than it.
    ``dilated`` says whether the kernel has dilations; the arguments of pooling are ceil_mode, count_include_pad and
    divisor_override, with the area of the kernel as divisor.
    """
    kernel = draw(pairs(1, 3) | pairs(1, 3) | pairs(1, 6) | st.tuples(st.integers(1, 2), st.integers(10, 13)))
    strides = draw(st.just(kernel) | pairs(1, 3) if pooling else pairs(1, 3) | pairs(1, 6))
    dilations = draw(often((1, 1), pairs(1, 4))) if dilated else (1, 1)
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    framework = draw(st.sampled_from((_pytorch, _onnx, _pytorch, _tensorflow)))
    return framework(draw, kernel, strides, dilations, extent, pooling)


def _size(draw: st.DrawFn, extent: list[int], pads: Pair) -> Pair:
    """Draw the size of an image in which at least one window fits, and often only one."""
    return by_axis(lambda e, p: max(1, e - p) + draw(st.just(0) | st.integers(0, 8)), extent, pads)


_POOLING = (
    (False, True, False),
    (True, True, False),
    (True, False, False),
    (True, True, False),
    (False, True, True),
    (True, True, False),
    (False, False, False),
    (True, True, True),
)
"""ceil_mode, count_include_pad, and whether divisor_override is the area of the kernel: most often by default."""


def _pytorch(
    draw: st.DrawFn, kernel: Pair, strides: Pair, dilations: Pair, extent: list[int], pooling: bool
) -> Windows:
    pads = draw(st.tuples(*(st.integers(0, k // 2 if pooling else k + 1) for k in kernel)))
    size = _size(draw, extent, (2 * pads[0], 2 * pads[1]))
    ceil_mode, counted, divisor = draw(st.sampled_from(_POOLING)) if pooling else (False, True, True)
    if ceil_mode:  # which matters only where a stride more than fits hangs over
        rest = ((n + 2 * p - e) % s for n, p, e, s in zip(size, pads, extent, strides, strict=True))
        size = tuple(n + (r == 0) for n, r in zip(size, rest, strict=True))
    placement = padding.pytorch(size, kernel, strides, pads, dilations, ceil_mode, counted)
    if divisor:
        placement = placement._replace(edge_mode="zero", zero_pad_size=(0, 0))
    return Windows(size, kernel, strides, dilations, placement)


def _onnx(draw: st.DrawFn, kernel: Pair, strides: Pair, dilations: Pair, extent: list[int], pooling: bool) -> Windows:
    apart = any(s > e for s, e in zip(strides, extent, strict=True))  # pads of SAME would be negative
    auto_pad = "NOTSET" if apart else draw(st.sampled_from(("NOTSET", "SAME_UPPER", "SAME_LOWER")))
    pads = (0, 0, 0, 0)
    if auto_pad == "NOTSET":
        pads = draw(st.tuples(*(st.integers(0, k - 1 if pooling else k + 1) for k in kernel * 2)))
        size = _size(draw, extent, (pads[0] + pads[2], pads[1] + pads[3]))
    else:
        size = draw(pairs(1, 12))
    ceil_mode, counted = draw(st.tuples(st.booleans(), st.booleans())) if pooling else (False, True)
    counted &= not ceil_mode or pads[:2] == pads[2:]
    placement = padding.onnx(size, kernel, strides, pads, dilations, auto_pad, ceil_mode, counted)
    return Windows(size, kernel, strides, dilations, placement)


def _tensorflow(
    draw: st.DrawFn, kernel: Pair, strides: Pair, dilations: Pair, extent: list[int], pooling: bool
) -> Windows:
    same = draw(st.booleans())
    size = draw(pairs(1, 12)) if same else _size(draw, extent, (0, 0))
    placement = padding.tensorflow(size, kernel, strides, dilations, "SAME" if same else "VALID")
    if not pooling:
        placement = placement._replace(edge_mode="zero")
    return Windows(size, kernel, strides, dilations, placement)
