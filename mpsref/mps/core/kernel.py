"""Base classes of the kernels: properties, encoding, copies, archives. No arithmetic on pixels is here.

A kernel family derives from one of ``MPSCNNKernel``, ``MPSCNNBinaryKernel``, ``MPSCNNMultiaryKernel`` and
``MPSCNNGradientKernel``, declares its properties, and fills in ``_compute``, which calls the functional form through
the registry.

Source: ``MPSKernel.h``, ``MPSCNNKernel.h`` [doc].
"""

from __future__ import annotations

import abc
import copy
import inspect
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np

from mpsref import registry
from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import Pair, PairLike, integer, pair
from mpsref.errors import ShapeError
from mpsref.mps.core import image_arguments, types
from mpsref.mps.core.clip_regions import Region, channels_read, count, destination_region, images_read
from mpsref.mps.core.command_buffer import MPSCommandBuffer, check_encodable, encoding
from mpsref.mps.core.image import MPSImageDescriptor
from mpsref.mps.core.image_arguments import ImageArgument, ImageLike
from mpsref.mps.core.padding import DEFAULT_PADDING, MPSNNDefaultPadding, forward_placement, policy, suggested_method
from mpsref.mps.core.properties import (
    PerSource,
    Property,
    PropertyHolder,
    at_least,
    fix,
    initialize,
    multiple_of_four,
    optional,
    properties_of,
)
from mpsref.mps.core.serialization import SecureCoding, import_families, secure_coding
from mpsref.mps.core.state import (
    ForwardRecord,
    MPSNNBinaryGradientState,
    MPSNNGradientState,
    MPSNNMultiaryGradientState,
    RecordedState,
    SourceProperties,
)
from mpsref.mps.core.types import MPSImageEdgeMode, MPSOffset
from mpsref.registry import Backend, Problem

_K = TypeVar("_K", bound="type[MPSKernel]")


def saved(*arguments: str, version: int = 1) -> Any:
    """Return a class decorator: kernels of the class can be saved.

    ``arguments`` are those of its constructor, each also an attribute. Every property that can be set is saved, except
    the backend, which belongs to the machine and not to the kernel.
    """

    def register(kind: _K) -> _K:
        writable = [name for name, one in properties_of(kind).items() if not one.read_only and name != "backend"]
        known = kind._coding.properties
        new = tuple(name for name in writable if name not in known)
        return secure_coding(version, arguments=arguments, properties=new)(kind)

    return register


def _backend(name: str, value: Any) -> str | Backend | None:
    """Check a backend: its name, the object, or ``None`` for the one that is set when the kernel runs."""
    if value is not None:
        registry.get_backend(value)
    return value  # type: ignore[no-any-return]


class Prepared(NamedTuple):
    """An encode into a new destination that is the result of one problem; repeated without any preparation."""

    properties: tuple[Any, ...]
    """Of the kernel; valid as long as they are the same objects."""
    problem: Problem
    inputs: tuple[tuple[int, tuple[slice, ...]], ...]
    """For each input of the problem: the number of the source, and the part of it that is read."""
    record: ForwardRecord

    def run(self, sources: Sequence[ImageArgument], backend: str | Backend | None) -> Array:
        """Return the destination."""
        return registry.run_one(self.problem, *[sources[k].array[part] for k, part in self.inputs], backend=backend)


PREPARED = 8
"""The number of encodes that a kernel keeps prepared."""


