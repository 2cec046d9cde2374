"""Base classes of kernels: properties and their legal values, copies, equality, repr, archives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import mps
from tests.mps.fakes import NAMES, Difference, Shift, Sum

WINDOW = ("kernel_width", "kernel_height", "dilation_rate_x", "dilation_rate_y")
READ_ONLY = [
    *((Shift(), name) for name in (*WINDOW, "stride_in_pixels_x", "stride_in_pixels_y", "is_backwards")),
    *((Difference(), f"{side}_{name}") for side in ("primary", "secondary") for name in WINDOW),
    (Sum(2), "source_count"),
]


@pytest.mark.parametrize(("kernel", "name"), READ_ONLY, ids=lambda value: str(value)[:30])
def test_what_is_fixed_at_construction_cannot_be_set(kernel: mps.MPSKernel, name: str) -> None:
    for error in (TypeError, AttributeError):
        with pytest.raises(error, match=f"{name} of .* is read-only"):
            setattr(kernel, name, getattr(kernel, name))
    if name != "source_count":
        with pytest.raises(TypeError, match=f"{name} is no property"):
            type(kernel)(**{name: 3})


KERNELS = [
    Shift(offset=(1, -2, 3), clip_rect=((1, 2, 0), (3, 4, 1)), factor=3, backend="reference"),
    Difference(primary_offset=(1, 1, 0), secondary_stride_in_pixels_x=2, secondary_edge_mode=1),
    Sum(2, offset=[(1, 0, 0), (0, 1, 0)], padding=mps.MPSNNDefaultPadding(mps.MPSNNPaddingMethod.SizeFull, "clamp")),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: type(k).__name__)
def test_repr_evaluates_back(kernel: mps.MPSKernel) -> None:
    names = {**NAMES, "Shift": Shift, "Difference": Difference, "Sum": Sum}
    assert eval(repr(kernel), names) == kernel


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: type(k).__name__)
def test_archives_hold_everything_but_the_backend(kernel: mps.MPSKernel) -> None:
    assert type(kernel).from_dict(kernel.to_dict(), backend=kernel.backend) == kernel
    text = kernel.to_json()
    assert type(kernel).from_json(text, backend=kernel.backend) == kernel
    assert type(kernel).from_json(text).to_json() == text
    assert "backend" not in text
    with pytest.raises(ValueError, match="unknown property"):
        type(kernel).from_json(text.replace('"clip_rect"', '"clip_rectangle"'))


OF_EACH_SOURCE: dict[str, tuple[Any, Any, Any]] = {
    "offset": ((0, 0, 0), (1, 2, 3), (0, 0, -1)),
    "edge_mode": (mps.MPSImageEdgeMode.Zero, mps.MPSImageEdgeMode.Clamp, "mirror"),
    "source_feature_channel_offset": (0, 12, 6),
    "source_feature_channel_max_count": (None, 3, 0),
    **dict.fromkeys(("stride_in_pixels_x", "stride_in_pixels_y", *WINDOW), (1, 2, 0)),
}


@pytest.mark.parametrize("name", OF_EACH_SOURCE)
def test_each_of_many_sources_has_every_property(name: str) -> None:
    kernel, (default, value, bad) = Sum(2), OF_EACH_SOURCE[name]
    get, put = getattr(kernel, f"{name}_at_index"), getattr(kernel, f"set_{name}")
    assert get(0) == get(1) == default
    put(value, 1)
    assert (get(0), get(1)) == (default, value)
    with pytest.raises(ValueError, match=name):
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
    assert (get(0), get(1)) == (default, value)


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
