"""Encodes: from images to the call of a kernel, and from its result to images and states.

An encode parses its images, finds the call for their shapes (``_call``), runs it, and wraps the result. A family says
in ``_problem`` how a region of the destination is computed; the classes here do no arithmetic on pixels.

Source: ``MPSCNNKernel.h`` [doc].
"""

from __future__ import annotations

import abc
import functools
import inspect
import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from mpsref.arguments import arrays
from mpsref.arguments.arrays import DType, Shape
from mpsref.arguments.parameters import Pair, PairLike, pair
from mpsref.arguments.text import shown
from mpsref.errors import ShapeError
from mpsref.mps.core import image_arguments, types
from mpsref.mps.core.call import Call, Computation, Index
from mpsref.mps.core.clip_regions import Region, channels_read, count, destination_region, images_read, whole
from mpsref.mps.core.command_buffer import MPSCommandBuffer, check_encodable
from mpsref.mps.core.image import MPSImageDescriptor
from mpsref.mps.core.image_arguments import Encoded, ImageArgument, ImageLike, ImageResult, count_reads
from mpsref.mps.core.kernel import MPSKernel
from mpsref.mps.core.padding import (
    DEFAULT_PADDING,
    MPSNNDefaultPadding,
    MPSNNPadding,
    forward_placement,
    policy,
    suggested_method,
)
from mpsref.mps.core.properties import Alias, Property, constructed, instance_of, multiple_of_four
from mpsref.mps.core.reads import check_usable
from mpsref.mps.core.state import (
    DestinationState,
    ForwardRecord,
    MPSNNGradientState,
    MPSState,
    RecordedState,
    SourceProperties,
    one_per_image,
    one_state,
    state_of_batch,
)
from mpsref.mps.core.types import MPSOffset, MTLRegion


@functools.lru_cache(maxsize=64)
def of_zeros(*shapes: Shape) -> tuple[ImageArgument, ...]:
    """Return images of zeros of these shapes, without memory for their pixels."""
    made = []
    for k, shape in enumerate(shapes):
        zeros = np.ndarray(shape, np.float32, _ZERO, strides=(0, 0, 0, 0))  # faster than numpy.broadcast_to
        zeros.flags.writeable = False
        made.append(ImageArgument(f"source_images[{k}]", zeros, zeros))
    return tuple(made)


_ZERO = np.zeros(1, np.float32)


def part(shape: Shape, index: Index) -> Shape:
    """Return the shape of a part of an image, whose first and last slices have both ends."""
    images, rows, columns, channels = index
    _, height, width, _ = shape
    if rows != WHOLE or columns != WHOLE:
        height, width = len(range(height)[rows]), len(range(width)[columns])
    return images.stop - images.start, height, width, channels.stop - channels.start


WHOLE = slice(None)
array_of, _shape_of = operator.attrgetter("array"), operator.attrgetter("array.shape")
_properties: Callable[[Sequence[Any]], SourceProperties] = functools.partial(tuple.__new__, SourceProperties)
"""``SourceProperties._make``, without its check of the length."""
_READERS = {
    prefix: operator.itemgetter(*(prefix + name for name in SourceProperties._fields))
    for prefix in ("", "primary_", "secondary_")
}


