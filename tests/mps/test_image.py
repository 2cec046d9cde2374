"""Images: what they are made from, what they say, and when two are equal."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from mpsref.arguments.arrays import AXIS_LIMIT, Array
from mpsref.errors import ShapeError
from mpsref.mps.core.image import MPSImage, MPSImageBatch, MPSImageDescriptor, MPSTemporaryImage, pixels
from mpsref.mps.core.types import MPSImageFeatureChannelFormat
from tests.mps.image_data import DTYPES, counted, same

Float16, Float32 = MPSImageFeatureChannelFormat.Float16, MPSImageFeatureChannelFormat.Float32


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


def test_properties_cannot_be_set() -> None:
    image = MPSImage(counted(1, 2, 3, 4))
    for name in ("width", "height", "feature_channels", "number_of_images", "array", "dtype", "feature_channel_format"):
        with pytest.raises(AttributeError):
            setattr(image, name, getattr(image, name))


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


def test_copies_are_independent() -> None:
    for image in (MPSImage(counted(1, 2, 3, 4)), MPSTemporaryImage(counted(1, 2, 3, 4, dtype=np.float16))):
        for made in (image.copy(), copy.copy(image), copy.deepcopy(image), pickle.loads(pickle.dumps(image))):
            assert type(made) is type(image)
            assert made == image
            made.array[0, 0, 0, 0] = -1
            assert made != image
            assert image.array[0, 0, 0, 0] == 1


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


def test_a_temporary_image_never_expires() -> None:
    image = MPSTemporaryImage(counted(1, 2, 3, 4))
    assert image.read_count == 1
    image.read_count = 0
    assert image.read_count == 0
    assert same(image.to_nhwc(), counted(1, 2, 3, 4))
    with pytest.raises(ValueError, match=r"^read_count is -1; it must be an integer >= 0$"):
        image.read_count = -1
    with pytest.raises(TypeError, match=r"^read_count is 2.0"):
        image.read_count = 2.0  # type: ignore[assignment]
    assert image.read_count == 0
    assert MPSTemporaryImage(image.descriptor).read_count == 1
