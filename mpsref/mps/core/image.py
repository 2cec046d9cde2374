"""Images: batches of NHWC pixels that kernels read and write, and conversions to and from other layouts.

>>> import numpy as np
>>> image = MPSImage(np.arange(12, dtype=np.float32).reshape(1, 2, 2, 3))
>>> image
<MPSImage: number_of_images=1, height=2, width=2, feature_channels=3, Float32>
>>> image.to_chw()[0].tolist()
[[0.0, 3.0], [6.0, 9.0]]
>>> MPSImage(MPSImageDescriptor("float16", width=4, height=3, feature_channels=8)).array.shape
(1, 3, 4, 8)

Kernels accept an array wherever they accept an image. They write into the pixels of a destination image,
``image.array``. Source: ``MPSImage.h``, ``MPSCoreTypes.h`` [doc].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import ClassVar, Self, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array, DType, ImageShape
from mpsref.arguments.device import on_host
from mpsref.arguments.parameters import integer
from mpsref.arguments.text import shown
from mpsref.errors import OrderError, ShapeError
from mpsref.geometry import ceil_div
from mpsref.mps.core import types
from mpsref.mps.core.command_buffer import MPSCommandBuffer, check_encodable
from mpsref.mps.core.properties import Alias, Labelled, NoNewAttributes, PropertyError, hinting, instance_of, refusal
from mpsref.mps.core.reads import ReadCounted, check_usable
from mpsref.mps.core.types import MPSDataLayout, MPSImageFeatureChannelFormat

CHANNELS_PER_SLICE = 4
_array_of = attrgetter("_array")


def length(low: int) -> Callable[[str, object], int]:
    """Return a strict converter ``convert(name, value)`` for the length of an axis, at least ``low``."""

    def convert(name: str, value: object) -> int:
        number = integer(name, value)
        if not low <= number <= arrays.AXIS_LIMIT:
            raise ShapeError(f"{name} is {number}; it must be from {low} to {arrays.AXIS_LIMIT}")
        return number

    return convert


@hinting
@dataclass
class MPSImageDescriptor:
    """Size and format of a new image. Each attribute can be set, and is checked when it is set.

    Parameters
    ----------
    channel_format : MPSImageFeatureChannelFormat
        Storage of a channel, or its number, or its name in lower case, such as ``"float16"``.
    width, height, feature_channels : int
        Size of an image, >= 1.
    number_of_images : int, default 1
        Number of images in the batch, >= 0.

    Raises
    ------
    TypeError
        If a size is not an integer.
    ShapeError
        If a size is out of range.
    UnsupportedError
        For the formats of normalized integers.

    Notes
    -----
    ``MPSImageDescriptor`` in ``MPSImage.h`` [doc].
    """

    channel_format: MPSImageFeatureChannelFormat
    width: int
    height: int
    feature_channels: int
    number_of_images: int = 1

    _converters: ClassVar[dict[str, Callable[[str, object], object]]] = {
        "channel_format": types.channel_format,
        "width": length(1),
        "height": length(1),
        "feature_channels": length(1),
        "number_of_images": length(0),
    }

    def __setattr__(self, name: str, value: object) -> None:
        if name not in self._converters:
            raise PropertyError(
                f"MPSImageDescriptor has no property {shown(name)}; those that can be set are: "
                f"{', '.join(self._converters)}"
            )
        object.__setattr__(self, name, self._converters[name](name, value))

    @classmethod
    def image_descriptor_with_channel_format_width_height_feature_channels(
        cls, channel_format: MPSImageFeatureChannelFormat, width: int, height: int, feature_channels: int
    ) -> Self:
        """Return the descriptor of one image; equivalent to the constructor."""
        return cls(channel_format, width, height, feature_channels)

    @classmethod
    def image_descriptor_with_channel_format_width_height_feature_channels_number_of_images_usage(
        cls,
        channel_format: MPSImageFeatureChannelFormat,
        width: int,
        height: int,
        feature_channels: int,
        number_of_images: int,
        usage: int,
    ) -> Self:
        """Return a new descriptor; ``usage`` has no effect."""
        return cls(channel_format, width, height, feature_channels, number_of_images)

    @property
    def dtype(self) -> DType:
        """The dtype of the pixels, which follows from ``channel_format``."""
        return self.channel_format.dtype

    @property
    def shape(self) -> ImageShape:
        """The shape of the pixels, (N, H, W, C)."""
        return self.number_of_images, self.height, self.width, self.feature_channels


class MPSImage(Labelled, NoNewAttributes, ReadCounted):
    """A batch of images, float32 or float16.

    Parameters
    ----------
    image_descriptor : MPSImageDescriptor or array_like
        The size of an image of zeros, or its pixels (N, H, W, C).
    copy : bool, default True
        Whether to copy the array, so that kernels which write into this image do not write into it. Without a copy the
        image shares the array, which must be a NumPy array in native byte order.

    Raises
    ------
    TypeError
        For an array of another dtype (also for float64 and integers: convert them).
    ShapeError
        For an array of another rank, and for an H, W or C of 0.
    """

    kind = "image"
    permanent = "an MPSImage"

    def __init__(self, image_descriptor: MPSImageDescriptor | ArrayLike, *, copy: bool = True) -> None:
        if isinstance(image_descriptor, MPSImageDescriptor):
            self._array = arrays.empty("the image", image_descriptor.shape, image_descriptor.dtype)
            self._array.fill(0)
        else:
            self._array = _owned("array", image_descriptor, copy)

    @classmethod
    def _of(cls, array: Array) -> Self:
        """Return an image with the memory of an array that was checked, or that a kernel has made."""
        image = cls.__new__(cls)
        vars(image)["_array"] = array
        return image

    @property
    def array(self) -> Array:
        """The pixels themselves, (N, H, W, C): writing into this array writes into the image.

        An array on a device, if the image was made from one or by a kernel that read one.
        """
        return self._array

    number_of_images: Alias[int] = Alias("_array.shape", "N, the number of images in the batch.", itemgetter(0))
    height: Alias[int] = Alias("_array.shape", "H, in pixels.", itemgetter(1))
    width: Alias[int] = Alias("_array.shape", "W, in pixels.", itemgetter(2))
    feature_channels: Alias[int] = Alias(
        "_array.shape",
        "C, the number of channels of a pixel; the padding to a multiple of 4 is not counted.",
        itemgetter(3),
    )
    dtype: Alias[DType] = Alias("_array.dtype", "The dtype of the pixels.")

    @property
    def feature_channel_format(self) -> MPSImageFeatureChannelFormat:
        """``Float16`` or ``Float32``."""
        half = self.dtype == np.float16
        return MPSImageFeatureChannelFormat.Float16 if half else MPSImageFeatureChannelFormat.Float32

    @property
    def descriptor(self) -> MPSImageDescriptor:
        """A new descriptor of an image like this one."""
        return MPSImageDescriptor(
            self.feature_channel_format, self.width, self.height, self.feature_channels, self.number_of_images
        )

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__}: number_of_images={self.number_of_images}, height={self.height}, "
            f"width={self.width}, feature_channels={self.feature_channels}, {self.feature_channel_format.name}>"
        )

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        return np.array(self._array, dtype=dtype, copy=copy)

    def __anymetal_texture__(self) -> tuple[Array, str, Callable[[], None]]:
        """Return the images as a texture of a Metal kernel run by the package anymetal.

        These are the slices, whose padding is NaN since MPS leaves it undefined, the pixel format, and a function that
        takes what a launch has written.
        """
        self._check_usable(None)
        slices, channels = self.to_slices(), self.feature_channels
        last = slices[ceil_div(channels, CHANNELS_PER_SLICE) - 1 :: ceil_div(channels, CHANNELS_PER_SLICE)]
        last[..., channels % CHANNELS_PER_SLICE or CHANNELS_PER_SLICE :] = np.nan

        def take() -> None:
            self._array[...] = type(self).from_slices(slices, channels)._array

        return slices, f"rgba{8 * self.dtype.itemsize}float", take

    @property
    def _pixels(self) -> Array:
        """The pixels on the host: a copy of those on a device."""
        return on_host(self._array)

    def __eq__(self, other: object) -> bool:
        """Whether both have the same size, format and pixels; a NaN equals a NaN, and -0 equals 0."""
        if not isinstance(other, MPSImage):
            return NotImplemented
        return self.dtype == other.dtype and np.array_equal(self._pixels, other._pixels, equal_nan=True)

    __hash__ = None  # type: ignore[assignment]  # pixels change

    def synchronize(self, on_command_buffer: MPSCommandBuffer | None = None) -> None:
        """Check the command buffer: pixels can be read as soon as a kernel was encoded. Apple's method waits for them.

        Raises ``OrderError`` for a committed command buffer, and for a temporary image that kernels cannot use there.
        """
        check_encodable(on_command_buffer)
        self._check_usable(on_command_buffer)

    synchronize_on_command_buffer = synchronize

    def copy(self) -> Self:
        """Return a new image with the same pixels."""
        return type(self)(self._array)

    __copy__ = copy

    @classmethod
    def from_nhwc(cls, array: ArrayLike) -> Self:
        """Return a batch with the pixels of ``array`` (N, H, W, C); equivalent to ``MPSImage(array)``."""
        return cls(array)

    @classmethod
    def from_nchw(cls, array: ArrayLike) -> Self:
        """Return a batch with the pixels of ``array`` (N, C, H, W)."""
        return cls(_rank("array", array, 4, "(N, C, H, W)").transpose(0, 2, 3, 1))

    @classmethod
    def from_hwc(cls, array: ArrayLike) -> Self:
        """Return one image with the pixels of ``array`` (H, W, C)."""
        return cls(_rank("array", array, 3, "(H, W, C)")[None])

    @classmethod
    def from_chw(cls, array: ArrayLike) -> Self:
        """Return one image with the pixels of ``array`` (C, H, W)."""
        return cls(_rank("array", array, 3, "(C, H, W)").transpose(1, 2, 0)[None])

    def to_nhwc(self) -> Array:
        """Return a copy of the pixels as (N, H, W, C)."""
        return self._pixels.copy(order="C")

    def to_nchw(self) -> Array:
        """Return a copy of the pixels as (N, C, H, W)."""
        return self._pixels.transpose(0, 3, 1, 2).copy(order="C")

    def to_hwc(self, image_index: int | None = None) -> Array:
        """Return a copy of one image as (H, W, C); ``image_index`` is optional for a single image."""
        return np.array(self._one(MPSDataLayout.HeightxWidthxFeatureChannels, image_index), order="C")

    def to_chw(self, image_index: int | None = None) -> Array:
        """Return a copy of one image as (C, H, W); ``image_index`` is optional for a single image."""
        return np.array(self._one(MPSDataLayout.FeatureChannelsxHeightxWidth, image_index), order="C")

    @classmethod
    def from_slices(cls, slices: ArrayLike, feature_channels: int) -> Self:
        """Return a batch from texture slices of four channels each.

        Parameters
        ----------
        slices : array_like of shape (N * ceil(C / 4), H, W, 4)
            Channel ``ch`` of image ``b`` is component ``ch % 4`` of slice ``b * ceil(C / 4) + ch // 4``. Padding
            components are ignored.
        feature_channels : int
            C, the number of channels of the images.

        Raises
        ------
        ShapeError
            If the shape of ``slices`` does not match ``feature_channels``.

        Notes
        -----
        The texture layout in ``MPSImage.h`` [doc].

        Examples
        --------
        >>> image = MPSImage(np.ones((2, 3, 3, 6), np.float32))
        >>> image.to_slices().shape
        (4, 3, 3, 4)
        >>> MPSImage.from_slices(image.to_slices(), 6) == image
        True
        """
        source = arrays.as_image("slices", slices)
        channels = length(1)("feature_channels", feature_channels)
        count = ceil_div(channels, CHANNELS_PER_SLICE)
        if source.shape[3] != CHANNELS_PER_SLICE or source.shape[0] % count:
            raise ShapeError(
                f"slices has shape {source.shape}; with feature_channels={channels} it must be (N * {count}, H, W, 4)"
            )
        array = arrays.empty("the image", (source.shape[0] // count, *source.shape[1:3], channels), source.dtype)
        for ch in range(channels):
            array[..., ch] = source[ch // CHANNELS_PER_SLICE :: count, ..., ch % CHANNELS_PER_SLICE]
        return cls(array, copy=False)

    def to_slices(self) -> Array:
        """Return a copy of the pixels as texture slices in the layout of :meth:`from_slices`; padding is 0."""
        pixels = self._pixels
        n, height, width, channels = pixels.shape
        count = ceil_div(channels, CHANNELS_PER_SLICE)
        slices = np.zeros((n * count, height, width, CHANNELS_PER_SLICE), self.dtype)
        for ch in range(channels):
            slices[ch // CHANNELS_PER_SLICE :: count, ..., ch % CHANNELS_PER_SLICE] = pixels[..., ch]
        return slices

    def read_bytes(self, data_layout: MPSDataLayout | int | str, image_index: int) -> bytes:
        """Return one image as bytes.

        Parameters
        ----------
        data_layout : MPSDataLayout, int or str
            Order of the pixels.
        image_index : int
            Index of the image in the batch.

        Returns
        -------
        bytes
            The pixels in native byte order, without padding.

        Raises
        ------
        OrderError
            For a temporary image, whose memory is private to the GPU [doc].

        Notes
        -----
        ``readBytes:dataLayout:imageIndex:`` in ``MPSImage.h`` [doc].
        """
        return np.asarray(self._bytes_of(data_layout, image_index)).tobytes()

    def write_bytes(
        self,
        data: bytes | bytearray | memoryview | Array,
        data_layout: MPSDataLayout | int | str,
        image_index: int,
    ) -> None:
        """Overwrite one image.

        Parameters
        ----------
        data : buffer
            Bytes in the format of :meth:`read_bytes`, or a buffer with elements of the dtype of the image.
        data_layout : MPSDataLayout, int or str
            Order of the pixels.
        image_index : int
            Index of the image in the batch.

        Raises
        ------
        TypeError
            If ``data`` is not a buffer or has elements of another format. The image is unchanged.
        ShapeError
            If ``data`` does not have the size of an image. The image is unchanged.
        OrderError
            For a temporary image, whose memory is private to the GPU [doc].

        Notes
        -----
        ``writeBytes:dataLayout:imageIndex:`` in ``MPSImage.h`` [doc].
        """
        target = self._bytes_of(data_layout, image_index)
        try:
            view = memoryview(data)  # type: ignore[arg-type]  # typeshed lists arrays as buffers from Python 3.12
        except (TypeError, ValueError):
            raise TypeError(f"data is of type {type(data).__name__}; it must be bytes or a buffer of them") from None
        if view.format not in ("B", self.dtype.char):
            raise TypeError(f"data is a buffer of format {view.format!r}; it must hold bytes or {self.dtype}")
        if view.nbytes != target.nbytes:
            raise ShapeError(f"data has {view.nbytes} bytes; one image of {self!r} has {target.nbytes}")
        target[...] = np.frombuffer(view.tobytes(), self.dtype).reshape(target.shape)

    def _bytes_of(self, data_layout: MPSDataLayout | int | str, image_index: int) -> Array:
        """Return a view of one image whose bytes the host reads or writes; ``OrderError`` for a temporary image."""
        if self.is_temporary:
            self._check_usable(None)
            raise OrderError(
                f"this {type(self).__name__} is temporary, so its memory is private to the GPU, and the host neither "
                "reads nor writes its bytes; use an MPSImage, to which a kernel can copy it"
            )
        return self._one(types.member("data_layout", data_layout, MPSDataLayout), image_index)

    def _one(self, layout: MPSDataLayout, image_index: int | None) -> Array:
        """Return a view of one image in the order of ``layout``."""
        if image_index is None:
            if self.number_of_images != 1:
                raise ShapeError(f"{self!r} is not one image; name an image_index, or convert the whole batch")
            image_index = 0
        index = integer("image_index", image_index)
        if not 0 <= index < self.number_of_images:
            raise ValueError(f"image_index is {index}; it must be >= 0 and < number_of_images={self.number_of_images}")
        image: Array = self._array[index]
        return image.transpose(2, 0, 1) if layout is MPSDataLayout.FeatureChannelsxHeightxWidth else image


class MPSTemporaryImage(MPSImage):
    """An image whose memory a GPU reuses after ``read_count`` reads, 1 by default.

    A kernel that reads it decrements ``read_count``. At 0 it can neither be read nor written. One that was made for a
    command buffer is used by the kernels on it alone, and the host reads and writes no bytes of it.

    Notes
    -----
    ``MPSTemporaryImage`` in ``MPSImage.h`` [doc]. The memory is not reused [design objects-options].
    """

    _reads = 1

    @classmethod
    def temporary_image_with_command_buffer(
        cls, command_buffer: MPSCommandBuffer, image_descriptor: MPSImageDescriptor
    ) -> Self:
        """Return a new image of zeros for one command buffer; ``OrderError`` if it was committed."""
        return cls(image_descriptor)._as_temporary(command_buffer)


class MPSImageBatch(tuple[MPSImage, ...]):
    """One or more single images of the same size and format.

    Parameters
    ----------
    members : iterable of MPSImage
        Images with ``number_of_images == 1``.

    Raises
    ------
    TypeError
        If a member is not an :class:`MPSImage`.
    ShapeError
        If there are no images, or their sizes or formats differ.

    Notes
    -----
    ``MPSImageBatch`` in ``MPSImage.h`` [doc].
    """

    def __setattr__(self, name: str, value: object) -> None:
        raise refusal(self, name)

    def __new__(cls, members: Iterable[MPSImage]) -> Self:
        """Check the images."""
        batch = super().__new__(cls, members)
        if not batch:
            raise ShapeError("a batch must hold at least one image; it is empty")
        for k, image in enumerate(batch):
            if not isinstance(image, MPSImage):
                instance_of(f"image {k} of the batch", image, MPSImage)  # type: ignore[unreachable]  # raises
            array, first = image._array, batch[0]._array
            if array.shape[0] != 1:
                raise ShapeError(f"image {k} of the batch is {image!r}; its number_of_images must be 1")
            if (array.shape, array.dtype) != (first.shape, first.dtype):
                raise ShapeError(f"image {k} of the batch is {image!r}; it must be like image 0, {batch[0]!r}")
        return batch

    @classmethod
    def from_array(cls, array: ArrayLike, *, copy: bool = True) -> Self:
        """Return a batch with the pixels of ``array`` (N, H, W, C), N >= 1; see :class:`MPSImage` for ``copy``."""
        owned = _owned("array", array, copy)
        images = [MPSImage._of(owned[k : k + 1]) for k in range(len(owned))]
        return super().__new__(cls, images) if images else cls(())  # raises

    def to_array(self) -> Array:
        """Return a copy of the pixels as one array (N, H, W, C)."""
        return np.concatenate([image._pixels for image in self])

    def write_array(self, array: ArrayLike) -> None:
        """Overwrite all images with ``array`` (N, H, W, C), which must have the same shape and dtype."""
        source = arrays.as_image("array", array)
        if source.shape != (len(self), *self[0].array.shape[1:]):
            raise ShapeError(f"array has shape {source.shape}; the batch has {len(self)} images like {self[0]!r}")
        if source.dtype != self[0].dtype:
            raise TypeError(f"array has dtype {source.dtype}; the images have {self[0].dtype}")
        for image, pixels_of_one in zip(self, source, strict=True):
            image.array[0] = pixels_of_one

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("a batch is not one array and cannot become one without a copy; use numpy.array(batch)")
        return np.asarray(self.to_array(), dtype=dtype)


def is_batch(value: object) -> TypeGuard[Sequence[MPSImage]]:
    """Return whether ``value`` is a batch: a list or tuple with an image."""
    if isinstance(value, (list, tuple)):
        for image in value:
            if isinstance(image, MPSImage):
                return True
    return False


def pixels(
    name: str, value: ArrayLike | MPSImage | Sequence[MPSImage], command_buffer: MPSCommandBuffer | None = None
) -> Array:
    """Return the pixels (N, H, W, C) of an image, a batch, a list of images, or an array.

    The pixels of an image are its own array; those of a batch are a copy. Errors are those of :class:`MPSImage`, and
    ``OrderError`` for a temporary image that a kernel on ``command_buffer`` may not use.

    >>> pixels("source_image", [MPSImage(np.ones((1, 2, 2, 1), np.float16))] * 3).shape
    (3, 2, 2, 1)
    """
    if isinstance(value, MPSImage):
        if value._reads is not None:
            check_usable(name, value, command_buffer)
        return value._array
    if type(value) is MPSImageBatch or is_batch(value):
        batch = value if type(value) is MPSImageBatch else MPSImageBatch(value)  # a batch was checked when it was made
        for image in batch:
            if image._reads is not None:
                check_usable(name, image, command_buffer)
        return arrays.concatenated([*map(_array_of, batch)])
    return _checked(name, value)


def _checked(name: str, value: object) -> Array:
    """Return an array-like as an array (N, H, W, C) of float32 or float16."""
    array = arrays.as_image(name, value)
    if array.dtype.itemsize > 4:
        raise TypeError(
            f"{name} has dtype {array.dtype}; an image holds float32 or float16: convert it, for example with "
            f"{name}.astype(numpy.float32)"
        )
    return array


def _owned(name: str, value: object, copy: bool) -> Array:
    """Return the array of a new image: a copy, or with ``copy=False`` the array of the caller."""
    array = _checked(name, value)
    if copy:
        return arrays.copied(name, array, array.dtype)
    if not arrays.is_array(value) or not array.dtype.isnative:
        raise ValueError(f"{name} can be used without a copy only if it is a NumPy array in native byte order")
    return array


def _rank(name: str, value: ArrayLike, rank: int, axes: str) -> Array:
    """Return an array-like as an array of this rank."""
    array = arrays.as_array(name, value)
    if array.ndim != rank:
        raise ShapeError(f"{name} has shape {array.shape} of rank {array.ndim}; it must have rank {rank}, {axes}")
    return array
