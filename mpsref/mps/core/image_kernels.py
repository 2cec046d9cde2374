"""Kernels with one source image, two, or any number of them: their properties, and the arguments of their encodes.

Source: ``MPSCNNKernel.h`` [doc].
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, ParamSpec, TypeVar

from mpsref.arguments.parameters import PairLike, integer
from mpsref.mps.core import image_arguments, types
from mpsref.mps.core.command_buffer import MPSCommandBuffer
from mpsref.mps.core.encode import ImageKernel
from mpsref.mps.core.image_arguments import Encoded, ImageLike, batch_form
from mpsref.mps.core.properties import Alias, Argument, PerSource, Property, at_least, constructed, multiple_of_four
from mpsref.mps.core.state import (
    DestinationState,
    MPSNNBinaryGradientState,
    MPSNNMultiaryGradientState,
    MPSState,
    RecordedState,
)
from mpsref.mps.core.types import MPSImageEdgeMode, MPSOffset

_T = TypeVar("_T")
_P = ParamSpec("_P")


def _state_forms(state_for: Callable[_P, Any]) -> tuple[Callable[_P, Any], Callable[..., Any], Callable[..., Any]]:
    """Return the forms of a method that returns the state of an encode: for a batch, and temporary ones of both."""
    one, several = state_for.__name__, state_for.__name__.replace("state", "state_batch")

    def batch(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return self._batch_of(getattr(self, one)(*arguments, **keywords))

    def temporary(self: Any, command_buffer: MPSCommandBuffer, *arguments: Any, **keywords: Any) -> Any:
        return self._temporary(command_buffer, getattr(self, one)(*arguments, **keywords))

    def temporary_batch(self: Any, command_buffer: MPSCommandBuffer, *arguments: Any, **keywords: Any) -> Any:
        return self._temporary(command_buffer, getattr(self, several)(*arguments, **keywords))

    forms: Any = batch, temporary, temporary_batch
    named = (
        (several, f"Return a list with a new state for each image of a batch.\n\n{ONE_FOR_ALL} :meth:`{one}`."),
        (f"temporary_{one.partition('_for_')[0]}_for_command_buffer", f"Return :meth:`{one}` as {TEMPORARY}"),
        (f"temporary_{several.partition('_for_')[0]}_for_command_buffer", f"Return :meth:`{several}` as {TEMPORARY}"),
    )
    signature = inspect.signature(state_for)
    own, *others = signature.parameters.values()
    for form, (name, text) in zip(forms, named, strict=True):
        form.__name__, form.__doc__ = name, text
        leading = [buffer for key, buffer in inspect.signature(form).parameters.items() if key == "command_buffer"]
        form.__signature__ = signature.replace(parameters=[own, *leading, *others])
        form.__qualname__ = state_for.__qualname__.replace(one, name)
    return forms  # type: ignore[no-any-return]


ONE_FOR_ALL = "If :attr:`is_result_state_reused_across_batch`, return the one state of"
TEMPORARY = """temporary: ``read_count`` is 1.

