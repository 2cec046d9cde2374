"""Gradient states: records of a forward kernel and its images, which configure the gradient kernel.

``encode(..., return_state=True)`` returns a state. It is a snapshot: later changes of the kernel have no effect on it,
and it can be used more than once.

>>> import numpy as np
>>> from mpsref import mps
>>> pool = mps.MPSCNNPoolingAverage(3, 3, 2, 2)
>>> y, state = pool.encode(np.ones((1, 5, 7, 1), np.float32), return_state=True)
>>> state
<MPSNNGradientState: MPSCNNPoolingAverage, (1, 5, 7, 1) -> (1, 3, 4, 1)>
>>> state.source.offset, state.source_width, state.source_height
(MPSOffset(x=0, y=0, z=0), 7, 5)

Source: ``MPSState.h``, ``MPSNNGradientState.h`` [doc]. More is recorded than offset, edge mode, kernel size and
source size [choice pooling-state-position].
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias, TypeGuard, TypeVar

import numpy as np

from mpsref.arguments.arrays import (
    Array,
    Shape,
    as_shape,
    check_apart,
    check_elements_apart,
    copied,
    is_array,
    is_writable,
)
from mpsref.arguments.device import on_host
from mpsref.arguments.text import cut
from mpsref.errors import NotSynchronizedError, ShapeError
from mpsref.geometry import Window
from mpsref.mps.core.command_buffer import MPSCommandBuffer, check_encodable
from mpsref.mps.core.properties import Alias, Labelled, NoNewAttributes, T, instance_of
from mpsref.mps.core.reads import ReadCounted
from mpsref.mps.core.types import MPSImageEdgeMode, MPSOffset, MTLRegion


class SourceProperties(NamedTuple):
    """The properties of a kernel for one source image, without the prefix of their names."""

    offset: MPSOffset
    edge_mode: MPSImageEdgeMode
    kernel_width: int
    kernel_height: int
    stride_in_pixels_x: int
    stride_in_pixels_y: int
    dilation_rate_x: int
    dilation_rate_y: int
    source_feature_channel_offset: int
    source_feature_channel_max_count: int | None

    @property
    def windows(self) -> tuple[Window, Window]:
        """The window of the y axis and that of the x axis."""
        return _windows(self)

    @property
    def geometry(self) -> tuple[int, ...]:
        """Kernel size, strides and dilations, which a gradient kernel shares."""
        return self[2:8]


@functools.lru_cache(maxsize=1024)
def _windows(source: SourceProperties) -> tuple[Window, Window]:
    return (
        Window(source.kernel_height, source.stride_in_pixels_y, source.dilation_rate_y, source.offset.y),
        Window(source.kernel_width, source.stride_in_pixels_x, source.dilation_rate_x, source.offset.x),
    )


@dataclass(frozen=True)
class ForwardRecord:
    """The properties of a forward kernel when it ran, and the shapes of its images.

    ``source_feature_channel_max_count`` of each source is the number of channels that were read. ``clip_rect`` is
    limited to the destination. ``extras`` are properties of the kernel's family, such as ``zero_pad_size_x``; only
    ``mask`` has an entry for each image.
    """

    kernel_class: type[object]
    sources: tuple[SourceProperties, ...]
    source_shapes: tuple[Shape, ...]
    destination_shape: Shape
    clip_rect: MTLRegion
    destination_feature_channel_offset: int
    destination_feature_channels: int
    extras: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make the extras read-only."""
        object.__setattr__(self, "extras", MappingProxyType(dict(self.extras)))

    def of_image(self, k: int) -> ForwardRecord:
        """Return the record of an encode of image ``k`` alone."""
        clip = self.clip_rect._replace(size=self.clip_rect.size._replace(depth=1))
        mask = self.extras.get("mask")
        return replace(
            self,
            source_shapes=tuple((1, *shape[1:]) for shape in self.source_shapes),
            destination_shape=(1, *self.destination_shape[1:]),
            clip_rect=clip,
            extras=self.extras if mask is None else {**self.extras, "mask": mask[k : k + 1]},
        )


class MPSState(Labelled, NoNewAttributes, ReadCounted):
    """Base class of states: results of kernels in addition to images. Source: ``MPSState.h`` [doc]."""

    kind = "state"
    permanent = "a state that is not temporary"

    def synchronize(self, on_command_buffer: MPSCommandBuffer | None = None) -> None:
        """Check the command buffer: the host may read a state that no kernel writes at any time.

        Raises ``OrderError`` for a committed command buffer, and for a temporary state that kernels cannot use there.
        """
        check_encodable(on_command_buffer)
        self._check_usable(on_command_buffer)

    synchronize_on_command_buffer = synchronize


