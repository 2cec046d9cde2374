"""The adapters of the pooling classes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mpsref import padding
from mpsref.arguments.arrays import Array
from mpsref.arguments.parameters import Pair
from mpsref.conformance.golden_entries import Adapter, Comparison, Entry, Values
from mpsref.kernels import PoolingAverage, PoolingMax
from mpsref.kernels.pooling import Pooling
from mpsref.registry import Backend


def pooling(spec_type: type[Pooling], on_the_cpu: Callable[..., Array]) -> Adapter:
    """Return the adapter of a pooling class, forward.

    Its relations are to CPU pooling, which applies ``on_the_cpu``, NumPy's mean or max, to the pixels of each window
    that lie inside the image.
    """

    def adapter(entry: Entry, backend: Backend) -> Iterator[Comparison]:
        if entry.kind != "relation":
            parameters = dict(entry.parameters)
            output_size = parameters.pop("output_size")
            y = spec_type(**parameters).forward(entry.image("x"), output_size, backend=backend)
            yield Comparison("y", y, entry.expected["y"])
            return
        for kernel, strides, pads, x in pooling_cases(entry):
            placed = padding.onnx(x.shape[1:3], kernel, strides, pads)
            placement: dict[str, Any] = {"offset": placed.offset, **entry.parameters}
            pool = spec_type(kernel, strides, **placement)
            y = pool.forward(x.astype(entry.dtype or "float32"), placed.output_size, backend=backend)
            expected = over_windows(on_the_cpu, x, kernel, strides, pads)
            yield Comparison(f"{pool}, pads {pads}: y", y, Values.all_given(expected))

    return adapter


def pooling_cases(entry: Entry) -> Iterator[tuple[Pair, Pair, list[int], Array]]:
    """Draw kernel, strides, pads (top, left, bottom, right), and an image in float64.

    Where the source names no image size, it is 8 x 12 with 4 channels.
    """
    for case, draw in entry.cases():
        if "configuration" in case:
            yield (*_in_words_of_pytorch(case["configuration"]), draw(case["configuration"]["shape"]))
            continue
        size = case.get("h", 8), case.get("w", 12)
        stride = case.get("stride", 1)
        strides = case.get("stride_y", stride), case.get("stride_x", stride)
        if case["kernel"] == "image":
            kernel, pads = size, [0, 0, 0, 0]
        else:
            kernel = case["kernel"], case["kernel"]
            sides = [case.get(f"pad_{side}", "none") for side in ("top", "left", "bottom", "right")]
            pads = [{"none": 0, "half": case["kernel"] // 2}[side] for side in sides]
        yield kernel, strides, pads, draw((case.get("n", 1), *size, case.get("c", 4)))


def _in_words_of_pytorch(words: dict[str, Any]) -> tuple[Pair, Pair, list[int]]:
    """Return kernel, strides and pads; to round sizes up is to leave room for another window at the end.

    (PyTorch then drops a window that starts in the padding at the end. No published configuration has one.)
    """
    kernel, stride, pad = words["kernel"], words["stride"], words["pad"]
    end = pad + (stride - 1 if words["ceil_mode"] else 0)
    return (kernel, kernel), (stride, stride), [pad, pad, end, end]


def over_windows(function: Callable[..., Array], x: Array, kernel: Pair, strides: Pair, pads: list[int]) -> Array:
    """Walk as CPU frameworks do: from the padding on, over what lies inside, while the window fits."""
    spans = []
    for axis in (0, 1):
        last = x.shape[1 + axis] + pads[2 + axis] - kernel[axis]
        starts = range(-pads[axis], last + 1, strides[axis])
        spans.append([slice(max(start, 0), start + kernel[axis]) for start in starts])
    rows, columns = spans
    return np.stack([np.stack([function(x[:, r, c], axis=(1, 2)) for c in columns], 1) for r in rows], 1)


ADAPTERS: dict[str, Adapter] = {
    "MPSCNNPoolingAverage": pooling(PoolingAverage, np.mean),
    "MPSCNNPoolingMax": pooling(PoolingMax, np.max),
}
