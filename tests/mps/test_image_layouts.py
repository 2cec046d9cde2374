"""Every layout that the pixels of an image come from and go to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsref.arguments.arrays import Array
from mpsref.errors import ShapeError
from mpsref.mps.core.image import MPSImage, MPSImageDescriptor
from mpsref.mps.core.types import MPSDataLayout
from tests.mps.image_data import DTYPES, arrays, counted, same

HWC, CHW = MPSDataLayout.HeightxWidthxFeatureChannels, MPSDataLayout.FeatureChannelsxHeightxWidth


@given(arrays())
def test_batches_come_back(source: Array) -> None:
    assert same(MPSImage.from_nhwc(source).to_nhwc(), source)
    assert same(MPSImage.from_nchw(source).to_nchw(), source)
    assert same(MPSImage.from_nhwc(source).to_nchw(), source.transpose(0, 3, 1, 2).copy())
    assert same(MPSImage.from_nchw(source).to_nhwc(), source.transpose(0, 2, 3, 1).copy())


@given(arrays(st.tuples(*[st.integers(1, 6)] * 3)))
def test_single_images_come_back(source: Array) -> None:
    assert same(MPSImage.from_hwc(source).to_hwc(), source)
    assert same(MPSImage.from_chw(source).to_chw(), source)
    assert same(MPSImage.from_hwc(source).to_chw(), np.moveaxis(source, 2, 0).copy())
    assert same(MPSImage.from_chw(source).to_hwc(), np.moveaxis(source, 0, 2).copy())


def test_one_image_of_a_batch() -> None:
    source = counted(3, 2, 4, 5)
    image = MPSImage(source)
    for b in range(3):
        assert same(image.to_hwc(b), source[b])
        assert same(image.to_chw(np.int64(b)), source[b].transpose(2, 0, 1).copy())  # type: ignore[arg-type]
    for read in (image.to_hwc, image.to_chw, MPSImage(source[:0]).to_hwc):
        with pytest.raises(ShapeError, match=r"^<MPSImage: .*> is not one image; name an image_index"):
            read()


@pytest.mark.parametrize("index", [-1, 3, 2**40])
def test_an_index_outside_the_batch(index: int) -> None:
    image = MPSImage(counted(3, 2, 2, 2))
    calls = [
        lambda: image.to_hwc(index),
        lambda: image.to_chw(index),
        lambda: image.read_bytes(HWC, index),
        lambda: image.write_bytes(bytes(32), HWC, index),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=f"^image_index is {index}; it must be >= 0 and < number_of_images=3$"):
            call()
    for wrong in (True, 1.0, "0"):
        with pytest.raises(TypeError, match=r"^image_index is .*; it must be an integer$"):
            image.to_hwc(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("convert", ["to_nhwc", "to_nchw", "to_slices", "copy", "to_hwc", "to_chw"])
def test_what_an_image_gives_is_a_copy(convert: str) -> None:
    for shape in [(1, 2, 3, 4), (1, 1, 1, 4), (1, 4, 4, 1)]:
        image = MPSImage(counted(*shape))
        given_out = np.asarray(getattr(image, convert)())
        assert given_out.flags.c_contiguous
        assert not np.shares_memory(given_out, image.array)


@pytest.mark.parametrize("make", [MPSImage.from_nhwc, MPSImage.from_nchw, MPSImage.from_hwc, MPSImage.from_chw])
def test_what_an_image_is_made_from_is_not_shared(make: Any) -> None:
    source = counted(1, 1, 1, 4) if make in (MPSImage.from_nhwc, MPSImage.from_nchw) else counted(1, 1, 4)
    assert not np.shares_memory(make(source).array, source)
    slices = counted(1, 2, 2, 4)
    assert not np.shares_memory(MPSImage.from_slices(slices, 4).array, slices)


@given(arrays())
def test_slices(source: Array) -> None:
    n, height, width, channels = source.shape
    per_image = -(-channels // 4)
    image = MPSImage(source)
    slices = image.to_slices()
    assert slices.shape == (n * per_image, height, width, 4)
    assert slices.dtype == source.dtype
    padded = np.pad(source, [(0, 0)] * 3 + [(0, per_image * 4 - channels)])
    expected = padded.reshape(n, height, width, per_image, 4).transpose(0, 3, 1, 2, 4).reshape(slices.shape)
    assert same(slices, expected.copy())
    assert same(MPSImage.from_slices(slices, channels).array, source)


def test_channel_ch_of_image_b_is_component_ch_mod_4_of_its_slice() -> None:
    source = counted(2, 3, 4, 6)
    slices = MPSImage(source).to_slices()
    for b in range(2):
        for ch in range(6):
            assert np.array_equal(slices[b * 2 + ch // 4, :, :, ch % 4], source[b, :, :, ch])
    assert np.array_equal(slices[1::2, :, :, 2:], np.zeros((2, 3, 4, 2)))


def test_what_is_in_the_padding_components_does_not_matter() -> None:
    source = counted(2, 2, 2, 6)
    slices = MPSImage(source).to_slices()
    slices[1::2, :, :, 2:] = np.nan
    image = MPSImage.from_slices(slices, 6)
    assert same(image.array, source)
    assert np.isfinite(image.to_slices()).all()


@pytest.mark.parametrize(
    ("shape", "channels"),
    [((3, 2, 2, 4), 6), ((1, 2, 2, 4), 5), ((2, 2, 2, 3), 3), ((2, 2, 2, 8), 8), ((4, 2, 2, 4), 12)],
)
def test_slices_that_do_not_fit(shape: tuple[int, ...], channels: int) -> None:
    with pytest.raises(
        ShapeError, match=r"^slices has shape \(.*; with feature_channels=\d+ it must be \(N \* \d, H, W"
    ):
        MPSImage.from_slices(counted(*shape), channels)


def test_slices_need_a_number_of_channels() -> None:
    with pytest.raises(ShapeError, match=r"^feature_channels is 0; it must be from 1 to"):
        MPSImage.from_slices(counted(1, 2, 2, 4), 0)
    with pytest.raises(TypeError, match=r"^feature_channels is 4.0 .*; it must be an integer$"):
        MPSImage.from_slices(counted(1, 2, 2, 4), 4.0)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"^slices has shape .* of rank 3"):
        MPSImage.from_slices(counted(2, 2, 4), 4)


@given(arrays(st.tuples(st.integers(1, 3), *[st.integers(1, 4)] * 3)), st.sampled_from(MPSDataLayout), st.data())
def test_bytes_come_back(source: Array, layout: MPSDataLayout, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(source) - 1))
    image = MPSImage(source)
    raw = image.read_bytes(layout, index)
    plain = source[index] if layout is HWC else source[index].transpose(2, 0, 1)
    assert raw == plain.tobytes()
    other = MPSImage(image.descriptor)
    other.write_bytes(raw, layout, index)
    expected = np.zeros_like(source)
    expected[index] = source[index]
    assert same(other.array, expected)


def test_layouts_by_number_and_name() -> None:
    image = MPSImage(counted(1, 2, 3, 4))
    assert image.read_bytes("heightxwidthxfeaturechannels", 0) == image.read_bytes(0, 0) == image.read_bytes(HWC, 0)
    assert image.read_bytes("featurechannelsxheightxwidth", 0) == image.read_bytes(1, 0) == image.read_bytes(CHW, 0)
    assert image.read_bytes(0, 0) != image.read_bytes(1, 0)
    with pytest.raises(ValueError, match=r"^data_layout is 2; it must be one of"):
        image.read_bytes(2, 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_buffers_that_can_be_written(dtype: Any) -> None:
    source = counted(1, 2, 3, 4, dtype=dtype)
    strided = np.repeat(source, 2, axis=3)[0, :, :, ::2]
    for data in (source.tobytes(), bytearray(source.tobytes()), memoryview(source), source[0], strided, source.ravel()):
        image = MPSImage(MPSImageDescriptor(MPSImage(source).feature_channel_format, 3, 2, 4))
        image.write_bytes(data, HWC, 0)
        assert same(image.array, source)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (bytes(95), ShapeError, r"^data has 95 bytes; one image of <MPSImage: .*> has 96$"),
        (bytes(192), ShapeError, r"^data has 192 bytes; one image of <MPSImage: .*> has 96$"),
        (b"", ShapeError, r"^data has 0 bytes"),
        (np.zeros((2, 3, 2)), TypeError, r"^data is a buffer of format 'd'; it must hold bytes or float32$"),
        (np.zeros((2, 3, 8), np.float16), TypeError, r"^data is a buffer of format 'e'"),
        (np.zeros((2, 3, 4), np.int32), TypeError, r"^data is a buffer of format 'i'"),
        (np.zeros((2, 3, 4), ">f4"), TypeError, r"^data is a buffer of format '>f'"),
        ([0.0] * 24, TypeError, r"^data is of type list; it must be bytes or a buffer of them$"),
        ("x" * 96, TypeError, r"^data is of type str"),
        (np.zeros(12, "M8[s]"), TypeError, r"^data is of type ndarray"),
    ],
)
def test_buffers_that_cannot_be_written(data: Any, error: type[Exception], message: str) -> None:
    image = MPSImage(counted(2, 2, 3, 4))
    with pytest.raises(error, match=message):
        image.write_bytes(data, HWC, 0)
    assert same(image.array, counted(2, 2, 3, 4))