class SynchronizedState(MPSState):
    """Base class of states that kernels write and the host reads after a completed synchronization.

    A kernel that writes the state calls :meth:`written` when it is encoded, and accessors call :meth:`check_readable`.
    A read is an error before :meth:`synchronize`, before the command buffer of the synchronization has completed, and
    after the next kernel that writes the state.

    Source: ``synchronizeOnCommandBuffer:`` in ``MPSState.h`` [doc]; the same rule on every backend [design host-reads].
    """

    _version = 0
    _readable_version: int | None = None

    def written(self) -> None:
        """Record that a kernel which writes this state was encoded."""
        self._version += 1

    def synchronize(self, on_command_buffer: MPSCommandBuffer | None = None) -> None:
        """Make the state, as written so far, readable by the host.

        Parameters
        ----------
        on_command_buffer : MPSCommandBuffer, optional
            The state is readable when this command buffer has completed; by default at once.

        Raises
        ------
        OrderError
            If the command buffer was committed, and for a temporary state that kernels cannot use there.
        """
        self._check_usable(on_command_buffer)
        if on_command_buffer is None:
            self._readable_version = self._version
            return
        version = self._version

        def completed(_: MPSCommandBuffer) -> None:
            # Command buffers may complete in any order: an older version must not replace a newer one.
            self._readable_version = max(version, self._readable_version or 0)

        check_encodable(on_command_buffer)
        on_command_buffer.add_completed_handler(completed)

    synchronize_on_command_buffer = synchronize

    def check_readable(self, name: str) -> None:
        """Raise ``NotSynchronizedError`` unless the host may read the accessor ``name``."""
        if self._readable_version == self._version:
            return
        reason = (
            "no synchronization of the state has completed yet"
            if self._readable_version is None
            else "a kernel has written the state since the last completed synchronization"
        )
        raise NotSynchronizedError(
            f"{type(self).__name__}.{cut(name)} cannot be read: {reason}; call synchronize(command_buffer), then "
            "command_buffer.wait_until_completed()"
        )


class Buffer(NamedTuple):
    """An array of a state: its own, which is read-only and replaced by a write, or that of the caller.

    As in MPS, a state that is made from a buffer shares it: later writes of the caller count, and kernels write there.
    """

    memory: Array
    is_shared: bool = False

    @classmethod
    def of(cls, given: object, array: Array) -> Self:
        """Return the buffer of a caller's value: it is shared if it is an array that may be written, else copied."""
        is_shared = is_array(given) and is_writable(array)
        return cls(array if is_shared else _view(copied("the buffer", array, array.dtype)), is_shared)

    @property
    def array(self) -> Array:
        """The values, read-only."""
        return _view(self.memory) if self.is_shared else self.memory

    def read(self) -> Array:
        """Return the present values, which later writes do not change."""
        return _view(copied("the buffer", self.memory, self.memory.dtype)) if self.is_shared else self.memory

    def written(self, values: Array) -> Buffer:
        """Return the buffer with other values of the same shape, which are written into shared memory."""
        if not self.is_shared:
            return Buffer(values)
        with np.errstate(over="ignore"):  # values of float64 may overflow to infinity
            self.memory[...] = values
        return self


def _view(array: Array) -> Array:
    """Return a read-only view."""
    view = array.view()
    view.setflags(write=False)
    return view


def check_buffers(**buffers: Buffer | None) -> None:
    """Raise ``ValueError`` for shared buffers that overlap themselves or each other, since kernels write them."""
    shared = [(name, one.memory) for name, one in buffers.items() if one is not None and one.is_shared]
    for k, (name, array) in enumerate(shared):
        check_elements_apart(name, array)
        for other, before in shared[:k]:
            check_apart(name, array, other, before, "kernels write both: pass arrays with memory of their own")


class Synchronized(Alias[T]):
    """A view of an array of a :class:`SynchronizedState`, which the host may read after a synchronization."""

    if not TYPE_CHECKING:

        def __get__(self, instance: SynchronizedState | None, owner: type) -> Any:
            """Return the value; ``NotSynchronizedError`` where the host may not read it."""
            if instance is None:
                return self
            instance.check_readable(self.name)
            return on_host(super().__get__(instance, owner))


class RecordedState(MPSState):
    """A state with a :class:`ForwardRecord`; an encode with this ``destination_state`` replaces the record."""

    __slots__ = ("_record",)

    def __init__(self, record: ForwardRecord) -> None:
        legal = "a ForwardRecord: the encode of the forward kernel returns the state with return_state=True"
        self._record = instance_of("record", record, ForwardRecord, legal)

    @property
    def record(self) -> ForwardRecord:
        """The forward kernel and the shapes of its images; immutable."""
        return self._record

    def _refresh(self, record: ForwardRecord) -> None:
        self._record = record

    def __eq__(self, other: object) -> bool:
        return self._record == other._record if type(other) is type(self) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # an encode may replace the record

    def __repr__(self) -> str:
        shapes = ", ".join(str(shape) for shape in self._record.source_shapes)
        kernel = self._record.kernel_class.__name__
        return f"<{type(self).__name__}: {kernel}, {shapes} -> {self._record.destination_shape}>"


class MPSImageSizeEncodingState(RecordedState):
    """A state with the size of the source image of the forward pass. Source: ``MPSNeuralNetworkTypes.h`` [doc]."""

    __slots__ = ()

    source_width: Alias[int] = Alias(
        "_record.source_shapes", "Width of the forward source image in pixels.", lambda shapes: shapes[0][2]
    )
    source_height: Alias[int] = Alias(
        "_record.source_shapes", "Height of the forward source image in pixels.", lambda shapes: shapes[0][1]
    )