class MPSKernel(PropertyHolder, SecureCoding, abc.ABC):
    """Base class of all kernels: properties are checked when they are set; other names raise ``PropertyError``."""

    __slots__ = ("_prepared",)
    _prepared: dict[Any, Prepared]

    backend = Property(
        _backend, None, "The backend to run on: a name, an ``mpsref.Backend``, or ``None`` for the one in use."
    )

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Raise ``TypeError`` for an abstract class."""
        if inspect.isabstract(cls):
            import_families()
            names = sorted(kind.__name__ for kind in _descendants(cls) if not inspect.isabstract(kind))
            raise TypeError(
                f"{cls.__name__} is abstract; make one of {', '.join(names) or 'a class that derives from it'}"
            )
        made = super().__new__(cls)
        made._prepared = {}
        return made

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy: the properties, without prepared encodes."""
        return vars(self)

    def __init__(self, *, backend: str | Backend | None = None, **properties: Any) -> None:
        initialize(self, {"backend": backend, **properties})

    @abc.abstractmethod
    def encode(self, *args: Any, **kwargs: Any) -> Any:
        """Run the kernel on its images."""

    def _assign(self, **values: Any) -> None:
        """Set properties to legal values, without a check; equal values stay the same objects."""
        own = vars(self)
        for name, value in values.items():
            if own[name] != value:
                own[name] = value

    def copy(self) -> Self:
        """Return an equal kernel; later changes of one have no effect on the other."""
        return copy.copy(self)

    def __repr__(self) -> str:
        """Return Python code of an equal kernel, if the padding policy and the backend have such a representation."""
        arguments = {name: getattr(self, name) for name in self._coding.arguments}
        fresh = vars(type(self)(**arguments))
        changed = {name: vars(self)[name] for name in properties_of(type(self)) if vars(self)[name] != fresh[name]}
        if isinstance(self.backend, Backend):
            changed["backend"] = self.backend.name
        return (
            f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in (arguments | changed).items())})"
        )


def _descendants(kind: type[Any]) -> Iterator[type[Any]]:
    for child in kind.__subclasses__():
        yield child
        yield from _descendants(child)


class Encoding:
    """A block that encodes a kernel: refused on a committed command buffer; an error leaves no property changed."""

    def __init__(self, kernel: MPSKernel, command_buffer: MPSCommandBuffer | None) -> None:
        if command_buffer is not None:
            with encoding(command_buffer):
                pass
        self._kernel = kernel

    def __enter__(self) -> None:
        self._before = dict(vars(self._kernel))

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if kind is not None:
            vars(self._kernel).clear()
            vars(self._kernel).update(self._before)


_READERS = {
    prefix: operator.itemgetter(*(prefix + name for name in SourceProperties._fields))
    for prefix in ("", "primary_", "secondary_")
}