@constructed(init=False, kw_only=True)
class ImageKernel(MPSKernel):
    """A kernel that reads source images and writes one destination image; not a class of MPS."""

    prefixes: ClassVar[tuple[str, ...]] = ("",)
    """For each source, the prefix of its property names; none: the properties are tuples with a value for each."""
    destination_name: ClassVar[str] = "destination_image"
    state_class: ClassVar[type[RecordedState]] = MPSNNGradientState
    """The state for the gradient kernel."""
    accepts_lists: ClassVar[bool] = False
    """Whether sources may be lists of arrays, which are concatenated; the result is then such a list."""
    recorded: ClassVar[tuple[str, ...]] = ()
    """The properties of the family that a state records, and that its gradient kernel must have, too.

    The name in the record has no leading underscore; of a method it is the result.
    """
    _number_of_sources: Alias[int] = Alias("prefixes", "The number of sources that a descriptor is for.", len)
    _channels_needed: Any = ()
    """For each source, how many channels the kernel reads; none: as many as there are."""
    _enlarges: Any = 1
    """The factor of height and width of a destination that a padding policy makes."""
    _is_whole: ClassVar[bool] = False
    """Whether all of the destination is written, and :meth:`_parts` of the sources are read."""

    clip_rect: Property[MTLRegion | None] = Property(
        types.region,
        None,
        "The region of the destination that is written, MTLRegion; ``None`` (MPSRectNoClip) is all of it.",
    )
    destination_feature_channel_offset: Property[int] = Property(
        multiple_of_four, 0, "The first channel of the destination that is written; a multiple of 4."
    )
    padding: Property[MPSNNPadding] = Property(
        policy, DEFAULT_PADDING, "The policy that sets offsets and size without a destination."
    )
    is_backwards = Property(lambda _, value: bool(value), False, "Whether it is a gradient kernel.", read_only=True)

    @abc.abstractmethod
    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        """Return how to compute a region of ``size`` from regions of the sources of these ``shapes``, none empty."""

    def _place(self, sources: Sequence[ImageArgument], asked: Shape | Pair | None, state: Any) -> tuple[Shape, DType]:
        """Set the properties of an encode; return shape and dtype of the destination.

        ``asked`` is the shape of a given destination, or the size of a new one; ``None``: the kernel decides.
        """
        if asked is None:
            return self._infer_padding(sources)
        shape = asked if len(asked) == 4 else self._destination_shape(sources, (asked[0], asked[1]))
        return shape, sources[0].array.dtype

    # --- an encode ---

    def _encode(
        self,
        sources: Sequence[ImageArgument],
        destination_image: ImageLike | None,
        destination_size: PairLike | None,
        return_state: bool,
        destination_state: DestinationState,
        command_buffer: MPSCommandBuffer | None,
        *operands: Any,
        state: Any = None,
    ) -> Encoded:
        """Encode a forward kernel; see :meth:`MPSCNNKernel.encode`. ``state`` is one that it reads."""
        states, given, asked = None, None, None
        if destination_state is not None:
            states = self._checked_states(destination_state, sources[0].array.shape[0], command_buffer)
        if command_buffer is not None:
            check_encodable(command_buffer)
        if destination_image is None:
            asked = None if destination_size is None else pair("destination_size", destination_size, low=1)
        elif destination_size is None:
            given = image_arguments.destination(self.destination_name, destination_image, sources, command_buffer)
            asked = given.array.shape
        else:
            raise ValueError("destination_image and destination_size are both given; pass one of them, or neither")
        call, own = self._call(sources, asked, state)
        if isinstance(states, list):
            own._check_each_image(sources, call, len(states))
        target = None if given is None else given.array
        array = call.run([*map(array_of, sources)], target, own.backend, operands or None)
        result = (
            image_arguments.in_form_of(sources[0].value, array) if given is None else image_arguments.written(given)
        )
        count_reads(sources)
        if own is not self:
            self._take(own, call)
        if not return_state and states is None:
            return result
        return own._with_state(result, own._completed(call.record, sources, *operands), return_state, states)

    def _call(
        self, sources: Sequence[ImageArgument], asked: Shape | Pair | None, state: Any = None
    ) -> tuple[Call, Self]:
        """Return the call of an encode, and the kernel that runs it: a copy to :meth:`_take`, unless it is known."""
        key: tuple[Hashable, ...] = *map(_shape_of, sources), asked
        if state is not None:
            record = getattr(state, "_record", None)  # any object, until it is checked
            key += id(record), type(state), self._configured_by is record
        call = self._calls.get(key)
        if call is not None and all(map(operator.is_, vars(self).values(), call.properties)):
            return call, self
        if state is not None:
            self._check_state(state)
        own = self._to_configure(state)
        call = own._placed(sources, asked, state)
        if asked is None and state is None and not isinstance(own.padding, MPSNNDefaultPadding):
            return call, own  # a custom policy may return another size each time
        return call._replace(key=key, properties=tuple(vars(own).values())), own

    def _placed(self, sources: Sequence[ImageArgument], asked: Shape | Pair | None = None, state: Any = None) -> Call:
        """Return the call of an encode, whose properties this copy then has."""
        shape, dtype = self._place(sources, asked, state)
        self._shape, kept = shape, sources[0].array.dtype
        indices, region = self._indices(sources, shape)
        shapes = [*map(_shape_of, sources)]
        parts = [*map(part, shapes, indices)]
        written, number, computation = region.shape, len(sources), None
        is_whole, is_empty = written == shape, 0 in written
        if not is_empty or 0 not in written[1:]:
            computation = self._computation or self._problem(parts, written[1:3])
            number = computation.count_of(number)
        return Call(
            computation,
            tuple([None if parts[k] == whole_shape else indices[k] for k, whole_shape in enumerate(shapes)]),
            number,
            self.destination_name,
            shape,
            None if dtype is kept or dtype.newbyteorder("=") == kept.newbyteorder("=") else dtype,
            region,
            is_whole,
            is_empty,
            computation is not None and computation.is_all,
            self._record(sources, indices, shape, region),
        )

    def _indices(self, sources: Sequence[ImageArgument], shape: Shape) -> tuple[Sequence[Index], Region]:
        """Return the index of each source to read and the region of the destination to write."""
        if self._is_whole:
            return self._parts(*map(_shape_of, sources)), whole(shape)
        channels = self._channels(sources)
        first, written = self.destination_feature_channel_offset, self._channels_written(channels)
        region = destination_region(self.destination_name, shape, self.clip_rect, first, written)
        depth, crops = count(region.images), self._crops
        indices: list[Index] = []
        for k, (source, read) in enumerate(zip(sources, channels, strict=True)):
            z = self._of_source(k, "offset").z
            images = images_read(source.name, self._property_name, k, source.array.shape, z, depth)
            rows, columns = crops[k] if k < len(crops) else (WHOLE, WHOLE)
            indices.append((images, rows, columns, read))
        return indices, region

    def _parts(self, *shapes: Shape) -> Sequence[Index]:
        """Return the index of each source of a kernel that writes all of its destination."""
        return [*map(whole, shapes)]

    def _record(
        self, sources: Sequence[ImageArgument], indices: Sequence[Index], shape: Shape, region: Region
    ) -> ForwardRecord:
        properties = tuple(
            [
                _properties((*self._source_properties(k)[:-1], count(channels)))
                for k, (*_, channels) in enumerate(indices)
            ]
        )
        return ForwardRecord(
            type(self),
            properties,
            tuple(map(_shape_of, sources)),
            shape,
            region.clip_rect,
            self.destination_feature_channel_offset,
            count(region.channels),
            self._extras(),
        )

    def _extras(self) -> Mapping[str, object]:
        """Return what a state records in addition to the properties of all kernels."""
        recorded = {name.lstrip("_"): getattr(self, name) for name in self.recorded}
        return {name: value() if inspect.ismethod(value) else value for name, value in recorded.items()}

    def _completed(self, record: ForwardRecord, sources: Sequence[ImageArgument], *operands: Any) -> ForwardRecord:
        """Return the record with what depends on pixels."""
        return record

    def _with_state(
        self,
        result: ImageResult,
        record: ForwardRecord,
        return_state: bool,
        states: RecordedState | list[RecordedState] | None,
    ) -> Encoded:
        """Write the destination states; return the result, with the states if ``return_state``."""
        if isinstance(states, list):
            for k, state in enumerate(states):
                state._refresh(record.of_image(k))
        elif states is not None:
            states._refresh(record)
        elif return_state:
            states = self.state_class(record)
        return (result, states) if return_state else result

    # --- the properties of a source ---

    def _property_name(self, k: int, name: str) -> str:
        return self.prefixes[k] + name if self.prefixes else f"{name}[{k}]"

    def _source_properties(self, k: int) -> SourceProperties:
        values, prefixes = vars(self), self.prefixes
        if prefixes:
            return _properties(_READERS[prefixes[k]](values))
        return _properties([values[name][k] for name in SourceProperties._fields])

    def _of_source(self, k: int, name: str) -> Any:
        """Return one of the :meth:`_source_properties`."""
        prefixes = self.prefixes
        return vars(self)[prefixes[k] + name] if prefixes else vars(self)[name][k]

    def _assign_to_source(self, k: int, **values: object) -> None:
        """Set properties of one source like :meth:`_assign`; without prefixes they are tuples."""
        if self.prefixes:
            self._assign(**{self.prefixes[k] + name: value for name, value in values.items()})
            return
        known = vars(self)
        self._assign(**{name: (*known[name][:k], value, *known[name][k + 1 :]) for name, value in values.items()})

    def _channels(self, sources: Sequence[ImageArgument]) -> list[slice]:
        """Return the channels to read from each source."""
        read, needed = [], self._channels_needed
        for k, source in enumerate(sources):
            *_, first, limit = self._source_properties(k)
            if needed:
                limit = needed[k] if limit is None else min(limit, needed[k])
            read.append(channels_read(source.name, self._property_name, k, source.array.shape, first, limit))
        return read

    def _channels_written(self, read: Sequence[slice]) -> int:
        """Return the number of channels of the result, given the channels read from each source."""
        return count(read[0])

    # --- the destination ---

    def _destination_shape(self, sources: Sequence[ImageArgument], size: Pair) -> Shape:
        """Return the shape of a new destination."""
        z, number = self._of_source(0, "offset").z, sources[0].array.shape[0]
        if z > number:
            name = self._property_name(0, "offset")
            raise ValueError(f"{name}.z is {z}; it must be <= {number}, the number of images of {sources[0].name}")
        first = 0 if self.clip_rect is None else self.clip_rect.origin.z
        written = self._channels_written(self._channels(sources))
        return first + number - z, *size, self.destination_feature_channel_offset + written

    def _infer_padding(self, sources: Sequence[ImageArgument]) -> tuple[Shape, DType]:
        """Set offsets and edge mode by the padding policy; return shape and dtype of the destination."""
        padding = self.padding
        method, sizes = suggested_method(padding), set()
        for k, source in enumerate(sources):
            properties = self._source_properties(k)
            size, (y, x) = forward_placement(source.array.shape[1:3], properties.windows, method)
            sizes.add(size)
            if properties.offset[:2] != (x, y):
                self._assign_to_source(k, offset=MPSOffset(x, y, properties.offset.z))
            if isinstance(padding, MPSNNDefaultPadding) and padding.edge_mode is not None:
                self._assign_to_source(k, edge_mode=padding.edge_mode)
        if len(sizes) > 1:
            raise ShapeError(
                f"the padding policy gives the sources different output sizes, {sorted(sizes)}; pass sources that give "
                "one size, or pass destination_size"
            )
        return self._described(sources, self._destination_shape(sources, sizes.pop()))

    def infer_padding(self, *shapes: Shape) -> Shape:
        """Set offsets and edge mode by the padding policy; return the shape of the destination.

        ``shapes`` are the shapes of the sources. A custom policy receives images of zeros.
        """
        if not shapes:
            raise TypeError("infer_padding has no arguments; pass the shape (N, H, W, C) of each source")
        legal = [arrays.as_shape(f"shapes[{k}]", shape) for k, shape in enumerate(shapes)]
        return self._place(of_zeros(*legal), None, None)[0]

    def _described(self, sources: Sequence[ImageArgument], shape: Shape) -> tuple[Shape, DType]:
        """Return shape and dtype of the destination; a custom policy may change both, and the kernel."""
        dtype = sources[0].array.dtype
        dtype = dtype if dtype.isnative else dtype.newbyteorder("=")
        n, height, width, c = shape
        height, width = height * self._enlarges, width * self._enlarges
        if isinstance(self.padding, MPSNNDefaultPadding):
            return (n, height, width, c), dtype
        suggested = MPSImageDescriptor(types.channel_format("dtype", dtype.name), width, height, c, n)
        images = [image_arguments.as_image(source) for source in sources]
        chosen = self.padding.destination_image_descriptor_for_source_images(images, (), self, suggested)
        if not isinstance(chosen, MPSImageDescriptor):
            raise TypeError(
                f"{type(self.padding).__name__}.destination_image_descriptor_for_source_images returned "
                f"{shown(chosen)}; it must return an MPSImageDescriptor"
            )
        return chosen.shape, chosen.dtype

    def destination_image_descriptor_for_source_images(
        self, source_images: Sequence[ImageLike], source_states: Sequence[MPSState] | MPSState | None = None
    ) -> MPSImageDescriptor:
        """Configure the kernel as an encode without a destination, and return the descriptor of that destination.

        An encode into a destination with this descriptor then gives the result of an encode without destination.

        Parameters
        ----------
        source_images : sequence of images
            The source images of the encode, in its order: one for most kernels; the source gradient and the source
            image for a gradient kernel.
        source_states : sequence of MPSState, optional
            The state of the encode, once or for each image of the batch; empty or ``None`` for none. A gradient kernel
            is configured by its state, and without one by ``padding``.

        Returns
        -------
        MPSImageDescriptor
            Format, size, channels and number of images of the destination.

        Raises
        ------
        ValueError, TypeError
            If an argument is not legal. No property changes.

        Notes
        -----
        ``destinationImageDescriptorForSourceImages:sourceStates:`` in ``MPSCNNKernel.h`` [doc].

        Examples
        --------
        >>> import numpy as np
        >>> from mpsref import mps
        >>> x = np.ones((1, 4, 6, 2), np.float32)
        >>> y, state = mps.MPSCNNPoolingMax(2, 2, 2, 2, offset=(1, 1, 0)).encode(
        ...     x, destination_size=(2, 3), return_state=True
        ... )
        >>> gradient, g = mps.MPSCNNPoolingMaxGradient(2, 2, 2, 2), np.ones_like(y)
        >>> made = gradient.destination_image_descriptor_for_source_images([g, x], [state])
        >>> made.shape, gradient.secondary_offset
        ((1, 4, 6, 2), MPSOffset(x=1, y=1, z=0))
        >>> dx = np.zeros(made.shape, made.dtype)
        >>> gradient.encode(g, x, state, dx) is dx
        True
        """
        legal = (
            f"a list of {self._number_of_sources}, one entry for each source of {type(self).__name__}: put an array "
            "(N, H, W, C) into a list"
        )
        if len(instance_of("source_images", source_images, (list, tuple), legal)) != self._number_of_sources:
            raise ValueError(f"source_images is a list of {len(source_images)}; it must be {legal}")
        sources = [image_arguments.source(f"source_images[{k}]", image) for k, image in enumerate(source_images)]
        state = state_of_batch("source_states", source_states, sources[0].array.shape[0])
        own = self._to_configure(state)
        (n, height, width, channels), dtype = own._infer_destination(sources, state)
        self._take(own)
        return MPSImageDescriptor(types.channel_format("dtype", dtype.name), width, height, channels, n)

    def _infer_destination(self, sources: Sequence[ImageArgument], state: Any) -> tuple[Shape, DType]:
        """Configure the kernel as an encode without destination; return shape and dtype of that."""
        if state is None:
            self._check_without_state(None)
        else:
            self._check_state(state)
            self._configured_by = state.record
        return self._place(sources, None, state)

    # --- states ---

    _needs_state: ClassVar[tuple[type[Exception], str] | None] = None
    """Of a kernel that needs a state, type and message of the error without one."""
    _always_needs_state: Any = True
    """Whether it does with a destination, too."""

    def _check_without_state(self, destination: ImageLike | None) -> None:
        if self._needs_state is not None and (destination is None or self._always_needs_state):
            error, reason = self._needs_state
            raise error(f"gradient_state is None; {reason}")

    def _check_state(self, state: Any) -> None:
        """Raise ``ValueError`` or ``TypeError`` for a state that the kernel does not read."""
        raise ValueError(
            f"source_states has a state of type {type(state).__name__}; {type(self).__name__} reads none: pass None"
        )

    @property
    def is_result_state_reused_across_batch(self) -> bool:
        """Whether all images of a batch must share one state; by default ``False`` [doc].

        Each kernel can also write one state object for a whole batch [design instance-state].
        """
        return False

    def _result_state(
        self,
        sources: Sequence[ImageArgument],
        source_states: Sequence[MPSState] | MPSState | None,
        destination_image: ImageLike | None,
    ) -> Any:
        """Return the state that an encode would return; no property changes."""
        state = state_of_batch("source_states", source_states, sources[0].array.shape[0])
        if state is not None:
            self._check_state(state)
        own, asked = self._to_configure(), None
        if destination_image is not None:
            asked = image_arguments.destination(self.destination_name, destination_image, sources).array.shape
        shape, _ = own._place(sources, asked, None)
        indices, region = own._indices(sources, shape)
        record = own._record(sources, indices, shape, region)
        return self.state_class(own._completed(record, sources))

    def _batch_of(self, state: Any) -> Any:
        """Return a list with a state for each image, or the state itself if all images share one."""
        if self.is_result_state_reused_across_batch:
            return state
        return [type(state)(state.record.of_image(k)) for k in range(state.record.source_shapes[0][0])]

    def _temporary(self, command_buffer: MPSCommandBuffer, state: Any) -> Any:
        """Return a state, or a list of them, as temporary; ``OrderError`` if the command buffer was committed."""
        for member in state if isinstance(state, list) else [state]:
            member._as_temporary(command_buffer)
        return state

    def _checked_states(
        self,
        value: RecordedState | Sequence[RecordedState],
        images: int,
        command_buffer: MPSCommandBuffer | None,
    ) -> RecordedState | list[RecordedState]:
        """Return the state of a batch, or a list with one for each image, unless all images must share a state."""
        if not isinstance(value, (list, tuple)) or self.is_result_state_reused_across_batch or not one_per_image(value):
            state: RecordedState = one_state("destination_state", value, images)
            self._check_destination_state(state)
            check_usable("destination_state", state, command_buffer)
            return state
        if not len(value) == len({id(state) for state in value}) == images:
            raise ValueError(
                f"destination_state is a list of {len(value)} with {len({id(state) for state in value})} different "
                f"objects; there must be a different state for each of {images} image(s), or one for all"
            )
        for k, state in enumerate(value):
            self._check_destination_state(state)
            check_usable(f"destination_state[{k}]", state, command_buffer)
        return list(value)

    def _check_destination_state(self, state: RecordedState) -> None:
        """Raise ``TypeError`` for a state of another class, ``ValueError`` for one that names another kernel."""
        if type(state) is not self.state_class:
            raise TypeError(
                f"destination_state is of type {type(state).__name__}; {type(self).__name__} writes "
                f"{self.state_class.__name__}"
            )
        if state.record.extras.get("kernel", self._kernel) is not self._kernel:
            raise ValueError("destination_state was made by another kernel; pass one that this kernel made, or None")

    def _check_each_image(self, sources: Sequence[ImageArgument], call: Call, images: int) -> None:
        """Raise ``ValueError`` unless image k of the destination is that of image k of each source."""
        clip = call.region.clip_rect
        numbers = {source.name: source.array.shape[0] for source in sources} | {call.name: call.shape[0]}
        if set(numbers.values()) != {images} or (clip.origin.z, clip.size.depth) != (0, images):
            raise ValueError(
                f"destination_state is a list of {images} states, one for each image, but the numbers of images are "
                f"{numbers}, and images {clip.origin.z} to {clip.origin.z + clip.size.depth - 1} are written; pass "
                "one state, or write an image for each source image"
            )
