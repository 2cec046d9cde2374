"""Images, their descriptors and layouts, and batches of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mpsref.arguments.arrays import AXIS_LIMIT, Array
from mpsref.errors import ShapeError
from mpsref.mps.core.image import MPSImage, MPSImageBatch, MPSImageDescriptor, MPSTemporaryImage, pixels
from mpsref.mps.core.properties import PropertyError
from mpsref.mps.core.types import MPSDataLayout, MPSImageFeatureChannelFormat

DTYPES = [np.float16, np.float32]
SHAPES = st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(1, 4), st.integers(1, 10))


def arrays(shapes: st.SearchStrategy[tuple[int, ...]] = SHAPES) -> st.SearchStrategy[Array]:
    """Arrays of arbitrary bits, including NaN and infinities."""
    dtypes = st.sampled_from(DTYPES)
    return dtypes.flatmap(lambda dtype: hnp.arrays(dtype, shapes))


def counted(*shape: int, dtype: Any = np.float32) -> Array:
    """Return an array of distinct numbers, so that a transposition changes it."""
    return np.arange(1, 1 + np.prod(shape), dtype=dtype).reshape(shape)


def same(a: Array, b: Array) -> bool:
    """Return whether both have the same shape, dtype and bits."""
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


# --- descriptors ------------------------------------------------------------------------------------------------------

Float16, Float32 = MPSImageFeatureChannelFormat.Float16, MPSImageFeatureChannelFormat.Float32


def test_a_descriptor_has_the_properties_of_apple() -> None:
    descriptor = MPSImageDescriptor("float16", 4, 3, 8)
    assert descriptor == MPSImageDescriptor.image_descriptor_with_channel_format_width_height_feature_channels(
        Float16, 4, 3, 8
    )
    assert (descriptor.width, descriptor.height, descriptor.feature_channels) == (4, 3, 8)
    assert descriptor.channel_format is Float16
    assert descriptor.number_of_images == 1
    assert descriptor.dtype == np.float16
    assert descriptor.shape == (1, 3, 4, 8)


def test_a_descriptor_can_be_changed() -> None:
    descriptor = MPSImageDescriptor(Float32, 4, 3, 8)
    descriptor.width, descriptor.channel_format = 7, 3  # type: ignore[assignment]
    assert descriptor == MPSImageDescriptor(Float16, 7, 3, 8)
    assert descriptor.channel_format is Float16
    for name in ("widht", "dtype", "shape"):
        with pytest.raises(PropertyError, match=rf"^MPSImageDescriptor has no property '{name}'; .* channel_format"):
            setattr(descriptor, name, 1)


# --- images -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("word", "dtype"), [("none", np.float32), ("float16", np.float16), ("float32", np.float32)])
def test_an_image_from_a_descriptor_is_zeros(word: Any, dtype: Any) -> None:
    image = MPSImage(MPSImageDescriptor(word, width=4, height=3, feature_channels=5, number_of_images=2))
    assert same(image.array, np.zeros((2, 3, 4, 5), dtype))


def test_an_image_that_no_machine_can_hold() -> None:
    with pytest.raises(ShapeError, match=r"^the image would have shape .* cannot be allocated"):
        MPSImage(MPSImageDescriptor(Float32, AXIS_LIMIT, AXIS_LIMIT, AXIS_LIMIT))


@pytest.mark.parametrize("dtype", DTYPES)
def test_properties_of_an_image(dtype: Any) -> None:
    image = MPSImage(counted(2, 3, 4, 5, dtype=dtype))
    assert (image.number_of_images, image.height, image.width, image.feature_channels) == (2, 3, 4, 5)
    assert image.dtype == dtype
    assert image.feature_channel_format is (Float16 if dtype is np.float16 else Float32)
    assert image.descriptor == MPSImageDescriptor(image.feature_channel_format, 4, 3, 5, 2)
    assert MPSImage(image.descriptor).array.shape == image.array.shape


def test_an_image_says_what_it_is() -> None:
    text = "<MPSImage: number_of_images=2, height=3, width=4, feature_channels=5, Float32>"
    assert repr(MPSImage(counted(2, 3, 4, 5))) == text
    assert repr(MPSTemporaryImage(counted(2, 3, 4, 5))) == text.replace("MPSImage", "MPSTemporaryImage")


def test_the_array_is_live_and_that_of_the_caller_is_not() -> None:
    source = counted(1, 2, 3, 4)
    image = MPSImage(source)
    image.array[0, 1, 2, 3] = -1
    assert image.to_nhwc()[0, 1, 2, 3] == -1
    assert same(source, counted(1, 2, 3, 4))
    source[:] = 0
    assert image.array[0, 0, 0, 0] == 1


def test_an_image_on_the_callers_array() -> None:
    source = counted(1, 2, 3, 4)
    assert MPSImage(source, copy=False).array is source
    view = counted(4, 6, 8, 2)[::2, ::3, ::-1]
    assert np.shares_memory(MPSImage(view, copy=False).array, view)
    for other in (source.tolist(), source.astype(">f4"), MPSImage(source)):
        with pytest.raises((ValueError, TypeError), match=r"^array "):
            MPSImage(other, copy=False)


@pytest.mark.parametrize(
    "source",
    [
        counted(2, 3, 4, 5).astype(">f4"),
        counted(2, 5, 4, 3).transpose(0, 3, 2, 1),
        counted(4, 6, 8, 10)[::2, ::-2, 1::2, ::2],
        np.broadcast_to(counted(1, 1, 1, 5), (2, 3, 4, 5)),
    ],
)
def test_arrays_of_any_layout(source: Array) -> None:
    image = MPSImage(source)
    assert np.array_equal(image.array, source)
    assert image.array.flags.c_contiguous
    assert image.array.flags.writeable
    assert image.array.dtype.isnative


def test_other_array_libraries() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    tensor = torch.arange(24, dtype=torch.float32).reshape(1, 2, 3, 4)
    assert np.array_equal(MPSImage(tensor).array, tensor.numpy())


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.uint8, bool, np.complex64, object])
def test_other_dtypes_are_refused(dtype: Any) -> None:
    source = np.ones((1, 2, 3, 4), dtype)
    makers = [MPSImage, MPSImage.from_nhwc, MPSImage.from_nchw, MPSImageBatch.from_array]
    for make in makers:
        with pytest.raises(TypeError, match=r"^array has dtype .*float16 (or|and) float32|float32 or float16"):
            make(source)
    for make in (MPSImage.from_hwc, MPSImage.from_chw):
        with pytest.raises(TypeError, match=r"^array has dtype"):
            make(source[0])
    with pytest.raises(TypeError, match=r"^slices has dtype|^array has dtype"):
        MPSImage.from_slices(source, 4)
    with pytest.raises(TypeError, match=r"^x has dtype"):
        pixels("x", source)


@pytest.mark.parametrize(
    "shape", [(), (4,), (3, 4), (2, 3, 4), (1, 1, 2, 3, 4), (1, 0, 3, 4), (1, 2, 0, 4), (1, 2, 3, 0)]
)
def test_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    source = np.ones(shape, np.float32)
    for make in (MPSImage, MPSImage.from_nhwc, MPSImage.from_nchw, MPSImageBatch.from_array):
        with pytest.raises(ShapeError, match=r"^array has shape \("):
            make(source)
    if len(shape) != 3:
        for make in (MPSImage.from_hwc, MPSImage.from_chw):
            with pytest.raises(ShapeError, match=r"^array has shape \(.*it must have rank 3, "):
                make(source)


def test_a_masked_array_has_no_meaning() -> None:
    masked = np.ma.masked_array(counted(1, 2, 3, 4), mask=True)
    for make, source in [(MPSImage, masked), (MPSImage.from_nchw, masked), (MPSImage.from_chw, masked[0])]:
        with pytest.raises(TypeError, match=r"^array is a masked array"):
            make(source)  # type: ignore[operator]


def test_an_image_is_an_array_to_numpy() -> None:
    image = MPSImage(counted(1, 2, 3, 4))
    assert np.asarray(image) is image.array
    assert not np.shares_memory(np.array(image), image.array)
    assert np.asarray(image, np.float64).dtype == np.float64
    assert np.add(image, 1).shape == (1, 2, 3, 4)


def test_equality() -> None:
    image = MPSImage(counted(1, 2, 3, 4))
    assert image == MPSImage(counted(1, 2, 3, 4))
    assert image != MPSImage(counted(1, 2, 3, 4, dtype=np.float16))
    assert image != MPSImage(counted(1, 3, 2, 4))
    assert image != counted(1, 2, 3, 4).tolist()
    assert image != 3
    image.array[0, 0, 0, 0] = np.nan
    assert image == image.copy()
    with pytest.raises(TypeError, match="unhashable"):
        hash(image)


# --- batches ----------------------------------------------------------------------------------------------------------


@given(arrays(st.tuples(st.integers(1, 4), *[st.integers(1, 4)] * 3)))
def test_a_batch_is_an_array_and_back(source: Array) -> None:
    batch = MPSImageBatch.from_array(source)
    assert [image.array.shape for image in batch] == [(1, *source.shape[1:])] * len(source)
    assert same(batch.to_array(), source)
    assert same(np.asarray(batch), source)
    assert same(MPSImageBatch([MPSImage(image.array) for image in batch]).to_array(), source)


def test_a_batch_is_written_through_its_images() -> None:
    singles = [MPSImage(np.zeros((1, 2, 3, 4), np.float32)) for _ in range(3)]
    batch = MPSImageBatch(singles)
    batch.write_array(counted(3, 2, 3, 4))
    assert [image.array[0, 0, 0, 0] for image in singles] == [1, 25, 49]
    assert same(batch.to_array(), counted(3, 2, 3, 4))
    for wrong, error in [
        (counted(2, 2, 3, 4), ShapeError),
        (counted(3, 2, 4, 3), ShapeError),
        (counted(3, 2, 3, 4, dtype=np.float16), TypeError),
        (3, TypeError),
    ]:
        with pytest.raises(error, match=r"^array has "):
            batch.write_array(wrong)
    assert same(batch.to_array(), counted(3, 2, 3, 4))


def test_a_batch_on_the_callers_array() -> None:
    source = counted(2, 2, 3, 4)
    batch = MPSImageBatch.from_array(source, copy=False)
    assert all(np.shares_memory(image.array, source) for image in batch)
    batch[1].array[:] = 0
    assert source[1].max() == 0
    assert source[0].min() == 1
    kept = MPSImageBatch.from_array(source)
    assert not any(np.shares_memory(image.array, source) for image in kept)


def test_what_a_batch_gives_is_a_copy() -> None:
    batch = MPSImageBatch.from_array(counted(1, 2, 3, 4))
    assert not np.shares_memory(batch.to_array(), batch[0].array)
    assert np.asarray(batch, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match=r"^a batch is not one array"):
        batch.__array__(copy=False)


@pytest.mark.parametrize(
    ("members", "error", "message"),
    [
        ([], ShapeError, r"^a batch must hold at least one image; it is empty$"),
        (
            [MPSImage(counted(1, 2, 2, 1)), 3],
            TypeError,
            r"^image 1 of the batch is of type int; it must be an MPSImage$",
        ),
        ([counted(1, 2, 2, 1)], TypeError, r"^image 0 of the batch is of type ndarray"),
        ([MPSImage(counted(2, 2, 2, 1))], ShapeError, r"^image 0 of the batch is .*; its number_of_images must be 1$"),
        (
            [MPSImage(counted(1, 2, 3, 1)), MPSImage(counted(1, 3, 2, 1))],
            ShapeError,
            r"^image 1 of the batch is .*; it must be like image 0, <MPS",
        ),
        (
            [MPSImage(counted(1, 2, 3, 1)), MPSImage(counted(1, 2, 3, 1, dtype=np.float16))],
            ShapeError,
            r"^image 1 of the batch is .*Float16>; it must be like image 0, .*Float32>$",
        ),
    ],
)
def test_images_that_make_no_batch(members: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        MPSImageBatch(members)
    with pytest.raises(ShapeError, match="at least one image"):
        MPSImageBatch.from_array(counted(1, 2, 2, 1)[:0])


def test_pixels_of_anything() -> None:
    source = counted(2, 2, 3, 4)
    image = MPSImage(source)
    assert pixels("x", image) is image.array
    assert pixels("x", source) is source
    for batch in (MPSImageBatch.from_array(source), list(MPSImageBatch.from_array(source))):
        assert same(pixels("x", batch), source)
    with pytest.raises(ShapeError, match=r"^x has shape \(2, 3, 4\) of rank 3"):
        pixels("x", source[0])
    with pytest.raises(TypeError, match=r"^image 1 of the batch is of type int"):
        pixels("x", [MPSImage(source[:1]), 3])


# --- layouts ----------------------------------------------------------------------------------------------------------

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


def test_an_image_is_a_texture_of_a_kernel():
    """It goes into a launch of anymetal as it is, with NaN in the padding, and has what the kernel writes."""
    anymetal = pytest.importorskip("anymetal")
    if reason := anymetal.clang.unavailable():
        pytest.skip(reason)
    library = anymetal.compile("""
#include <metal_stdlib>
using namespace metal;
kernel void twice(texture2d_array<half> x, texture2d_array<half, access::write> y, device atomic_uint *nans,
                  uint3 at [[thread_position_in_grid]]) {
    half4 v = x.read(at.xy, at.z);
    y.write(v * 2, at.xy, at.z);
    atomic_fetch_add_explicit(nans, uint(isnan(v.y)), memory_order_relaxed);
}""")
    x = MPSImage(np.arange(2 * 3 * 2 * 5, dtype=np.float16).reshape(2, 3, 2, 5))
    y, nans = MPSImage(x.descriptor), np.zeros(1, np.uint32)
    done = library["twice"]((2, 3, 4), (2, 3, 1), nans, textures=[x, y])
    assert y == MPSImage(2 * x.to_nhwc())
    assert nans[0] == 2 * 3 * 2
    assert done.changed["texture(1)"] == 24
