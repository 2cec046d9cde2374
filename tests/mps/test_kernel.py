"""Base classes of kernels: properties and their legal values, copies, equality, repr, archives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mpsref
from mpsref import mps
from mpsref.mps import (
    MPSImageEdgeMode,
    MPSNNDefaultPadding,
    MPSNNPaddingMethod,
    MPSOffset,
    MTLOrigin,
    MTLRegion,
    MTLSize,
)
from mpsref.mps.core.kernel import MPSKernel
from mpsref.mps.core.properties import properties_of
from tests.mps.fakes import NAMES, Difference, Shift, Sum

ZERO, CLAMP = MPSImageEdgeMode.Zero, MPSImageEdgeMode.Clamp
FULL = MPSNNDefaultPadding(MPSNNPaddingMethod.SizeFull)
REFERENCE = mpsref.registry.get_backend("reference")
CORNER = MTLRegion(MTLOrigin(5, 6, 7), MTLSize(2**31, 1, 1))


def as_they_are(*values: Any) -> list[tuple[Any, Any]]:
    return [(value, value) for value in values]


# For each kind of property: pairs of a value and the stored value, then illegal values.
OFFSETS = [
    ((-(2**40), 2**40, 3), MPSOffset(-(2**40), 2**40, 3)),
    ((1, 2), MPSOffset(1, 2)),
    ([3, 4, 0], MPSOffset(3, 4)),
]
BAD_OFFSETS = [(0, 0, -1), (1,), (1, 2, 3, 4), (1.0, 0), (True, 0), "xyz", 3, None]
CLIPS = [(None, None), (CORNER, CORNER), (((5, 6, 7), (2**31, 1, 1)), CORNER), *as_they_are(((0, 0, 0), (0, 0, 0)))]
BAD_CLIPS = [((-1, 0, 0), (1, 1, 1)), ((0, 0, 0), (1, -1, 1)), ((0, 0), (1, 1)), ((0, 0, 0),), (0, 0, 4, 4), 3]
EDGES = [(ZERO, ZERO), (CLAMP, CLAMP), (0, ZERO), (1, CLAMP), ("zero", ZERO), ("clamp", CLAMP)]
BAD_EDGES = [2, 3, 4, -1, MPSImageEdgeMode.Mirror, "mirror", "Clamp", None, True, 1.0]
FOURS = as_they_are(0, 4, 8, 2**20, np.int64(12))
BAD_FOURS = [-4, -1, 1, 2, 3, 5, 6, 4.0, True, None, "4"]
COUNTS = as_they_are(None, 1, 3, 2**40)
BAD_COUNTS = [0, -1, 2.0, False, "1"]
NATURALS = as_they_are(1, 2, 2**20)
BAD_NATURALS = [0, -1, 1.0, True, None, "1"]
PADDINGS = as_they_are(FULL, MPSNNDefaultPadding())
BAD_PADDINGS = [MPSNNPaddingMethod.SizeSame, 0x10, None, "same"]
BACKENDS = as_they_are(None, "reference", REFERENCE)
BAD_BACKENDS = ["no such backend", 3, True]

COMMON = {
    "backend": (None, BACKENDS, BAD_BACKENDS),
    "clip_rect": (None, CLIPS, BAD_CLIPS),
    "destination_feature_channel_offset": (0, FOURS, BAD_FOURS),
    "padding": (MPSNNDefaultPadding(MPSNNPaddingMethod.SizeSame), PADDINGS, BAD_PADDINGS),
}
ONE_SOURCE = {
    "offset": (MPSOffset(0, 0, 0), OFFSETS, BAD_OFFSETS),
    "edge_mode": (MPSImageEdgeMode.Zero, EDGES, BAD_EDGES),
    "source_feature_channel_offset": (0, FOURS, BAD_FOURS),
    "source_feature_channel_max_count": (None, COUNTS, BAD_COUNTS),
}
STRIDES = {f"stride_in_pixels_{axis}": (1, NATURALS, BAD_NATURALS) for axis in "xy"}
WINDOW = ("kernel_width", "kernel_height", "dilation_rate_x", "dilation_rate_y")

WRITABLE: list[tuple[MPSKernel, dict[str, Any]]] = [
    (Shift(), COMMON | ONE_SOURCE),
    (
        Difference(),
        COMMON | {f"{p}_{n}": v for p in ("primary", "secondary") for n, v in (ONE_SOURCE | STRIDES).items()},
    ),
]
CASES = [pytest.param(k, n, *v, id=f"{type(k).__name__}.{n}") for k, table in WRITABLE for n, v in table.items()]
READ_ONLY = [
    *((Shift(), name) for name in (*WINDOW, "stride_in_pixels_x", "stride_in_pixels_y", "is_backwards")),
    *((Difference(), f"{side}_{name}") for side in ("primary", "secondary") for name in WINDOW),
    (Sum(2), "source_count"),
]


@pytest.mark.parametrize(("kernel", "name", "default", "legal", "illegal"), CASES)
def test_every_property_has_its_default_and_its_legal_range(
    kernel: MPSKernel, name: str, default: Any, legal: list[tuple[Any, Any]], illegal: list[Any]
) -> None:
    kernel = kernel.copy()
    assert getattr(kernel, name) == default
    for value, kept in legal:
        setattr(kernel, name, value)
        assert getattr(kernel, name) == kept
        assert getattr(type(kernel)(**{name: value}), name) == kept
    for bad in illegal:
        with pytest.raises((ValueError, TypeError), match=name):
            setattr(kernel, name, bad)
        with pytest.raises((ValueError, TypeError), match=name):
            type(kernel)(**{name: bad})
    assert getattr(kernel, name) == legal[-1][1]


def test_the_tables_above_name_every_property() -> None:
    for kernel, table in WRITABLE:
        writable = {name for name, one in properties_of(type(kernel)).items() if not one.read_only} - {"factor"}
        assert writable == {*table, "label"}


@pytest.mark.parametrize(("kernel", "name"), READ_ONLY, ids=lambda value: str(value)[:30])
def test_what_is_fixed_at_construction_cannot_be_set(kernel: MPSKernel, name: str) -> None:
    for error in (TypeError, AttributeError):
        with pytest.raises(error, match=f"{name} of .* is read-only"):
            setattr(kernel, name, getattr(kernel, name))
    if name != "source_count":
        with pytest.raises(TypeError, match=f"{name} is no property"):
            type(kernel)(**{name: 3})


KERNELS = [
    Shift(offset=(1, -2, 3), clip_rect=((1, 2, 0), (3, 4, 1)), factor=3, backend="reference"),
    Difference(primary_offset=(1, 1, 0), secondary_stride_in_pixels_x=2, secondary_edge_mode=1),
    Sum(2, offset=[(1, 0, 0), (0, 1, 0)], padding=MPSNNDefaultPadding(MPSNNPaddingMethod.SizeFull, "clamp")),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: type(k).__name__)
def test_repr_evaluates_back(kernel: MPSKernel) -> None:
    names = {**NAMES, "Shift": Shift, "Difference": Difference, "Sum": Sum}
    assert eval(repr(kernel), names) == kernel


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: type(k).__name__)
def test_archives_hold_everything_but_the_backend(kernel: MPSKernel) -> None:
    assert type(kernel).from_dict(kernel.to_dict(), backend=kernel.backend) == kernel
    text = kernel.to_json()
    assert type(kernel).from_json(text, backend=kernel.backend) == kernel
    assert type(kernel).from_json(text).to_json() == text
    assert "backend" not in text
    with pytest.raises(ValueError, match="unknown property"):
        type(kernel).from_json(text.replace('"clip_rect"', '"clip_rectangle"'))


@pytest.mark.parametrize(
    ("name", "default", "legal", "illegal"),
    [(name, *values) for name, values in (ONE_SOURCE | STRIDES).items()]
    + [(n, 1, NATURALS, BAD_NATURALS) for n in WINDOW],
)
def test_each_of_many_sources_has_every_property(
    name: str, default: Any, legal: list[tuple[Any, Any]], illegal: list[Any]
) -> None:
    kernel = Sum(2)
    get, put = getattr(kernel, f"{name}_at_index"), getattr(kernel, f"set_{name}")
    assert get(0) == get(1) == default
    value, kept = legal[-1]
    put(value, 1)
    assert (get(0), get(1)) == (default, kept)
    for bad in illegal:
        with pytest.raises((ValueError, TypeError), match=name):
            put(bad, 0)
    for index in (-1, 2):
        with pytest.raises(ValueError, match="index"):
            get(index)
        with pytest.raises(ValueError, match="index"):
            put(default, index)
    with pytest.raises(ValueError, match=f"{name} has 1 values"):
        setattr(kernel, name, (default,))
    with pytest.raises(TypeError, match=f"{name} is 7"):
        setattr(kernel, name, 7)
    assert (get(0), get(1)) == (default, kept)


def test_the_number_of_sources() -> None:
    for bad in (0, -1):
        with pytest.raises(ValueError, match="source_count"):
            Sum(bad)
    with pytest.raises(TypeError, match="source_count"):
        Sum(2.0)  # type: ignore[arg-type]


LABELLED = [mps.MPSCNNSoftMax(), mps.MPSImage(np.ones((1, 1, 1, 1), np.float32)), mps.MPSCNNNeuronReLU(0)]


@pytest.mark.parametrize("one", LABELLED, ids=lambda one: type(one).__name__)
def test_labels_are_strings(one: Any) -> None:
    assert one.label is None
    one.label = "first"
    with pytest.raises(TypeError, match="label is 3; it must be a string, or None"):
        one.label = 3
    assert one.label == "first"
    one.label = None


def test_a_convolution_has_the_label_of_its_data_source() -> None:
    source = mps.ArrayConvolutionDataSource(mps.MPSCNNConvolutionDescriptor(1, 1, 1, 1), [1], label="stem")
    assert mps.MPSCNNConvolution(source).label == "stem"
    assert mps.MPSCNNConvolution(source, label="other").label == "other"


def test_an_encode_keeps_attributes_of_a_kernel_of_the_user() -> None:
    class Counting(mps.MPSCNNPoolingMax):
        _encodes = 0

        def _infer_padding(self, sources: Any) -> Any:
            self._encodes += 1
            return super()._infer_padding(sources)

    kernel, x = Counting(1, 1), np.ones((1, 4, 4, 1), np.float32)
    for size in (4, 3):
        kernel.encode(x[:, :size, :size])
    assert kernel._encodes == 2
    with pytest.raises(TypeError, match="source_image"):
        kernel.encode(x.astype(int))
    assert kernel._encodes == 2