class ImageKernel(MPSKernel):
    """A kernel that reads source images and writes one destination image; not a class of Apple's."""

    prefixes: ClassVar[tuple[str, ...]] = ("",)
    """The prefix of the names of each source's properties."""
    destination_name: ClassVar[str] = "destination_image"
    state_class: ClassVar[type[RecordedState]] = MPSNNGradientState
    """The state for the gradient kernel."""
    repeats: ClassVar[bool] = False
    """Whether encodes into a new destination are prepared for repetition; then the family has ``_whole_problem``."""

    clip_rect = Property(
        types.region,
        None,
        "The part of the destination that is written, MTLRegion; ``None`` (MPSRectNoClip) is all of it.",
    )
    destination_feature_channel_offset = Property(
        multiple_of_four, 0, "The first channel of the destination that is written; a multiple of 4."
    )
    padding = Property(policy, DEFAULT_PADDING, "The policy that sets offsets and size where no destination is given.")
    is_backwards = Property(lambda _, value: bool(value), False, "Whether it is a gradient kernel.", read_only=True)

    @abc.abstractmethod
    def _compute(self, parts: Sequence[Array], destination: Array, region: Region) -> None:
        """Write ``destination[region]``, which is not empty, from the parts of the sources that are read."""

    def _whole_problem(self, shapes: Sequence[Shape], size: Pair) -> tuple[Problem, Sequence[int]] | None:
        """Return the problem that computes all of a destination of ``size``, and the sources that are its inputs.

        ``shapes`` are those of the parts of the sources that are read. ``None``: it takes more than one problem.
        """
        return None

    def _lookup(self, key: Any) -> Prepared | None:
        """Return the prepared encode of ``key`` if the properties are still those that it was prepared for."""
        found = self._prepared.get(key)
        return found if found and all(map(operator.is_, vars(self).values(), found.properties)) else None

    def _prepare(
        self, key: Any, before: tuple[Any, ...], sources: Sequence[ImageArgument], shape: Shape, record: ForwardRecord
    ) -> None:
        """Prepare the repetition of an encode that has just run, if it left all properties as they were ``before``."""
        dtypes = {one.array.dtype for one in sources}
        if len(dtypes) > 1 or not all(map(operator.is_, vars(self).values(), before)):
            return
        parts, region = self._indices(sources, shape)
        if region.shape != shape or 0 in shape or not dtypes.pop().isnative:
            return
        shapes = [one.array[part].shape for one, part in zip(sources, parts, strict=True)]
        found = self._whole_problem(shapes, region.size)
        if found is None:
            return
        problem, read = found
        if len(self._prepared) >= PREPARED:
            self._prepared = {}
        self._prepared[key] = Prepared(before, problem, tuple((k, parts[k]) for k in read), record)

    def _channels_written(self, read: Sequence[slice]) -> int:
        """Return the number of channels of the result, from those that are read of each source."""
        return count(read[0])

    def _extras(self) -> Mapping[str, Any]:
        """Return what a state records in addition to the properties that every kernel has."""
        return {}

    def _property_name(self, k: int, name: str) -> str:
        return self.prefixes[k] + name

    def _source_properties(self, k: int) -> SourceProperties:
        return SourceProperties._make(_READERS[self.prefixes[k]](vars(self)))

    def _assign_to_source(self, k: int, **values: Any) -> None:
        """Like ``_assign``, for the properties of one source."""
        self._assign(**{self.prefixes[k] + name: value for name, value in values.items()})

    def _channels(self, sources: Sequence[ImageArgument]) -> list[slice]:
        """Return the channels that are read of each source."""
        read = []
        for k, one in enumerate(sources):
            properties = self._source_properties(k)
            name = self._property_name(k, "source_feature_channel_offset")
            first, count = properties.source_feature_channel_offset, properties.source_feature_channel_max_count
            read.append(channels_read(one.name, name, one.array.shape, first, count))
        return read

    def _destination_shape(self, sources: Sequence[ImageArgument], size: Pair) -> Shape:
        """Return the shape of a destination that the kernel makes itself."""
        z, number = self._source_properties(0).offset.z, sources[0].array.shape[0]
        if z > number:
            name = self._property_name(0, "offset")
            raise ValueError(f"{name}.z is {z}; it must be <= {number}, the number of images of {sources[0].name}")
        first = 0 if self.clip_rect is None else self.clip_rect.origin.z
        written = self._channels_written(self._channels(sources))
        return first + number - z, *size, self.destination_feature_channel_offset + written

    def _select(self, sources: Sequence[ImageArgument], shape: Shape) -> tuple[list[Array], Region]:
        """Check the arguments; return the parts of the sources that are read, and the region that is written."""
        parts, region = self._indices(sources, shape)
        return [one.array[part] for one, part in zip(sources, parts, strict=True)], region

    def _indices(self, sources: Sequence[ImageArgument], shape: Shape) -> tuple[list[tuple[slice, ...]], Region]:
        channels = self._channels(sources)
        first, written = self.destination_feature_channel_offset, self._channels_written(channels)
        region = destination_region(self.destination_name, shape, self.clip_rect, first, written)
        depth = region.shape[0]
        parts: list[tuple[slice, ...]] = []
        for k, (one, read) in enumerate(zip(sources, channels, strict=True)):
            z = self._source_properties(k).offset.z
            batch = images_read(one.name, self._property_name(k, "offset"), one.array.shape, z, depth)
            parts.append((batch, slice(None), slice(None), read))
        return parts, region

    def _run(
        self, sources: Sequence[ImageArgument], given: ImageArgument | None, shape: Shape, dtype: Any
    ) -> tuple[Array, Region]:
        """Compute into the given destination, or into a new one of zeros."""
        parts, region = self._select(sources, shape)
        if given is not None:
            target = given.array
        else:
            target = arrays.empty(self.destination_name, shape, np.dtype(dtype).newbyteorder("="))
            if region.shape != shape or 0 in shape:
                target.fill(0)
        if 0 not in region.shape:
            self._compute_in_one_dtype(parts, target, region)
        return target, region

    def _compute_in_one_dtype(self, parts: Sequence[Array], target: Array, region: Region) -> None:
        """Compute on images of several dtypes in the widest one, and round the result to that of the destination."""
        dtypes = {array.dtype for array in (*parts, target)}
        if len(dtypes) == 1 and target.dtype.isnative:
            self._compute(parts, target, region)
            return
        wide = np.result_type(*dtypes).newbyteorder("=")
        result = np.empty(target.shape, wide)
        self._compute([part.astype(wide, copy=False) for part in parts], result, region)
        with np.errstate(over="ignore"):  # storing in float16 may overflow to infinity
            target[region] = result[region]

    def _infer_padding(self, sources: Sequence[ImageArgument]) -> tuple[Shape, Any]:
        """Set offsets and edge mode by the padding policy; return shape and dtype of the destination."""
        method = suggested_method(self.padding)
        sizes = set()
        for k, one in enumerate(sources):
            properties = self._source_properties(k)
            size, (y, x) = forward_placement(one.array.shape[1:3], properties.windows, method)
            sizes.add(size)
            self._assign_to_source(k, offset=MPSOffset(x, y, properties.offset.z))
            if isinstance(self.padding, MPSNNDefaultPadding) and self.padding.edge_mode is not None:
                self._assign_to_source(k, edge_mode=self.padding.edge_mode)
        if len(sizes) > 1:
            raise ShapeError(
                f"the padding policy gives the sources different output sizes, {sorted(sizes)}; make the sources fit, "
                "or name the destination_size"
            )
        return self._described(sources, self._destination_shape(sources, sizes.pop()))

    def infer_padding(self, *shapes: Shape) -> Shape:
        """Set offsets and edge mode by the padding policy for sources of ``shapes``; return the destination's shape.

        A custom policy gets images of zeros.
        """
        images = (np.broadcast_to(np.float32(0), shape) for shape in shapes)
        sources = [ImageArgument(f"source_images[{k}]", image, image) for k, image in enumerate(images)]
        return self._infer_padding(sources)[0]

    def _described(self, sources: Sequence[ImageArgument], shape: Shape) -> tuple[Shape, Any]:
        """Return the suggested shape and dtype, or those of a custom policy, which may also change the kernel."""
        dtype = sources[0].array.dtype.newbyteorder("=")
        if isinstance(self.padding, MPSNNDefaultPadding):
            return shape, dtype
        n, height, width, c = shape
        suggested = MPSImageDescriptor(types.channel_format("dtype", dtype.name), width, height, c, n)
        views = [image_arguments.as_image(one) for one in sources]
        chosen = self.padding.destination_image_descriptor_for_source_images(views, (), self, suggested)
        if not isinstance(chosen, MPSImageDescriptor):
            raise TypeError(
                f"{type(self.padding).__name__}.destination_image_descriptor_for_source_images returned "
                f"{chosen!r}; it must return an MPSImageDescriptor"
            )
        return chosen.shape, chosen.dtype

    def _encode(
        self,
        sources: Sequence[ImageArgument],
        destination_image: ImageLike | None,
        destination_size: PairLike | None,
        return_state: bool,
        destination_state: Any,
        command_buffer: MPSCommandBuffer | None,
    ) -> Any:
        """Encode a forward kernel; see ``encode``."""
        if destination_state is not None and type(destination_state) is not self.state_class:
            raise TypeError(
                f"destination_state is of type {type(destination_state).__name__}; {type(self).__name__} writes "
                f"{self.state_class.__name__}"
            )
        infers = destination_image is None and destination_size is None
        key = tuple([(one.array.shape, one.array.dtype) for one in sources])
        prepared = self._lookup(key) if infers and self.repeats else None
        if prepared is not None:
            check_encodable(command_buffer)
            result = image_arguments.like(sources[0].value, prepared.run(sources, self.backend))
            return self._with_state(result, prepared.record, return_state, destination_state)
        before = tuple(vars(self).values())
        with Encoding(self, command_buffer):
            shape: Shape
            given, dtype = None, sources[0].array.dtype
            if infers:
                shape, dtype = self._infer_padding(sources)
            elif destination_image is None:
                shape = self._destination_shape(sources, pair("destination_size", destination_size, low=1))
            elif destination_size is None:
                given = image_arguments.destination(self.destination_name, destination_image, sources)
                shape = given.array.shape
            else:
                raise ValueError("destination_image and destination_size are both given; pass one of them, or neither")
            array, region = self._run(sources, given, shape, dtype)
            result = image_arguments.like(sources[0].value, array) if given is None else image_arguments.written(given)
            if not (return_state or self.repeats) and destination_state is None:
                return result
            record = self._record(sources, shape, region)
            if infers and self.repeats and isinstance(self.padding, MPSNNDefaultPadding):
                self._prepare(key, before, sources, shape, record)
            return self._with_state(result, record, return_state, destination_state)

    def _with_state(self, result: Any, record: ForwardRecord, return_state: bool, destination_state: Any) -> Any:
        """Return the result, with a state if wanted; write the ``destination_state``."""
        if destination_state is not None:
            destination_state._refresh(record)
        elif return_state:
            destination_state = self.state_class(record)
        return (result, destination_state) if return_state else result

    def _record(self, sources: Sequence[ImageArgument], shape: Shape, region: Region) -> ForwardRecord:
        read = self._channels(sources)
        properties = tuple(
            self._source_properties(k)._replace(source_feature_channel_max_count=count(channels))
            for k, channels in enumerate(read)
        )
        return ForwardRecord(
            type(self),
            properties,
            tuple(one.array.shape for one in sources),
            shape,
            region.clip_rect,
            self.destination_feature_channel_offset,
            count(region.channels),
            self._extras(),
        )


