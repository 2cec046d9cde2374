"""Padding of TensorFlow, PyTorch, ONNX and Caffe, against their own definitions and against PyTorch itself."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from mpsref import padding
from mpsref.errors import ShapeError, UnsupportedError
from mpsref.geometry import Window
from mpsref.padding import Placement
from tests.kernels.oracle import HUGE, forward

GRID = list(itertools.product(range(1, 10), range(1, 6), range(1, 5), range(1, 3)))  # L, K, s, d


def sliding(length: int, w: Window, before: int, after: int, ceil: bool) -> list[int]:
    """The windows that lie inside the padded axis; in ceil mode also one more wherever some of it is left over."""
    padded = length + before + after
    starts = itertools.count(0, w.stride)
    if ceil:
        fitting = itertools.takewhile(lambda start: start - w.stride + w.extent < padded, starts)
    else:
        fitting = itertools.takewhile(lambda start: start + w.extent <= padded, starts)
    return [start - before for start in fitting]


def without_beyond(windows: list[int], length: int) -> list[int]:
    """Drop a last window that starts after the image."""
    return windows[:-1] if windows and windows[-1] >= length else windows


def check(convention: Callable[..., Placement], length: int, w: Window, expected: list[int], **options: Any) -> None:
    """Compare the first tap of every window of both axes, or require an error where no window fits."""
    sizes = {"input_size": (length, length), "kernel_size": w.kernel, "strides": w.stride}
    if w.dilation > 1:
        sizes["dilations"] = w.dilation
    if not expected:
        with pytest.raises(ShapeError, match=r"no window fits: an image of height"):
            convention(**sizes, **options)
        return
    placement = convention(**sizes, **options)
    for offset, outputs in zip(placement.offset, placement.output_size, strict=True):
        placed = Window(w.kernel, w.stride, w.dilation, offset)
        assert [placed.start(i) for i in range(outputs)] == expected, (sizes, options)


# --- definitions ------------------------------------------------------------------------------------------------------


def test_tensorflow() -> None:
    for length, *numbers in GRID:
        w = Window(*numbers)
        pad = max(w.extent - (length % w.stride or w.stride), 0)  # as TensorFlow's documentation states it
        same = [i * w.stride - pad // 2 for i in range(-(-length // w.stride))]
        check(padding.tensorflow, length, w, same)
        check(padding.tensorflow, length, w, sliding(length, w, 0, 0, ceil=False), padding="VALID")


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_pytorch(ceil_mode: bool) -> None:
    for length, *numbers in GRID:
        w = Window(*numbers)
        for pad in range(w.extent // 2 + 1):
            windows = sliding(length, w, pad, pad, ceil_mode)
            kept = without_beyond(windows, length) if ceil_mode else windows
            check(padding.pytorch, length, w, kept, padding=pad, ceil_mode=ceil_mode)


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_onnx_explicit_pads(ceil_mode: bool) -> None:
    for (length, *numbers), before, after in itertools.product(GRID, range(3), range(3)):
        w = Window(*numbers)
        windows = sliding(length, w, before, after, ceil_mode)
        kept = without_beyond(windows, length) if ceil_mode else windows
        check(padding.onnx, length, w, kept, pads=(before, before, after, after), ceil_mode=ceil_mode)


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_onnx_auto_pad(ceil_mode: bool) -> None:
    """Ceil mode has no say here, and neither have explicit pads."""
    options = {"ceil_mode": ceil_mode, "pads": (1, 2, 3, 4)}
    for length, *numbers in GRID:
        w = Window(*numbers)
        outputs = -(-length // w.stride)
        total = (outputs - 1) * w.stride + w.extent - length
        for auto_pad, odd in (("SAME_UPPER", 0), ("SAME_LOWER", 1)):
            before = int((total + odd) / 2)  # rounds toward zero
            same = [i * w.stride - before for i in range(outputs)]
            check(padding.onnx, length, w, same, auto_pad=auto_pad, **options)
        check(padding.onnx, length, w, sliding(length, w, 0, 0, ceil=False), auto_pad="VALID", **options)


def test_caffe() -> None:
    for length, *numbers in GRID:
        w = Window(*numbers)
        if w.dilation == 1:
            check(padding.caffe, length, w, sliding(length, w, 0, 0, ceil=True))
            for pad in range(1, w.kernel):
                check(
                    padding.caffe, length, w, without_beyond(sliding(length, w, pad, pad, ceil=True), length), pad=pad
                )


# --- what differs between them ----------------------------------------------------------------------------------------


def test_caffe_keeps_a_last_window_beyond_an_image_without_padding() -> None:
    assert padding.caffe(5, 1, 3).output_size == (3, 3)
    assert padding.pytorch(5, 1, 3, ceil_mode=True).output_size == (2, 2)
    assert padding.caffe(5, (1, 2), 3, pad=(0, 1)).output_size == (2, 2), "padding of one axis drops it on both"


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        (padding.tensorflow((7, 8), (2, 3)), ((1, 0), (7, 8), "clamp", (0, 0))),
        (padding.pytorch((7, 8), (2, 3)), ((1, 1), (3, 2), "clamp", (0, 0))),
        (padding.pytorch((7, 8), (2, 3), 1, (1, 0)), ((0, 1), (8, 6), "clamp", (1, 0))),
        (padding.pytorch((7, 8), (2, 3), 1, (1, 0), count_include_pad=False), ((0, 1), (8, 6), "clamp", (0, 0))),
        (padding.onnx((7, 8), (2, 3), pads=(1, 0, 0, 1)), ((0, 1), (7, 7), "clamp", (0, 0))),
        (padding.onnx((7, 8), (2, 3), pads=(1, 0, 0, 1), count_include_pad=True), ((0, 1), (7, 7), "zero", (0, 0))),
        (
            padding.onnx((7, 8), 3, 2, (1, 0, 1, 0), ceil_mode=True, count_include_pad=True),
            ((0, 1), (4, 4), "clamp", (1, 0)),
        ),
        (padding.onnx((7, 8), (2, 3)), ((1, 1), (6, 6), "clamp", (0, 0))),
        (padding.onnx((7, 8), (2, 3), auto_pad="SAME_LOWER"), ((0, 0), (7, 8), "clamp", (0, 0))),
        (padding.caffe((7, 8), (2, 3)), ((1, 1), (6, 6), "clamp", (0, 0))),
        (padding.mps((7, 8), (2, 3)), Placement((0, 0), (7, 8))),
        (padding.caffe((7, 8), (2, 3), 2, (1, 0)), ((0, 1), (4, 4), "clamp", (1, 0))),
    ],
)
def test_axes_strides_and_counting(placement: Placement, expected: tuple[Any, ...]) -> None:
    assert placement == expected
    assert all(type(number) is int for pair in (placement.offset, placement.output_size) for number in pair)


def test_huge_sizes_are_exact() -> None:
    assert padding.pytorch(HUGE, 3, 2, 1).output_size == (HUGE // 2, HUGE // 2)
    assert padding.tensorflow(HUGE - 1, 3, 2).output_size == (HUGE // 2, HUGE // 2)
    assert padding.onnx(HUGE - 1, 3, 2, auto_pad="SAME_LOWER").offset == (0, 0)


def test_numpy_integers_come_out_as_plain_ones() -> None:
    placement = padding.pytorch(np.array([7, 8]), np.int64(3), np.uint8(2), np.int16(1))
    assert placement == ((0, 0), (4, 4), "clamp", (1, 1))
    assert type(placement.output_size[0]) is type(placement.offset[0]) is type(placement.zero_pad_size[0]) is int


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: padding.tensorflow(5, 3, padding="same"), ValueError, r"padding is 'same'.*'SAME', 'VALID'"),
        (lambda: padding.tensorflow(5, 3, padding=1), TypeError, r"padding is 1 .*must be a str"),  # type: ignore[arg-type]
        (lambda: padding.onnx(5, 3, auto_pad="SAME"), ValueError, r"auto_pad is 'SAME'.*'NOTSET', 'SAME_UPPER'"),
        (lambda: padding.onnx(5, 3, pads=(1, 1)), ValueError, r"pads is \(1, 1\).*\(top, left, bottom, right\)"),
        (lambda: padding.onnx(5, 3, pads=(0, 0, -1, 0)), ValueError, r"pads\[2\] is -1.*integer >= 0"),
        (lambda: padding.onnx(5, 3, pads=(0, True, 0, 0)), TypeError, r"pads\[1\] is the bool True"),
        (lambda: padding.pytorch(5, 3, padding=-1), ValueError, r"padding is -1.*integer >= 0"),
        (lambda: padding.pytorch(5, 3, padding="same"), TypeError, r"padding is 'same'"),
        (lambda: padding.pytorch((5, 0), 3), ValueError, r"input_size\[1\] is 0.*integer >= 1"),
        (lambda: padding.pytorch(5, (3, 0)), ValueError, r"kernel_size\[1\] is 0.*integer >= 1"),
        (lambda: padding.pytorch(5, 3, 0), ValueError, r"strides is 0.*integer >= 1"),
        (lambda: padding.pytorch(5, 3, dilations=1.0), TypeError, r"dilations is 1.0.*integer >= 1"),
        (lambda: padding.caffe(5, 3, pad=-1), ValueError, r"pad is -1.*integer >= 0"),
        (lambda: padding.mps(5, 3, strides=-2), ValueError, r"strides is -2.*integer >= 1"),
        (lambda: padding.tensorflow((9, 2), 3, padding="VALID"), ShapeError, r"width 2 has 0 outputs.*larger image"),
    ],
)
def test_errors_name_the_parameter_its_value_and_what_is_legal(
    call: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()


def test_counted_one_sided_padding_in_ceil_mode_cannot_be_said() -> None:
    with pytest.raises(UnsupportedError, match=r"pads is \(1, 0, 0, 0\).*pad the image explicitly"):
        padding.onnx(5, 2, pads=(1, 0, 0, 0), ceil_mode=True, count_include_pad=True)
    assert padding.onnx(5, 2, pads=(1, 0, 0, 0), ceil_mode=True).edge_mode == "clamp"


# --- PyTorch itself ---------------------------------------------------------------------------------------------------


def pool(x: np.ndarray[Any, Any], kernel: tuple[int, int], strides: tuple[int, int], placement: Placement) -> Any:
    """Average pooling of a plane, from a placement and the windows under test."""
    ys, xs = (Window(k, s, 1, o) for k, s, o in zip(kernel, strides, placement.offset, strict=True))
    (height, width), (ring_y, ring_x), mode = x.shape, placement.zero_pad_size, placement.edge_mode
    y = np.empty(placement.output_size)
    for a, b in np.ndindex(y.shape):
        n = ys.divisor(a, height, mode, ring_y) * xs.divisor(b, width, mode, ring_x)
        y[a, b] = x[ys.inside(a, height), xs.inside(b, width)].sum() / n
    return y


def torch_problems() -> Iterator[tuple[tuple[int, int], ...]]:
    """Size, kernel, strides, padding; the two axes always differ."""
    for length, kernel, stride in itertools.product(range(1, 8), range(1, 6), range(1, 5)):
        for pad in range(kernel // 2 + 1):
            yield (length, length + 2), (kernel, kernel % 3 + 1), (stride, stride % 2 + 1), (pad, (kernel % 3 + 1) // 2)


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("count_include_pad", [False, True])
def test_average_pooling_of_pytorch(ceil_mode: bool, count_include_pad: bool) -> None:
    torch = pytest.importorskip("torch")
    compared = 0
    for size, kernel, strides, pad in torch_problems():
        x = np.arange(1.0, size[0] * size[1] + 1).reshape(size) ** 2
        tensor = torch.from_numpy(x)[None, None]
        options = {"ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
        try:
            wanted = torch.nn.functional.avg_pool2d(tensor, kernel, strides, pad, **options)[0, 0].numpy()
        except RuntimeError:
            with pytest.raises(ShapeError):
                padding.pytorch(size, kernel, strides, pad, **options)
            continue
        placement = padding.pytorch(size, kernel, strides, pad, **options)
        assert placement.output_size == wanted.shape
        np.testing.assert_allclose(pool(x, kernel, strides, placement), wanted, rtol=1e-12)
        compared += 1
    assert compared > 150


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_max_pooling_of_pytorch_with_dilation(ceil_mode: bool) -> None:
    torch = pytest.importorskip("torch")
    for length, kernel, stride, dilation in GRID:
        for pad in range(kernel // 2 + 1):
            x = torch.arange(float(length)).reshape(1, 1, length).expand(1, length, length)
            arguments = (kernel, stride, pad, dilation)
            try:
                wanted = torch.nn.functional.max_pool2d(x, *arguments, ceil_mode=ceil_mode)[0]
            except RuntimeError:
                with pytest.raises(ShapeError):
                    padding.pytorch((length, length), *arguments, ceil_mode=ceil_mode)
                continue
            placement = padding.pytorch((length, length), *arguments, ceil_mode=ceil_mode)
            assert placement.output_size == wanted.shape
            w = Window(kernel, stride, dilation, placement.offset[1])
            insides = (w.inside(i, length) for i in range(placement.output_size[1]))
            assert wanted[0].tolist() == [max(range(length)[inside], default=-math.inf) for inside in insides]


def test_convolution_of_pytorch_and_its_gradient() -> None:
    torch = pytest.importorskip("torch")
    for length, kernel, stride, dilation in GRID:
        weights, x = [3, -7, 11, 2, -5][:kernel], [(7 * j) % 10 + 1 for j in range(length)]
        for pad in range(3):
            if length + 2 * pad < (kernel - 1) * dilation + 1:
                continue
            source = torch.tensor(x, dtype=torch.float64).reshape(1, 1, -1).requires_grad_()
            filters = torch.tensor(weights, dtype=torch.float64).reshape(1, 1, -1)
            y = torch.nn.functional.conv1d(source, filters, stride=stride, padding=pad, dilation=dilation)
            placement = padding.pytorch((length, length), kernel, stride, pad, dilation)
            w = Window(kernel, stride, dilation, placement.offset[1])
            outputs = placement.output_size[1]
            assert forward(w, weights, x, outputs) == y[0, 0].tolist()
            g = [2**i for i in range(outputs)]
            y.backward(torch.tensor(g, dtype=torch.float64).reshape(1, 1, -1))
            dx = [sum(weights[t] * g[i] for i, t in w.gather_set(j, outputs)) for j in range(length)]
            assert dx == source.grad[0, 0].tolist()
