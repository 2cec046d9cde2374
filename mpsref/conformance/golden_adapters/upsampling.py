"""Published results of upsampling and resize."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mpsref.conformance.golden_entries import Adapter, Comparison, Entry, Values
from mpsref.kernels import ResizeBilinear, UpsamplingBilinear, UpsamplingNearest
from mpsref.registry import Backend


def _scale(entry: Entry) -> tuple[int, int]:
    return entry.parameters["integer_scale_factor_y"], entry.parameters["integer_scale_factor_x"]


def nearest(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Run an entry of nearest upsampling; its relation is to pixels that are repeated."""
    up = UpsamplingNearest(_scale(entry))
    if entry.kind != "relation":
        yield Comparison("y", up.forward(entry.image("x"), backend=backend), entry.expected["y"])
        return
    sy, sx = up.factors
    for case, draw in entry.cases():
        x = draw((case["n"], case["h"], case["w"], case["c"])).astype(entry.dtype or "float32")
        expected = x.repeat(sy, 1).repeat(sx, 2).astype(np.float64)
        got = up.forward(x, backend=backend)
        yield Comparison(f"{x.shape}: y", got, Values.all_given(expected))


def bilinear(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Run an entry of bilinear upsampling."""
    options = {name: entry.parameters[name] for name in ("align_corners", "edge_mode") if name in entry.parameters}
    y = UpsamplingBilinear(_scale(entry), **options).forward(entry.image("x"), backend=backend)
    yield Comparison("y", y, entry.expected["y"])


def resize(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Run an entry of which one corner is known: an aligned result begins with the first pixel of the source."""
    words = entry.parameters
    spec = ResizeBilinear((words["resize_height"], words["resize_width"]), words["align_corners"])
    x: Any = np.zeros((1, 65, 65, 1), entry.dtype or "float32")
    x[0, 0, 0] = entry.inputs["x00"].array
    yield Comparison("y00", spec.forward(x, backend=backend)[0, 0, 0], entry.expected["y00"])


ADAPTERS: dict[str, Adapter] = {
    "MPSCNNUpsamplingBilinear": bilinear,
    "MPSCNNUpsamplingBilinearNode": bilinear,
    "MPSCNNUpsamplingNearest": nearest,
    "MPSNNResizeBilinear": resize,
}
"""By MPS class."""
