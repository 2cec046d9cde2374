"""Kernels and nodes that move pixels, with Apple's names: pad, reshape, slice, concatenation.

>>> import numpy as np
>>> pad = MPSNNPad((2, 0, 0), (3, 0, 0), edge_mode="clamp")
>>> y, state = pad.encode(np.arange(3, dtype=np.float32).reshape(1, 1, 3, 1), return_state=True)
>>> y.ravel().tolist()
[0.0, 0.0, 0.0, 1.0, 2.0, 2.0, 2.0, 2.0]
>>> MPSNNPadGradient().encode(np.ones_like(y), np.zeros((1, 1, 3, 1), np.float32), state).ravel().tolist()
[3.0, 1.0, 4.0]

>>> x = np.arange(1, 13, dtype=np.float32).reshape(1, 2, 3, 2)
>>> y, state = MPSNNReshape().encode(
...     x, reshaped_width=1, reshaped_height=3, reshaped_feature_channels=4, return_state=True
... )
>>> y[0, :, 0].tolist()
[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0], [9.0, 10.0, 11.0, 12.0]]
>>> MPSNNReshapeGradient().encode(np.ones_like(y), x, state).shape
(1, 2, 3, 2)

>>> MPSNNSlice(offset_y=1, offset_x=1, feature_channel_offset=1).encode(x - 1).ravel().tolist()
[9.0, 11.0]

Source: ``MPSNNReshape.h``, ``MPSNNSlice.h``, ``MPSNNGraphNodes.h`` [doc]; the order of the elements of a reshape, and
the size of a slice as arguments in place of the clip rectangle [design arithmetic-channel-offset]. MPS declares no
gradient for a slice.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mpsref.arguments.arrays import DType, Shape
from mpsref.arguments.parameters import Pair, choice, integer, number
from mpsref.errors import ShapeError, UnsupportedError
from mpsref.kernels import Concatenation, Pad, Reshape, Slice
from mpsref.kernels.pad import EDGES
from mpsref.kernels.reshape import ORDERS
from mpsref.mps.core import image_arguments, types
from mpsref.mps.core.call import Call, Computation, made, problem_of
from mpsref.mps.core.command_buffer import MPSCommandBuffer
from mpsref.mps.core.encode import of_zeros
from mpsref.mps.core.image_arguments import Encoded, ImageArgument, ImageLike, batch_form
from mpsref.mps.core.image_kernels import MPSCNNMultiaryKernel
from mpsref.mps.core.properties import Argument, Property, at_least, constructed, instance_of, optional
from mpsref.mps.core.state import DestinationState, MPSState
from mpsref.mps.core.types import MPSImageEdgeMode
from mpsref.mps.core.whole_image import WholeImage, WholeImageGradient, WholeImageKernel
from mpsref.mps.graph.nodes import (
    ForwardKernelNode,
    GradientKernelNode,
    MPSNNFilterNode,
    MPSNNGradientFilterNode,
    MPSNNImageNode,
    MPSNNStateNode,
)
from mpsref.mps.graph.trainable import NodeParameters

# --- pad --------------------------------------------------------------------------------------------------------------


class MPSImageCoordinate(NamedTuple):
    """A position in an image, or a size along its axes. Source: ``MPSCoreTypes.h`` [doc]."""

    x: int
    y: int
    channel: int


NONE = MPSImageCoordinate(0, 0, 0)


def coordinate(name: str, value: object) -> MPSImageCoordinate:
    """Return ``value`` as a coordinate (x, y, channel), each >= 0; errors as in :func:`types.offset`."""
    return MPSImageCoordinate(*types.unsigned(name, value, MPSImageCoordinate._fields))


_edge_mode = types.edge_modes(*MPSImageEdgeMode)


def _fills(name: str, value: Any) -> tuple[float, ...] | None:
    return None if value is None else Pad(fill_values=value).fill_values


@constructed(init=False)
class _PadSizes:
    """The padding of each axis."""

    padding_size_before: Argument[tuple[int, int, int]] = Argument(
        coordinate, "Columns, rows and channels before the image, each >= 0.", default=NONE, read_only=False
    )
    padding_size_after: Argument[tuple[int, int, int]] = Argument(
        coordinate, "Columns, rows and channels after the image, each >= 0.", default=NONE, read_only=False
    )

    def _padding(self) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        before, after = ((y, x, c) for x, y, c in (self.padding_size_before, self.padding_size_after))
        return before, after


@constructed(init=False, kw_only=True)
class _Filled:
    fill_value: Property[float] = Property(number, 0.0, "The value for ``Constant``.")


@constructed()
class MPSNNPad(_Filled, _PadSizes, WholeImageKernel):
    """Rows, columns and channels around an image: :class:`mpsref.Pad`.

    ``edge_mode`` is any of the five; ``Constant`` fills with ``fill_value``, or with ``fill_value_array``, a number for
    each channel of the result.
    """

    fixed = tuple(name for name in WholeImageKernel.fixed if name != "edge_mode")
    edge_mode = Property(_edge_mode, MPSImageEdgeMode.Zero, "The values of the padding.")
    fill_value_array: Argument[Sequence[float] | None] = Argument(
        _fills, "The value of each channel for ``Constant``; ``None``: fill_value.", default=None, read_only=False
    )

    def _function(self) -> Pad:
        values = self.fill_value, self.fill_value_array
        return made(Pad, *self._padding(), EDGES[self.edge_mode], *values)  # type: ignore[no-any-return]


@constructed()
class MPSNNPadGradient(_PadSizes, WholeImageGradient):
    """The gradient of :class:`MPSNNPad`: the sum over the copies of each pixel.

    A state sets the sizes, and ``secondary_edge_mode`` to the edge mode of the forward kernel.
    """

    forward_class = MPSNNPad
    fixed = tuple(name for name in WholeImageGradient.fixed if name != "secondary_edge_mode")
    secondary_edge_mode = Property(_edge_mode, MPSImageEdgeMode.Zero, "The edge mode of the forward kernel.")

    def _configuration(self, state: Any, g: Shape, x: Shape) -> Mapping[str, object]:
        function: Pad = state.record.extras["function"]
        before, after = (MPSImageCoordinate(x, y, c) for y, x, c in (function.before, function.after))
        sizes = {"padding_size_before": before, "padding_size_after": after}
        return {**super()._configuration(state, g, x), **sizes, "secondary_edge_mode": state.source.edge_mode}

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        return Computation(problem_of(Pad(*self._padding(), EDGES[self.secondary_edge_mode]), "gradient", shapes[1]))


class MPSNNPadGradientNode(GradientKernelNode):
    """The gradient of a pad."""

    kernel_class, reads_pixels = MPSNNPadGradient, False


@constructed()
class MPSNNPadNode(_Filled, ForwardKernelNode):
    """Rows, columns and channels around an image."""

    kind, spec_class, kernel_class, custom_policy = "pad", Pad, MPSNNPad, "ignored"
    gradient_class = MPSNNPadGradientNode
    padding_size_before: Argument[tuple[int, int, int]] = Argument(MPSNNPad.padding_size_before, read_only=False)
    padding_size_after: Argument[tuple[int, int, int]] = Argument(MPSNNPad.padding_size_after, read_only=False)
    edge_mode: Argument[MPSImageEdgeMode | int | str] = Argument(
        _edge_mode, MPSNNPad.edge_mode.__doc__ or "", default=MPSImageEdgeMode.Zero
    )


# --- reshape ----------------------------------------------------------------------------------------------------------


class MPSNNReshape(WholeImageKernel):
    """The same elements in another shape, an argument of ``encode``: :class:`mpsref.Reshape`."""

    repeats = False  # the size is an argument of encode

    element_order = Property(
        functools.partial(choice, legal=ORDERS), "HWC", 'The order of the elements: "HWC" or "CHW".'
    )

    _size: tuple[int, int, int]

    def encode(  # type: ignore[override]  # as Apple's selector, which has the size among its arguments
        self,
        source_image: ImageLike,
        destination_image: ImageLike | None = None,
        *,
        reshaped_width: int,
        reshaped_height: int,
        reshaped_feature_channels: int,
        return_state: bool = False,
        destination_state: DestinationState = None,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> Encoded:
        """Return ``source_image`` (N, H, W, C) in the new shape.

        Parameters
        ----------
        reshaped_width, reshaped_height, reshaped_feature_channels : int
            The size of the result, with as many elements as an image of the source.

        Raises
        ------
        ShapeError
            For another number of elements.
        """
        source = image_arguments.source("source_image", source_image, command_buffer=command_buffer)
        sizes = {"height": reshaped_height, "width": reshaped_width, "feature_channels": reshaped_feature_channels}
        height, width, channels = [integer(f"reshaped_{name}", value, low=1) for name, value in sizes.items()]
        sized = self._to_configure()
        sized._size = made(Reshape, (height, width, channels)).size  # the same object for a size, as calls need it
        return sized._encode((source,), destination_image, None, return_state, destination_state, command_buffer)

    encode_batch = batch_form(encode)

    def _place(self, sources: Sequence[ImageArgument], asked: Shape | Pair | None, state: Any) -> tuple[Shape, DType]:
        if not hasattr(self, "_size"):
            raise UnsupportedError(
                "the size of a reshaped image is an argument of MPSNNReshape.encode: pass reshaped_width, "
                "reshaped_height and reshaped_feature_channels there"
            )
        return super()._place(sources, asked, state)

    def _result_state(
        self,
        sources: Sequence[ImageArgument],
        source_states: Sequence[MPSState] | MPSState | None,
        destination_image: ImageLike | None,
    ) -> Any:
        sized = self.copy()
        if destination_image is not None:
            given = image_arguments.destination(self.destination_name, destination_image, sources)
            sized._size = given.array.shape[1:]
        return super(MPSNNReshape, sized)._result_state(sources, source_states, destination_image)

    def _function(self) -> Reshape:
        return made(Reshape, self._size, self.element_order)  # type: ignore[no-any-return]


class MPSNNReshapeGradient(WholeImageGradient):
    """The gradient of :class:`MPSNNReshape`: the source gradient in the shape of the source image.

    A state sets the order of the elements.
    """

    forward_class = MPSNNReshape
    element_order = MPSNNReshape.element_order

    def _configuration(self, state: Any, g: Shape, x: Shape) -> Mapping[str, object]:
        order = state.record.extras["function"].element_order
        return {**super()._configuration(state, g, x), "element_order": order}

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        _, height, width, channels = shapes[0] if self._state is None else self._state.record.destination_shape
        function = Reshape((height, width, channels), self.element_order)  # type: ignore[arg-type]
        return Computation(problem_of(function, "gradient", shapes[1]))


class MPSNNReshapeGradientNode(GradientKernelNode):
    """The gradient of a reshape."""

    kernel_class, reads_pixels = MPSNNReshapeGradient, False


class MPSNNReshapeNode(ForwardKernelNode):
    """The same elements in another shape.

    Parameters
    ----------
    source : MPSNNImageNode
        The image.
    result_width, result_height, result_feature_channels : int
        The size of the result, each >= 1.
    **properties
        Initial values of other properties, by name.
    """

    kind = "reshape"
    custom_policy = "ignored"
    spec_class = Reshape
    kernel_class = MPSNNReshape
    gradient_class = MPSNNReshapeGradientNode

    def __init__(
        self,
        source: MPSNNImageNode,
        result_width: int,
        result_height: int,
        result_feature_channels: int,
        **properties: Any,
    ) -> None:
        self._size = Reshape((result_height, result_width, result_feature_channels)).size
        super().__init__(source, **properties)

    def _kernel(self) -> MPSNNReshape:
        kernel = MPSNNReshape()
        kernel._size = self._size
        return kernel


# --- slice ------------------------------------------------------------------------------------------------------------


@constructed()
class MPSNNSlice(WholeImageKernel):
    """A box of an image, with zeros outside the image: :class:`mpsref.Slice`."""

    offset_y: Argument[int] = Argument(integer, "The first row; any integer.", default=0, read_only=False)
    offset_x: Argument[int] = Argument(integer, "The first column; any integer.", default=0, read_only=False)
    feature_channel_offset: Argument[int] = Argument(at_least(0), "The first channel.", default=0, read_only=False)
    height: Argument[int | None] = Argument(
        optional(at_least(1)), "How many rows; ``None``: to the end.", default=None, read_only=False
    )
    width: Argument[int | None] = Argument(
        optional(at_least(1)), "How many columns; ``None``: to the end.", default=None, read_only=False
    )
    feature_channels: Argument[int | None] = Argument(
        optional(at_least(1)), "How many channels; ``None``: to the end.", default=None, read_only=False
    )

    def _function(self) -> Slice:
        first = self.offset_y, self.offset_x, self.feature_channel_offset
        return made(Slice, first, (self.height, self.width, self.feature_channels))  # type: ignore[no-any-return]


# --- concatenation ----------------------------------------------------------------------------------------------------


class MPSNNConcatenationGradientNode(MPSNNGradientFilterNode):
    """The gradient of a concatenation for one source: its channels of the source gradient.

    The parameter ``source_index`` is not in MPS, which finds the source by its image.
    """

    reads_pixels, _of_each = False, True

    def __init__(
        self,
        source_gradient: MPSNNImageNode,
        source_image: MPSNNImageNode,
        gradient_state: MPSNNStateNode,
        source_index: int = 0,
        **properties: Any,
    ) -> None:
        super().__init__(source_gradient, source_image, gradient_state, source_index=source_index, **properties)

    kernel_class, spec_class, _called = MPSNNSlice, Slice, ("forward",)

    def _bind(self, shapes: Sequence[Shape], parameters: NodeParameters | None, states: Sequence[Call]) -> Call:
        forward, kernel = super()._bind(shapes, parameters, states), self._compiled._to_configure()
        first = forward.computation.problem.offsets[self.source_index]  # type: ignore[union-attr]
        kernel._assign(feature_channel_offset=first, feature_channels=forward.shape[3])
        return kernel._placed(of_zeros(shapes[0]))  # type: ignore[no-any-return]


class _Concatenation(WholeImage, MPSCNNMultiaryKernel):
    """The kernel of the node, which MPS does not have."""

    fixed = ()
    channel_alignment = Property(at_least(1), 4, "The multiple of channels of a source; MPS has 4 only.")

    def _function(self) -> Concatenation:
        return made(Concatenation, self.channel_alignment)  # type: ignore[no-any-return]

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        for k, shape in enumerate(shapes):
            if shape[:3] != shapes[0][:3]:
                raise ShapeError(f"source {k} has shape {shape}, source 0 {shapes[0]}; N, H, W must be equal")
        return Computation(problem_of(self._function(), "forward", shapes[0][:3], tuple(shape[3] for shape in shapes)))


class MPSNNConcatenationNode(MPSNNFilterNode):
    """The channels of several images; each source is padded to a multiple of ``channel_alignment`` channels [doc].

    Examples
    --------
    >>> node = MPSNNConcatenationNode([MPSNNImageNode(), MPSNNImageNode()])
    >>> node.channel_alignment
    4
    """

    kind = "cat"
    spec_class = Concatenation
    gradient_class = MPSNNConcatenationGradientNode
    kernel_class = _Concatenation
    channel_alignment = _Concatenation.channel_alignment

    def __init__(self, sources: Sequence[MPSNNImageNode], **properties: Any) -> None:
        instance_of("sources", sources, (list, tuple), "a list of image nodes")
        if not sources:
            raise ValueError("sources is empty; a concatenation must have at least one")
        super().__init__(sources, **properties)

    @property
    def differentiable_sources(self) -> Sequence[int]:
        """All sources."""
        return range(len(self.source_images))

    _has_several = True  # the header marks the singular form unavailable, also for one source [doc]

    def _kernel(self) -> _Concatenation:
        kernel = _Concatenation(len(self.source_images))
        kernel.channel_alignment = self.channel_alignment
        return kernel
