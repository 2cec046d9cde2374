"""Transposed convolution with Apple's names, whose strides are in the destination: kernel, gradient, nodes of graphs.

>>> import numpy as np
>>> from mpsref.mps import ArrayConvolutionDataSource, MPSCNNConvolutionDescriptor
>>> descriptor = MPSCNNConvolutionDescriptor(3, 1, 1, 1, stride_in_pixels_x=2)
>>> layer = MPSCNNConvolutionTranspose(ArrayConvolutionDataSource(descriptor, [1, 10, 100]))
>>> layer.encode(np.array([1, 2, 3, 4], np.float32).reshape(1, 1, 4, 1)).ravel().tolist()
[10.0, 201.0, 20.0, 302.0, 30.0, 403.0, 40.0]

Source: ``MPSCNNConvolutionTranspose`` in ``MPSCNNConvolution.h`` [doc]; gradients [math].
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from mpsref.arguments.arrays import DType, Shape
from mpsref.arguments.parameters import Pair, PairLike, integer
from mpsref.arguments.text import shown
from mpsref.errors import ShapeError, UnsupportedError
from mpsref.kernels import Convolution, ConvolutionTranspose, Neuron
from mpsref.mps.convolution import (
    MPSCNNConvolution,
    MPSCNNConvolutionGradientNode,
    MPSCNNConvolutionGradientStateNode,
    MPSCNNConvolutionNode,
    WeightParameters,
)
from mpsref.mps.convolution_data_source import LoadedWeights, MPSCNNConvolutionDataSource
from mpsref.mps.convolution_kernel import (
    ForwardWeightedKernel,
    MPSCNNConvolutionGradientState,
    WeightedGradientKernel,
    WeightedKernel,
)
from mpsref.mps.core import image_arguments, types
from mpsref.mps.core.call import Call
from mpsref.mps.core.command_buffer import MPSCommandBuffer
from mpsref.mps.core.image_arguments import Encoded, ImageArgument, ImageLike, batch_form
from mpsref.mps.core.padding import MPSNNDefaultPadding, reverse_placement, suggested_method
from mpsref.mps.core.properties import Alias, Property, instance_of
from mpsref.mps.core.reads import check_usable
from mpsref.mps.core.state import DestinationState, ForwardRecord, MPSState, one_state, state_of_batch
from mpsref.mps.core.types import MPSImageEdgeMode, MPSOffset
from mpsref.mps.graph.nodes import MPSNNImageNode, MPSNNStateNode


class MPSCNNConvolutionTransposeGradientState(MPSCNNConvolutionGradientState):
    """The state of a transposed convolution; the gradients are those for its own weights. Source: [doc]."""

    def __init__(self, record: ForwardRecord) -> None:
        """Make the state of one forward pass; its buffers are zero."""
        super().__init__(record)
        self._paired: ForwardWeightedKernel | None = None

    convolution_transpose: Alias[ForwardWeightedKernel] = Alias(
        "kernel", "The transposed convolution that made the state."
    )
    convolution: Alias[ForwardWeightedKernel | None] = Alias(
        "_paired", "The convolution whose state the transposed one was encoded with, or ``None``."
    )

    def pair(self, state: MPSCNNConvolutionGradientState | None) -> None:
        """Set the state of the convolution that the transposed one was encoded with."""
        if state is not None:
            instance_of("state", state, MPSCNNConvolutionGradientState, "an MPSCNNConvolutionGradientState or None")
        self._paired = None if state is None else state.convolution


class _Transposed(WeightedKernel):
    """A forward or a gradient kernel."""

    def _check_loaded(self, loaded: LoadedWeights) -> None:
        super()._check_loaded(loaded)
        descriptor = loaded.descriptor
        if loaded.data_type != "float32":
            raise ValueError(f"data_source.data_type() is {shown(loaded.data_type)}; here it must be 'float32'")
        if (descriptor.dilation_rate_x, descriptor.dilation_rate_y) != (1, 1):
            raise ValueError(
                f"dilation_rate_x and _y are {descriptor.dilation_rate_x} and {descriptor.dilation_rate_y}; "
                "they must be 1 for a transposed convolution"
            )
        if descriptor.sub_pixel_factor != 1:
            raise UnsupportedError(
                f"sub_pixel_scale_factor is {descriptor.sub_pixel_factor}; a transposed convolution has none: use 1"
            )

    def _function(self, offset: MPSOffset, kernel_offset: Pair) -> ConvolutionTranspose:
        descriptor = self._loaded.descriptor
        return _transposed(
            (descriptor.kernel_height, descriptor.kernel_width),
            (descriptor.stride_in_pixels_y, descriptor.stride_in_pixels_x),
            (offset.y, offset.x),
            kernel_offset,
            descriptor.effective_groups,
            descriptor.neuron,
        )


@functools.lru_cache(maxsize=1024)
def _transposed(
    size: Pair, strides: Pair, offset: Pair, kernel_offset: Pair, groups: int, neuron: Neuron | None
) -> ConvolutionTranspose:
    return ConvolutionTranspose(size, strides, offset, kernel_offset, groups, neuron)


class MPSCNNConvolutionTranspose(_Transposed, ForwardWeightedKernel):
    """Transposed convolution of images (N, H, W, Ci) to (N, OH, OW, Co): :class:`mpsref.ConvolutionTranspose`.

    ``offset`` is in pixels of the source, ``kernel_offset_x`` and ``_y`` in pixels of the result. A padding policy sets
    ``offset`` to 0, and the kernel offsets.
    """

    state_class = MPSCNNConvolutionTransposeGradientState

    kernel_offset_x = Property(integer, 0, "Position of the kernel on the zero-inserted source, in x.")
    kernel_offset_y = Property(integer, 0, "Position of the kernel on the zero-inserted source, in y.")
    edge_mode = Property(types.zero_edge_mode, MPSImageEdgeMode.Zero, "The values outside the source: ``Zero``.")
    is_backwards = Property(lambda _, value: bool(value), True, "``True``: it is a reverse filter.", read_only=True)

    def encode(
        self,
        source_image: ImageLike,
        destination_image: ImageLike | None = None,
        *,
        convolution_gradient_state: MPSCNNConvolutionGradientState
        | Sequence[MPSCNNConvolutionGradientState]
        | None = None,
        destination_size: PairLike | None = None,
        return_state: bool = False,
        destination_state: DestinationState = None,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> Encoded:
        """Run the kernel on an image and return the destination.

        Parameters
        ----------
        convolution_gradient_state : MPSCNNConvolutionGradientState, optional
            The state of a convolution with the same kernel size and strides. The result has the size of the source of
            that convolution, and ``offset`` and ``kernel_offset_x`` and ``_y`` are set to those of its adjoint, whose
            weights are rotated and have input and output channels exchanged.

        Raises
        ------
        ValueError, TypeError
            For arguments that do not fit, such as a destination of another size than that of the convolution's source.
            No error leaves a written image or a changed property.
        """
        source = image_arguments.source("source_image", source_image, command_buffer=command_buffer)
        images = source.array.shape[0]
        paired: Any = convolution_gradient_state
        if isinstance(paired, (list, tuple)):
            paired = one_state("convolution_gradient_state", paired, images)
        if isinstance(paired, MPSState) and paired._reads is not None:
            check_usable("convolution_gradient_state", paired, command_buffer)
        given = destination_image, destination_size, return_state, destination_state, command_buffer
        result = self._encode((source,), *given, state=paired)
        state = result[1] if return_state else one_state("destination_state", destination_state, images)
        if isinstance(state, MPSCNNConvolutionTransposeGradientState):
            state.pair(paired)
        if paired is not None:
            paired._count_read()
        return result

    encode_batch = batch_form(encode)

    def _result_state(
        self,
        sources: Sequence[ImageArgument],
        source_states: Sequence[MPSState] | MPSState | None,
        destination_image: ImageLike | None,
    ) -> MPSCNNConvolutionTransposeGradientState:
        """Return the state; ``source_states`` may contain the state of a convolution."""
        paired = state_of_batch("source_states", source_states, sources[0].array.shape[0])
        if paired is not None:
            self._check_state(paired)
        state: MPSCNNConvolutionTransposeGradientState = super()._result_state(sources, None, destination_image)
        state.pair(paired)
        return state

    def _check_state(self, state: Any) -> None:
        if not isinstance(state, MPSCNNConvolutionGradientState) or not isinstance(state.kernel, MPSCNNConvolution):
            raise TypeError(
                f"convolution_gradient_state is of type {type(state).__name__}; it must be the state that "
                "MPSCNNConvolution.encode(..., return_state=True) returns"
            )
        own = self._source_properties(0).geometry
        if state.source.geometry != own:
            raise ValueError(
                f"kernel size, strides and dilations (x before y) of the convolution are {state.source.geometry}, "
                f"those of this kernel are {own}; they must be the same"
            )

    def _place(self, sources: Sequence[ImageArgument], asked: Shape | Pair | None, state: Any) -> tuple[Shape, DType]:
        if state is not None:  # the adjoint of its convolution
            size = state.source_height, state.source_width
            if asked is not None and (found := asked[1:3] if len(asked) == 4 else asked) != size:
                raise ShapeError(
                    f"destination_{'image' if len(asked) == 4 else 'size'} has height and width {found}; with this "
                    f"convolution_gradient_state it must be {size}, the size of the convolution's source"
                )
            y_window, x_window = state.source.windows
            offset = MPSOffset(0, 0, self.offset.z)
            offsets = {"kernel_offset_x": x_window.kernel_offset(), "kernel_offset_y": y_window.kernel_offset()}
            self._assign(offset=offset, **offsets)
            asked = asked or size
        if asked is not None:
            return super()._place(sources, asked, None)
        properties = self._source_properties(0)
        shape = sources[0].array.shape
        size, (y, x) = reverse_placement(shape[1:3], properties.windows, suggested_method(self.padding))
        self._assign(offset=MPSOffset(0, 0, properties.offset.z), kernel_offset_x=x, kernel_offset_y=y)
        if isinstance(self.padding, MPSNNDefaultPadding) and self.padding.edge_mode is not None:
            self.edge_mode = self.padding.edge_mode
        return self._described(sources, self._destination_shape(sources, size))

    def _spec(self) -> ConvolutionTranspose:
        return self._function(self.offset, (self.kernel_offset_y, self.kernel_offset_x))

    recorded = "_kernel", "kernel_offset_x", "kernel_offset_y"


class MPSCNNConvolutionTransposeGradient(_Transposed, WeightedGradientKernel):
    """The gradient of :class:`MPSCNNConvolutionTranspose`, g (N, OH, OW, Co) and source (N, H, W, Ci) to (N, H, W, Ci).

    The state is required, and determines all offsets, also with a destination, which must have the size of the forward
    source. Offsets and edge modes that are set have no effect [choice transpose-gradient-geometry].
    """

    state_class = MPSCNNConvolutionTransposeGradientState
    forward_class = MPSCNNConvolutionTranspose

    _needs_state = ValueError, "pass the state of the forward pass, which has the offsets"
    _always_needs_state = True
    _from_record = "kernel_offset_x", "kernel_offset_y"

    def _place(self, sources: Sequence[ImageArgument], asked: Shape | Pair | None, state: Any) -> tuple[Shape, DType]:
        if state is None:
            self._check_without_state(None)
        expected = state.source_height, state.source_width
        if asked is not None and asked[1:3] != expected:
            raise ShapeError(
                f"{self.destination_name} has height and width {asked[1:3]}; they must be {expected}, as those of the "
                "forward source"
            )
        shape, dtype = super()._place(sources, None, state)
        return asked or shape, dtype

    def _weights_function(self) -> ConvolutionTranspose:
        return self._function(self.secondary_offset, (self.kernel_offset_y, self.kernel_offset_x))


# --- nodes of graphs --------------------------------------------------------------------------------------------------


class MPSCNNConvolutionTransposeGradientStateNode(MPSCNNConvolutionGradientStateNode):
    """The state of a transposed convolution."""


class MPSCNNConvolutionTransposeGradientNode(MPSCNNConvolutionGradientNode):
    """The gradient of a transposed convolution; the parameters are those of :class:`MPSCNNConvolutionGradientNode`."""

    def __init__(
        self,
        source_gradient: MPSNNImageNode,
        source_image: MPSNNImageNode,
        convolution_transpose_gradient_state: MPSNNStateNode,
        weights: MPSCNNConvolutionDataSource | None = None,
        **properties: Any,
    ) -> None:
        super().__init__(source_gradient, source_image, convolution_transpose_gradient_state, weights, **properties)


class MPSCNNConvolutionTransposeNode(MPSCNNConvolutionNode):
    """A transposed convolution.

    Parameters
    ----------
    source : MPSNNImageNode
        The image.
    convolution_gradient_state : MPSNNStateNode, optional
        The ``result_state`` of a convolution with the same kernel size and strides; the result then has the size of the
        source of that convolution.
    weights : MPSCNNConvolutionDataSource
        The source of descriptor, weights and biases, which is read when a graph is compiled.
    **properties
        Initial values of other properties, by name.
    """

    kind = "convt"
    spec_class = ConvolutionTranspose
    state_class = MPSCNNConvolutionTransposeGradientStateNode
    kernel_class = MPSCNNConvolutionTranspose
    gradient_class = MPSCNNConvolutionTransposeGradientNode

    def __init__(
        self,
        source: MPSNNImageNode,
        convolution_gradient_state: MPSNNStateNode | None = None,
        weights: MPSCNNConvolutionDataSource | None = None,
        **properties: Any,
    ) -> None:
        if weights is None:
            raise TypeError(f"{type(self).__name__} lacks weights; pass a data source")
        if convolution_gradient_state is not None and (
            type(convolution_gradient_state) is not MPSCNNConvolutionGradientStateNode
        ):
            raise TypeError(
                f"convolution_gradient_state is of type {type(convolution_gradient_state).__name__}; it must be the "
                "result_state of a convolution node, or None"
            )
        super().__init__(source, weights, **properties)
        self._source_states = () if convolution_gradient_state is None else (convolution_gradient_state,)

    def _bind(self, shapes: Sequence[Shape], parameters: WeightParameters, states: Sequence[Call]) -> Call:
        if not states:
            return super()._bind(shapes, parameters, states)
        kernel = parameters.kernel._to_configure()
        forward = states[0]
        height, width = forward.record.source_shapes[0][1:3]
        # a fully connected layer has no windows
        windows = forward.spec.windows if isinstance(forward.spec, Convolution) else ()
        own = kernel._source_properties(0).windows
        if [(w.kernel, w.stride) for w in windows] != [(w.kernel, w.stride) for w in own]:
            raise ShapeError("the convolution of its state has another kernel size or other strides; use the same")
        y, x = (window.even - window.offset for window in windows)
        kernel._assign(offset=MPSOffset(0, 0, 0), kernel_offset_x=x, kernel_offset_y=y)
        return self._bound(kernel, shapes, (shapes[0][0], height, width, kernel.output_feature_channels))