Raises ``OrderError`` if the command buffer was committed."""


@constructed(init=False, kw_only=True)
class MPSCNNKernel(ImageKernel):
    """A kernel with one source image. Source: ``MPSCNNKernel`` in ``MPSCNNKernel.h`` [doc]."""

    offset: Property[MPSOffset] = Property(
        types.offset, MPSOffset(0, 0, 0), "The source pixel of the first pixel of the clip rectangle, MPSOffset."
    )
    edge_mode: Property[MPSImageEdgeMode] = Property(
        types.edge_mode, MPSImageEdgeMode.Zero, "The values outside the source: ``Zero`` or ``Clamp``."
    )
    source_feature_channel_offset: Property[int] = Property(
        multiple_of_four, 0, "The first channel that is read; a multiple of 4."
    )
    source_feature_channel_max_count: Property[int | None] = Property(
        types.limit, None, "The largest number of channels that are read; ``None`` or NSUIntegerMax for all."
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
        destination_state: DestinationState = None,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> Encoded:
        """Run the kernel on an image and return the destination.

        Parameters
        ----------
        source_image : array_like, MPSImage or batch of images
            The source (N, H, W, C); for some normalizations also a list of arrays whose images have one size.
        destination_image : ndarray, MPSImage or batch of images, optional
            The image to write, not for a list; pixels outside ``clip_rect`` are kept. The present ``offset`` is used.
        destination_size : int or tuple of int, optional
            Height and width of a new destination, zero outside ``clip_rect``. The present ``offset`` is used. Without
            ``destination_image`` and ``destination_size``, ``padding`` sets the size and the property ``offset``.
        return_state : bool, default False
            Whether to return also a state for the gradient kernel.
        destination_state : MPSState or sequence of them, optional
            A state to overwrite and return in place of a new one, or a list with a different state for each image, each
            of which then records its image only.

        Returns
        -------
        destination : ndarray, MPSImage, MPSImageBatch or list of ndarray
            Of the kind of ``source_image``; with ``return_state=True`` a tuple (destination, state).

        Notes
        -----
        ``encodeToCommandBuffer:sourceImage:destinationImage:`` and its variants in ``MPSCNNKernel.h`` [doc].

        Examples
        --------
        >>> import numpy as np
        >>> from mpsref import mps
        >>> pool = mps.MPSCNNPoolingMax(2, 2, 2, 2, offset=(1, 1, 0))
        >>> x = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
        >>> pool.encode(x, destination_size=(2, 2))[0, :, :, 0].tolist()
        [[5.0, 7.0], [13.0, 15.0]]
        """
        source = image_arguments.source("source_image", source_image, self.accepts_lists, command_buffer)
        return self._encode(
            (source,), destination_image, destination_size, return_state, destination_state, command_buffer
        )

    encode_batch = batch_form(encode)

    def result_state_for_source_image(
        self,
        source_image: ImageLike,
        source_states: Sequence[MPSState] | MPSState | None = None,
        destination_image: ImageLike | None = None,
    ) -> Any:
        """Return the state that an encode of ``source_image`` into ``destination_image`` would return.

        Parameters
        ----------
        source_image : array_like (N, H, W, C), MPSImage or batch of images
            The source of the encode.
        source_states : sequence of MPSState, optional
            The states that the encode reads; most kernels read none.
        destination_image : ndarray, MPSImage or batch of images, optional
            The destination of the encode; without one, ``padding`` decides as in an encode.

        Returns
        -------
        MPSState
            A state that records the properties of the kernel, for ``destination_state`` of an encode, which draws the
            mask of a dropout. No property changes.

        Raises
        ------
        ValueError, TypeError
            As the encode.
        Notes
        -----
        ``resultStateForSourceImage:sourceStates:destinationImage:`` in ``MPSCNNKernel.h`` [doc].
        """
        source = image_arguments.source("source_image", source_image)
        return self._result_state((source,), source_states, destination_image)

    (
        result_state_batch_for_source_image,
        temporary_result_state_for_command_buffer,
        temporary_result_state_batch_for_command_buffer,
    ) = _state_forms(result_state_for_source_image)


@constructed(init=False, kw_only=True)
class MPSCNNBinaryKernel(ImageKernel):
    """A kernel with a primary and a secondary source image.

    Each source has the source properties of :class:`mpsref.mps.MPSCNNKernel`, with the prefix ``primary_`` or
    ``secondary_``. Source: ``MPSCNNBinaryKernel`` in ``MPSCNNKernel.h`` [doc].
    """

    prefixes = ("primary_", "secondary_")
    state_class: ClassVar[type[RecordedState]] = MPSNNBinaryGradientState

    primary_offset: Property[MPSOffset] = MPSCNNKernel.offset.replace()
    primary_edge_mode: Property[MPSImageEdgeMode] = MPSCNNKernel.edge_mode.replace()
    primary_source_feature_channel_offset: Property[int] = MPSCNNKernel.source_feature_channel_offset.replace()
    primary_source_feature_channel_max_count: Property[int | None] = (
        MPSCNNKernel.source_feature_channel_max_count.replace()
    )
    primary_kernel_width = MPSCNNKernel.kernel_width.replace()
    primary_kernel_height = MPSCNNKernel.kernel_height.replace()
    primary_stride_in_pixels_x: Property[int] = MPSCNNKernel.stride_in_pixels_x.replace(read_only=False)
    primary_stride_in_pixels_y: Property[int] = MPSCNNKernel.stride_in_pixels_y.replace(read_only=False)
    primary_dilation_rate_x = MPSCNNKernel.dilation_rate_x.replace()
    primary_dilation_rate_y = MPSCNNKernel.dilation_rate_y.replace()

    secondary_offset: Property[MPSOffset] = MPSCNNKernel.offset.replace()
    secondary_edge_mode: Property[MPSImageEdgeMode] = MPSCNNKernel.edge_mode.replace()
    secondary_source_feature_channel_offset: Property[int] = MPSCNNKernel.source_feature_channel_offset.replace()
    secondary_source_feature_channel_max_count: Property[int | None] = (
        MPSCNNKernel.source_feature_channel_max_count.replace()
    )
    secondary_kernel_width = MPSCNNKernel.kernel_width.replace()
    secondary_kernel_height = MPSCNNKernel.kernel_height.replace()
    secondary_stride_in_pixels_x: Property[int] = MPSCNNKernel.stride_in_pixels_x.replace(read_only=False)
    secondary_stride_in_pixels_y: Property[int] = MPSCNNKernel.stride_in_pixels_y.replace(read_only=False)
    secondary_dilation_rate_x = MPSCNNKernel.dilation_rate_x.replace()
    secondary_dilation_rate_y = MPSCNNKernel.dilation_rate_y.replace()

    def encode(
        self,
        primary_image: ImageLike,
        secondary_image: ImageLike,
        destination_image: ImageLike | None = None,
        *,
        destination_size: PairLike | None = None,
        return_state: bool = False,
        destination_state: DestinationState = None,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> Encoded:
        """Run the kernel on two images and return the destination.

        Parameters
        ----------
        primary_image, secondary_image : array_like, MPSImage or batch of images
            The sources (N, H, W, C).
        destination_image, destination_size, return_state, destination_state, command_buffer : optional
            As in :meth:`mpsref.mps.MPSCNNKernel.encode`; ``padding`` sets the offset of each source.

        Returns
        -------
        destination : ndarray, MPSImage or MPSImageBatch
            Of the kind of ``primary_image``; with ``return_state=True`` a tuple (destination, state).

        Raises
        ------
        ShapeError
            If ``padding`` gives the sources different output sizes.

        Notes
        -----
        ``encodeToCommandBuffer:primaryImage:secondaryImage:destinationImage:`` and its variants in
        ``MPSCNNKernel.h`` [doc].
        """
        sources = (
            image_arguments.source("primary_image", primary_image, command_buffer=command_buffer),
            image_arguments.source("secondary_image", secondary_image, command_buffer=command_buffer),
        )
        return self._encode(
            sources, destination_image, destination_size, return_state, destination_state, command_buffer
        )

    encode_batch = batch_form(encode)

    def result_state_for_primary_image(
        self,
        primary_image: ImageLike,
        secondary_image: ImageLike,
        source_states: Sequence[MPSState] | MPSState | None = None,
        destination_image: ImageLike | None = None,
    ) -> Any:
        """Return the state that an encode would return.

        As :meth:`mpsref.mps.MPSCNNKernel.result_state_for_source_image`.
        """
        sources = (
            image_arguments.source("primary_image", primary_image),
            image_arguments.source("secondary_image", secondary_image),
        )
        return self._result_state(sources, source_states, destination_image)

    (
        result_state_batch_for_primary_image,
        temporary_result_state_for_command_buffer,
        temporary_result_state_batch_for_command_buffer,
    ) = _state_forms(result_state_for_primary_image)


def _at_index(
    values: PerSource[_T],
) -> tuple[Callable[[MPSCNNMultiaryKernel, int], _T], Callable[[MPSCNNMultiaryKernel, object, int], None]]:
    """Return the methods that read and set the value of a property for one source."""

    def value_at_index(self: MPSCNNMultiaryKernel, index: int) -> _T:
        """Return the value for source ``index``; ``ValueError`` if there is no such source."""
        value: _T = getattr(self, values.name)[self._index(index)]
        return value

    def set_value(self: MPSCNNMultiaryKernel, value: object, at_index: int) -> None:
        """Set the value for source ``at_index``; ``ValueError`` if there is no such source."""
        changed = list(getattr(self, values.name))
        changed[self._index(at_index)] = value
        setattr(self, values.name, changed)

    return value_at_index, set_value


@constructed()
class MPSCNNMultiaryKernel(ImageKernel):
    """A kernel with ``source_count`` source images, each with its own set of properties.

    Methods such as ``offset_at_index(index)`` and ``set_offset(value, at_index)`` read and set the value of one source.
    The properties themselves are tuples with one value for each source.

    Notes
    -----
    ``MPSCNNMultiaryKernel`` in ``MPSCNNKernel.h`` [doc].
    """

    state_class = MPSNNMultiaryGradientState
    prefixes = ()
    _number_of_sources = Alias("source_count", "The number of source images.")

    source_count: Argument[int] = Argument(at_least(1), "The number of source images, >= 1.")
    offset = PerSource(MPSCNNKernel.offset)
    edge_mode = PerSource(MPSCNNKernel.edge_mode)
    kernel_width = PerSource(MPSCNNKernel.kernel_width)
    kernel_height = PerSource(MPSCNNKernel.kernel_height)
    stride_in_pixels_x = PerSource(MPSCNNKernel.stride_in_pixels_x)
    stride_in_pixels_y = PerSource(MPSCNNKernel.stride_in_pixels_y)
    dilation_rate_x = PerSource(MPSCNNKernel.dilation_rate_x)
    dilation_rate_y = PerSource(MPSCNNKernel.dilation_rate_y)
    source_feature_channel_offset = PerSource(MPSCNNKernel.source_feature_channel_offset)
    source_feature_channel_max_count = PerSource(MPSCNNKernel.source_feature_channel_max_count)

    offset_at_index, set_offset = _at_index(offset)
    edge_mode_at_index, set_edge_mode = _at_index(edge_mode)
    kernel_width_at_index, set_kernel_width = _at_index(kernel_width)
    kernel_height_at_index, set_kernel_height = _at_index(kernel_height)
    stride_in_pixels_x_at_index, set_stride_in_pixels_x = _at_index(stride_in_pixels_x)
    stride_in_pixels_y_at_index, set_stride_in_pixels_y = _at_index(stride_in_pixels_y)
    dilation_rate_x_at_index, set_dilation_rate_x = _at_index(dilation_rate_x)
    dilation_rate_y_at_index, set_dilation_rate_y = _at_index(dilation_rate_y)
    source_feature_channel_offset_at_index, set_source_feature_channel_offset = _at_index(source_feature_channel_offset)
    source_feature_channel_max_count_at_index, set_source_feature_channel_max_count = _at_index(
        source_feature_channel_max_count
    )

    def encode(
        self,
        source_images: Sequence[ImageLike],
        destination_image: ImageLike | None = None,
        *,
        destination_size: PairLike | None = None,
        return_state: bool = False,
        destination_state: DestinationState = None,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> Encoded:
        """Run the kernel on ``source_count`` images and return the destination.

        Parameters
        ----------
        source_images : sequence of array_like, MPSImage or batch of images
            The sources, each (N, H, W, C).
        destination_image, destination_size, return_state, destination_state, command_buffer : optional
            As in :meth:`mpsref.mps.MPSCNNKernel.encode`; ``padding`` sets the offset of each source.

        Returns
        -------
        destination : ndarray, MPSImage or MPSImageBatch
            Of the kind of the first source; with ``return_state=True`` a tuple (destination, state).

        Raises
        ------
        ValueError, TypeError, OrderError
            As in :meth:`mpsref.mps.MPSCNNKernel.encode`, and ``ValueError`` for another number of sources.

        Notes
        -----
        ``encodeToCommandBuffer:sourceImages:destinationImage:`` and its variants in ``MPSCNNKernel.h`` [doc].
        """
        if len(source_images) != self.source_count:
            raise ValueError(
                f"source_images has {len(source_images)} images; the kernel has source_count={self.source_count}"
            )
        sources = [
            image_arguments.source(f"source_images[{k}]", image, command_buffer=command_buffer)
            for k, image in enumerate(source_images)
        ]
        return self._encode(
            sources, destination_image, destination_size, return_state, destination_state, command_buffer
        )

    encode_batch = batch_form(encode)

    def result_state_for_source_images(
        self,
        source_images: Sequence[ImageLike],
        source_states: Sequence[MPSState] | MPSState | None = None,
        destination_image: ImageLike | None = None,
    ) -> Any:
        """Return the state that an encode would return.

        As :meth:`mpsref.mps.MPSCNNKernel.result_state_for_source_image`.
        """
        sources = [image_arguments.source(f"source_images[{k}]", image) for k, image in enumerate(source_images)]
        return self._result_state(sources, source_states, destination_image)

    (
        result_state_batch_for_source_images,
        temporary_result_state_for_command_buffer,
        temporary_result_state_batch_for_command_buffer,
    ) = _state_forms(result_state_for_source_images)

    def _index(self, index: int) -> int:
        number = integer("index", index, low=0)
        if number >= self.source_count:
            raise ValueError(f"index is {number}; it must be < source_count={self.source_count}")
        return number