class MPSCNNKernel(ImageKernel):
    """A kernel with one source image. Source: ``MPSCNNKernel`` in ``MPSCNNKernel.h`` [doc]."""

    offset = Property(
        types.offset, MPSOffset(0, 0, 0), "The source pixel, MPSOffset, of the window of the clip's first pixel."
    )
    edge_mode = Property(
        types.edge_mode, MPSImageEdgeMode.Zero, "The values outside the source: ``Zero`` or ``Clamp``."
    )
    source_feature_channel_offset = Property(multiple_of_four, 0, "The first channel that is read; a multiple of 4.")
    source_feature_channel_max_count = Property(
        optional(at_least(1)), None, "The largest number of channels that are read; ``None`` for all."
    )
    kernel_width = Property(at_least(1), 1, "Width of the window.", read_only=True)
    kernel_height = Property(at_least(1), 1, "Height of the window.", read_only=True)
    stride_in_pixels_x = Property(at_least(1), 1, "Distance of two windows in x.", read_only=True)
    stride_in_pixels_y = Property(at_least(1), 1, "Distance of two windows in y.", read_only=True)
    dilation_rate_x = Property(at_least(1), 1, "Distance of two taps in x.", read_only=True)
    dilation_rate_y = Property(at_least(1), 1, "Distance of two taps in y.", read_only=True)

    def encode(
        self,
        source_image: ImageLike,
        destination_image: ImageLike | None = None,
        *,
        destination_size: PairLike | None = None,
        return_state: bool = False,
        destination_state: Any = None,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> Any:
        """Run the kernel on an image and return the destination.

        Parameters
        ----------
        source_image : array_like, MPSImage or batch of images
            The source (N, H, W, C).
        destination_image : ndarray, MPSImage or batch of images, optional
            Its clip is overwritten and the rest kept; ``offset`` is used as it is set.
        destination_size : tuple of int, optional
            Height and width of a new destination, zero outside the clip; ``offset`` is used as it is set. Without a
            destination and a size, ``padding`` sets both size and offset, which stays set.
        return_state : bool, default False
            Whether to return a state for the gradient kernel, too.
        destination_state : MPSState, optional
            A state that is overwritten and returned in place of a new one.
        command_buffer : MPSCommandBuffer, optional
            The command buffer to encode on.

        Returns
        -------
        destination : ndarray, MPSImage or MPSImageBatch
            Of the kind of ``source_image``; with ``return_state=True`` a tuple (destination, state).

        Raises
        ------
        ValueError, TypeError
            For arguments that do not fit. No error leaves a written image or a changed property.
        OrderError
            For a committed command buffer.
        """
        source = image_arguments.source("source_image", source_image)
        return self._encode(
            (source,), destination_image, destination_size, return_state, destination_state, command_buffer
        )

    encode_batch = encode


class MPSCNNBinaryKernel(ImageKernel):
    """A kernel with a primary and a secondary source image.

    Each source has the properties that :class:`mpsref.mps.MPSCNNKernel` has for its one source; the first pixel of the
    clip rectangle belongs to ``primary_offset`` in one and to ``secondary_offset`` in the other.
    """

    prefixes = ("primary_", "secondary_")
    state_class: ClassVar[type[RecordedState]] = MPSNNBinaryGradientState

    primary_offset = Property(
        types.offset, MPSOffset(0, 0, 0), "The primary pixel of the clip's first pixel, MPSOffset."
    )
    primary_edge_mode = Property(types.edge_mode, MPSImageEdgeMode.Zero, "The values outside the primary image.")
    primary_source_feature_channel_offset = Property(multiple_of_four, 0, "The first primary channel that is read.")
    primary_source_feature_channel_max_count = Property(
        optional(at_least(1)), None, "The largest number of channels that are read; ``None`` for all."
    )
    primary_kernel_width = Property(at_least(1), 1, "Width of the window on the primary image.", read_only=True)
    primary_kernel_height = Property(at_least(1), 1, "Height of the window on the primary image.", read_only=True)
    primary_stride_in_pixels_x = Property(at_least(1), 1, "Distance of two windows in x on the primary image.")
    primary_stride_in_pixels_y = Property(at_least(1), 1, "Distance of two windows in y on the primary image.")
    primary_dilation_rate_x = Property(at_least(1), 1, "Distance of two taps in x, primary image.", read_only=True)
    primary_dilation_rate_y = Property(at_least(1), 1, "Distance of two taps in y, primary image.", read_only=True)

    secondary_offset = Property(
        types.offset, MPSOffset(0, 0, 0), "The secondary pixel of the clip's first pixel, MPSOffset."
    )
    secondary_edge_mode = Property(types.edge_mode, MPSImageEdgeMode.Zero, "The values outside the secondary image.")
    secondary_source_feature_channel_offset = Property(multiple_of_four, 0, "The first secondary channel that is read.")
    secondary_source_feature_channel_max_count = Property(
        optional(at_least(1)), None, "The largest number of channels that are read; ``None`` for all."
    )
    secondary_kernel_width = Property(at_least(1), 1, "Width of the window on the secondary image.", read_only=True)
    secondary_kernel_height = Property(at_least(1), 1, "Height of the window on the secondary image.", read_only=True)
    secondary_stride_in_pixels_x = Property(at_least(1), 1, "Distance of two windows in x on the secondary image.")
    secondary_stride_in_pixels_y = Property(at_least(1), 1, "Distance of two windows in y on the secondary image.")
    secondary_dilation_rate_x = Property(at_least(1), 1, "Distance of two taps in x, secondary image.", read_only=True)
    secondary_dilation_rate_y = Property(at_least(1), 1, "Distance of two taps in y, secondary image.", read_only=True)

    def encode(
        self,
        primary_image: ImageLike,
        secondary_image: ImageLike,
        destination_image: ImageLike | None = None,
        *,
        destination_size: PairLike | None = None,
        return_state: bool = False,
        destination_state: Any = None,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> Any:
        """Run the kernel on two images and return the destination, of the kind that ``primary_image`` is.

        Everything else is as in :meth:`mpsref.mps.MPSCNNKernel.encode`. A padding policy sets the offset of each
        source; where it gives them different output sizes, ``ShapeError``.
        """
        sources = (
            image_arguments.source("primary_image", primary_image),
            image_arguments.source("secondary_image", secondary_image),
        )
        return self._encode(
            sources, destination_image, destination_size, return_state, destination_state, command_buffer
        )

    encode_batch = encode


def _at_index(name: str) -> tuple[Callable[[Any, int], Any], Callable[[Any, Any, int], None]]:
    """Return the methods that read and set one source's value of a property."""

    def value_at_index(self: MPSCNNMultiaryKernel, index: int) -> Any:
        return getattr(self, name)[self._index(index)]

    def set_value(self: MPSCNNMultiaryKernel, value: Any, at_index: int) -> None:
        values = list(getattr(self, name))
        values[self._index(at_index)] = value
        setattr(self, name, values)

    value_at_index.__doc__ = f"Return ``{name}`` of source ``index``; ``ValueError`` where there is no such source."
    set_value.__doc__ = f"Set ``{name}`` of source ``at_index``; ``ValueError`` where there is no such source."
    return value_at_index, set_value


class MPSCNNMultiaryKernel(ImageKernel):
    """A kernel with ``source_count`` source images, each with its own set of properties.

    Read and set them with Apple's pairs of methods, such as ``offset_at_index(index)`` and ``set_offset(value,
    at_index)``, or all at once: ``offset`` is a tuple with one MPSOffset a source.
    """

    state_class = MPSNNMultiaryGradientState

    source_count = Property(at_least(1), 1, "The number of source images.", read_only=True)
    offset = PerSource(types.offset, MPSOffset(0, 0, 0), "The source pixel of the clip's first pixel.")
    edge_mode = PerSource(types.edge_mode, MPSImageEdgeMode.Zero, "The values outside the source.")
    kernel_width = PerSource(at_least(1), 1, "Width of the window.")
    kernel_height = PerSource(at_least(1), 1, "Height of the window.")
    stride_in_pixels_x = PerSource(at_least(1), 1, "Distance of two windows in x.")
    stride_in_pixels_y = PerSource(at_least(1), 1, "Distance of two windows in y.")
    dilation_rate_x = PerSource(at_least(1), 1, "Distance of two taps in x.")
    dilation_rate_y = PerSource(at_least(1), 1, "Distance of two taps in y.")
    source_feature_channel_offset = PerSource(multiple_of_four, 0, "The first channel that is read.")
    source_feature_channel_max_count = PerSource(
        optional(at_least(1)), None, "The largest number of channels that are read; ``None`` for all."
    )

    offset_at_index, set_offset = _at_index("offset")
    edge_mode_at_index, set_edge_mode = _at_index("edge_mode")
    kernel_width_at_index, set_kernel_width = _at_index("kernel_width")
    kernel_height_at_index, set_kernel_height = _at_index("kernel_height")
    stride_in_pixels_x_at_index, set_stride_in_pixels_x = _at_index("stride_in_pixels_x")
    stride_in_pixels_y_at_index, set_stride_in_pixels_y = _at_index("stride_in_pixels_y")
    dilation_rate_x_at_index, set_dilation_rate_x = _at_index("dilation_rate_x")
    dilation_rate_y_at_index, set_dilation_rate_y = _at_index("dilation_rate_y")
    source_feature_channel_offset_at_index, set_source_feature_channel_offset = _at_index(
        "source_feature_channel_offset"
    )
    source_feature_channel_max_count_at_index, set_source_feature_channel_max_count = _at_index(
        "source_feature_channel_max_count"
    )

    def __init__(self, source_count: int, *, backend: str | Backend | None = None, **properties: Any) -> None:
        """Make a kernel for this number of sources."""
        fix(self, source_count=source_count)
        super().__init__(backend=backend, **properties)

    def encode(
        self,
        source_images: Sequence[Any],
        destination_image: ImageLike | None = None,
        *,
        destination_size: PairLike | None = None,
        return_state: bool = False,
        destination_state: Any = None,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> Any:
        """Run the kernel on ``source_count`` images; all else is as in :meth:`mpsref.mps.MPSCNNKernel.encode`."""
        if len(source_images) != self.source_count:
            raise ValueError(
                f"source_images has {len(source_images)} images; the kernel has source_count={self.source_count}"
            )
        sources = [image_arguments.source(f"source_images[{k}]", image) for k, image in enumerate(source_images)]
        return self._encode(
            sources, destination_image, destination_size, return_state, destination_state, command_buffer
        )

    encode_batch = encode

    def _index(self, index: int) -> int:
        number = integer("index", index, low=0)
        if number >= self.source_count:
            raise ValueError(f"index is {number}; it must be < source_count={self.source_count}")
        return number

    def _property_name(self, k: int, name: str) -> str:
        return f"{name}[{k}]"

    def _source_properties(self, k: int) -> SourceProperties:
        return SourceProperties._make(getattr(self, name)[k] for name in SourceProperties._fields)

    def _assign_to_source(self, k: int, **values: Any) -> None:
        for name, value in values.items():
            known = getattr(self, name)
            self._assign(**{name: (*known[:k], value, *known[k + 1 :])})