class MPSNNGradientState(MPSImageSizeEncodingState):
    """The state of a kernel with one source, for its gradient kernel. Source: ``MPSNNGradientState.h`` [doc]."""

    __slots__ = ()

    source: Alias[SourceProperties] = Alias(
        "_record.sources", "The properties of the forward kernel for its source image.", itemgetter(0)
    )

    def primary_origin(self, gradient_shape: Shape) -> tuple[MPSOffset, int]:
        """Return the origin of the forward results in a source gradient.

        Parameters
        ----------
        gradient_shape : tuple of int
            Shape of the source gradient (N, H, W, C). Each axis has the length of the forward destination or of the
            forward clip rectangle.

        Returns
        -------
        offset : MPSOffset
            On each axis the origin of the forward clip rectangle in the first case, and 0 in the second.
        channel_offset : int
            The same for the channels.

        Raises
        ------
        ShapeError
            If an axis has another length.

        Notes
        -----
        Combines the two rules in ``MPSCNNPooling.h`` and ``MPSCNNConvolution.h`` [doc, choice pooling-state-position].
        """
        return self._primary_origin(as_shape("gradient_shape", gradient_shape))

    def _primary_origin(self, gradient_shape: Shape) -> tuple[MPSOffset, int]:
        record = self._record
        (x, y, z), (width, height, depth) = record.clip_rect
        if gradient_shape == record.destination_shape:
            return MPSOffset(x, y, z), record.destination_feature_channel_offset
        origins = z, y, x, record.destination_feature_channel_offset
        written = depth, height, width, record.destination_feature_channels
        found = []
        axes = zip("NHWC", gradient_shape, record.destination_shape, origins, written, strict=True)
        for axis, length, whole, origin, clipped in axes:
            if length not in (whole, clipped):
                raise ShapeError(
                    f"source_gradient has shape {tuple(gradient_shape)}; its {axis} must be {whole}, as in the forward "
                    f"destination, or {clipped}, as in the region that the forward kernel wrote"
                )
            found.append(origin if length == whole else 0)
        n, row, column, channel = found
        return MPSOffset(column, row, n), channel


class BufferState(MPSNNGradientState, SynchronizedState):
    """A state with arrays that kernels write; not a class of Apple's. States with equal records hold other arrays."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__  # type: ignore[assignment]


class MPSNNBinaryGradientState(RecordedState):
    """The state of a kernel with two sources, for its gradient kernels. Source: ``MPSNNGradientState.h`` [doc]."""

    __slots__ = ()

    primary: Alias[SourceProperties] = Alias(
        "_record.sources", "The properties of the forward kernel for its primary image.", itemgetter(0)
    )
    secondary: Alias[SourceProperties] = Alias(
        "_record.sources", "The properties of the forward kernel for its secondary image.", itemgetter(1)
    )


class MPSNNMultiaryGradientState(RecordedState):
    """The state of a kernel with any number of sources; no public gradient kernel reads it [doc]."""

    __slots__ = ()


StateLike: TypeAlias = MPSNNGradientState | Sequence[MPSNNGradientState]
"""The state of a batch, or a list that contains it once for each image."""

DestinationState: TypeAlias = RecordedState | Sequence[RecordedState] | None
"""A state that an encode overwrites, or a list with one for each image."""

_State = TypeVar("_State", bound=MPSState | None)


def one_per_image(states: object) -> TypeGuard[Sequence[Any]]:
    """Return whether there are several states, one for each image of a batch."""
    if not isinstance(states, (list, tuple)) or len(states) < 2:
        return False
    return all(isinstance(state, MPSState) for state in states) and any(state is not states[0] for state in states)


def one_state(name: str, value: _State | Sequence[_State], images: int) -> _State:
    """Return the state of a batch: ``value``, or the object that a list contains once for each image.

    Raises ``ValueError`` for a list of another length or with several objects.
    """
    if not isinstance(value, (list, tuple)):
        return value  # type: ignore[return-value]  # other sequences, such as str, fail the later checks
    if not value or len(value) != images or any(state is not value[0] for state in value):
        raise ValueError(
            f"{name} is a list of {len(value)} with {len({id(state) for state in value})} different object(s); it must "
            f"name one and the same state for each of {images} image(s)"
        )
    state: _State = value[0]
    return state


def state_of_batch(name: str, value: Sequence[MPSState] | MPSState | None, images: int) -> Any:
    """Return the one state of a list that is empty, or contains it once, or once for each image; or ``value``.

    Raises ``TypeError`` or ``ValueError`` for anything else.
    """
    states: Sequence[Any] = () if value is None else value if isinstance(value, (list, tuple)) else (value,)
    for k, state in enumerate(states):
        instance_of(f"{name}[{k}]", state, MPSState, "a state, an MPSState")
    return one_state(name, states, images if len(states) > 1 else 1) if states else None
