"""Convolution with Apple's names: kernel, gradient, and nodes of graphs.

>>> import numpy as np
>>> from mpsref.mps import ArrayConvolutionDataSource, MPSCNNConvolutionDescriptor
>>> descriptor = MPSCNNConvolutionDescriptor(3, 1, 1, 1, stride_in_pixels_x=2)
>>> source = ArrayConvolutionDataSource(descriptor, [1, 10, 100], [0.5])
>>> convolution = MPSCNNConvolution(source)
>>> x, g = (np.array(row, np.float32).reshape(1, 1, -1, 1) for row in ([1, 2, 3, 4, 5], [1, 2, 3]))
>>> y, state = convolution.encode(x, return_state=True)
>>> y.ravel().tolist(), state.convolution is convolution
([210.5, 432.5, 54.5], True)
>>> MPSCNNConvolutionGradient(source).encode(g, x, state).ravel().tolist()
[10.0, 102.0, 20.0, 203.0, 30.0]
>>> state.synchronize()
>>> state.gradient_for_weights.ravel().tolist(), state.gradient_for_biases.tolist()
([16.0, 22.0, 10.0], [6.0])

Source: ``MPSCNNConvolution.h``, ``MPSNNGraphNodes.h`` [doc].
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array, DType, Shape
from mpsref.arguments.parameters import Pair
from mpsref.errors import ShapeError, UnsupportedError
from mpsref.geometry import effective_offset
from mpsref.kernels import Convolution, Neuron
from mpsref.kernels.convolution import WeightedSpec
from mpsref.mps.convolution_data_source import MPSCNNConvolutionDataSource, MPSCNNConvolutionWeightsAndBiasesState, load
from mpsref.mps.convolution_descriptor import MPSCNNConvolutionDescriptor
from mpsref.mps.convolution_kernel import (
    DATA,
    WEIGHTS,
    ForwardWeightedKernel,
    MPSCNNConvolutionGradientState,
    WeightedGradientKernel,
    WeightedKernel,
    check_trainable,
)
from mpsref.mps.core.call import Call, Computation
from mpsref.mps.core.image_arguments import ImageArgument
from mpsref.mps.core.padding import MPSNNDefaultPadding
from mpsref.mps.core.properties import Alias, set_read_only
from mpsref.mps.core.state import MPSState, SourceProperties
from mpsref.mps.core.types import MPSImageEdgeMode
from mpsref.mps.graph.nodes import (
    CustomPolicy,
    MPSNNGradientStateNode,
    MPSNNImageNode,
    MPSNNStateNode,
    MPSNNTrainingStyle,
    Step,
    StepCall,
    StepState,
    placed_call,
)
from mpsref.mps.graph.trainable import (
    JointUpdate,
    NodeParameters,
    TrainableGradientNode,
    WeightedNode,
    accumulate,
    updated,
)
from mpsref.registry import Spec


@functools.lru_cache(maxsize=1024)
def convolution(source: SourceProperties, offset: Pair, groups: int, neuron: Neuron | None = None) -> Convolution:
    """Return the functional form for the properties of a source and an offset (y, x)."""
    return Convolution(
        kernel_size=(source.kernel_height, source.kernel_width),
        strides=(source.stride_in_pixels_y, source.stride_in_pixels_x),
        dilations=(source.dilation_rate_y, source.dilation_rate_x),
        offset=offset,
        groups=groups,
        edge_mode="clamp" if source.edge_mode is MPSImageEdgeMode.Clamp else "zero",
        neuron=neuron,
    )


@functools.lru_cache(maxsize=1024)
def _of_regions(source: SourceProperties, groups: int) -> Convolution:
    """Return the functional form for an offset of the source that is the left edge of the first window."""
    y, x = source.windows
    return convolution(source, (y.offset + y.center, x.offset + x.center), groups)


class MPSCNNConvolution(ForwardWeightedKernel):
    """Convolution of images (N, H, W, Ci) to (N, OH, OW, Co): :class:`mpsref.Convolution`.

    Weights are not rotated, and the fused neuron is applied after the biases. With a sub-pixel descriptor the result is
    rearranged to (N, r * OH, r * OW, Co / r**2).

    Raises
    ------
    TypeError, ValueError
        For a data source, or a descriptor, that does not fit.
    OrderError
        If ``load`` of the data source fails.
    """

    sub_pixel_scale_factor: Alias[int] = Alias(
        "_loaded.descriptor.sub_pixel_factor", "Result pixels of one window along each axis."
    )

    def _spec(self) -> WeightedSpec:
        source = self._source_properties(0)
        offset = source.offset.y, source.offset.x
        return convolution(source, offset, self._loaded.descriptor.effective_groups, self._loaded.descriptor.neuron)

    _enlarges = Alias("sub_pixel_scale_factor", "The factor of a sub-pixel convolution.")

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        factor, (height, width) = self.sub_pixel_scale_factor, size
        if factor == 1:
            return super()._problem(shapes, size)
        made = super()._problem(shapes, (-(-height // factor), -(-width // factor)))
        return made._replace(result=lambda image: rearranged(image, factor)[:, :height, :width])


def rearranged(image: Array, factor: int) -> Array:
    """Return an image (N, H, W, factor**2 * C) as (N, factor * H, factor * W, C): channels become pixels.

    >>> import numpy as np
    >>> rearranged(np.arange(8).reshape(1, 1, 1, 8), 2)[0].tolist()
    [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    """
    n, height, width, channels = image.shape
    pixels = image.reshape(n, height, width, factor, factor, channels // factor**2)
    return pixels.transpose(0, 1, 3, 2, 4, 5).reshape(n, height * factor, width * factor, -1)


class MPSCNNConvolutionGradient(WeightedGradientKernel):
    """The gradient of :class:`MPSCNNConvolution`, from g (N, OH, OW, Co) and the source (N, H, W, Ci) to (N, H, W, Ci).

    The gradient for the data depends on the effective offset of ``primary_offset`` and ``kernel_offset_x/y``; the
    gradient for the weights on ``secondary_offset``, which is the left edge of the first window [choice
    convolution-secondary-offset], and on ``secondary_edge_mode``. A state sets all of them. The parameters are those of
    :class:`MPSCNNConvolution`.
    """

    forward_class = MPSCNNConvolution
    _reads_outside: ClassVar[bool] = True
    """Whether windows reach outside the image."""

    def _configuration(self, state: Any, g: Shape, x: Shape) -> Mapping[str, object]:
        offset, (rows, columns) = state.source.offset, state.source.windows
        first = offset._replace(x=offset.x - columns.center, y=offset.y - rows.center)
        return {**super()._configuration(state, g, x), "secondary_offset": first}

    def _place(self, sources: Sequence[ImageArgument], asked: Shape | Pair | None, state: Any) -> tuple[Shape, DType]:
        shape, dtype = super()._place(sources, asked, state)
        modes = self.secondary_edge_mode, None if state is None else state.source.edge_mode
        if self._reads_outside and self.gradient_option & DATA and MPSImageEdgeMode.Clamp in modes:
            raise UnsupportedError(
                f"the edge mode of the convolution is {MPSImageEdgeMode.Clamp!r}, for which Apple defines no gradient "
                f"for the data; set gradient_option to {WEIGHTS!r}, or pad the image and use Zero"
            )
        return shape, dtype

    def _weights_function(self) -> WeightedSpec:
        return _of_regions(self._source_properties(1), self._loaded.descriptor.effective_groups)

    def _data_gradient(self, g: Shape, source: Shape, size: Pair) -> Computation:
        """Return the problem of a forward pass with the offset that belongs to the effective offset."""
        own = self._source_properties(0)
        function = convolution(own, self._forward_offset(), self._loaded.descriptor.effective_groups)
        return self._of_data(function, g, (g[0], *size, source[3]))

    def _forward_offset(self) -> Pair:
        windows = self._source_properties(0).windows
        kernel_offsets = self.kernel_offset_y, self.kernel_offset_x
        y, x = (
            window.even - effective_offset(window.offset, kernel_offset, window.stride)
            for window, kernel_offset in zip(windows, kernel_offsets, strict=True)
        )
        return y, x


# --- nodes of graphs: the weights are read when a graph is compiled ---------------------------------------------------


class MPSCNNConvolutionGradientStateNode(MPSNNGradientStateNode):
    """The state of a convolution."""


class WeightParameters(NodeParameters):
    """The weights of one convolution in one graph, loaded by a kernel."""

    kernel: ForwardWeightedKernel
    callback_names: ClassVar = {MPSNNTrainingStyle.GPU: ("update",), MPSNNTrainingStyle.CPU: ("update_cpu",)}
    updates_together = True

    def arrays(self) -> Mapping[str, Array | None]:
        """Return the current weights and biases."""
        return {"weights": self.kernel._functional_weights, "biases": self.kernel._loaded.biases}

    @property
    def form(self) -> tuple[MPSCNNConvolutionDescriptor, bool]:
        """The descriptor, whose fused neuron may change with a reload, and whether there are biases."""
        return self.kernel._loaded.descriptor, self.kernel._loaded.biases is not None

    def reload(self) -> None:
        """Read the data source again."""
        self.kernel.reload_weights_and_biases_from_data_source()

    def state(self, step_state: StepState) -> MPSCNNConvolutionGradientState:
        """Return a synchronized state with the gradients of one run."""
        state = self.kernel.state_class(step_state["call"].record)
        if "gradients" in step_state:
            dw, db = step_state["gradients"]
            state.accumulate(dw, db, dw.dtype)
        state.synchronize()
        return state

    def _update_together(self, joint: JointUpdate, step_state: StepState) -> Callable[[], None]:
        later = joint(step_state["gradients"])

        def change() -> None:
            loaded = self.kernel._loaded
            current = {"weights": loaded.weights} | ({} if loaded.biases is None else {"biases": loaded.biases})
            self.kernel._replace(**self._joint_result(later(), current))

        return change

    def _update(self, style: MPSNNTrainingStyle, state: MPSState) -> Callable[[], None] | None:
        source = self.kernel.export_weights_and_biases()
        source.synchronize()
        ((method, callback),) = self.callbacks(style).items()
        answer = callback(state, source)
        if style is MPSNNTrainingStyle.CPU:
            return self.reload if updated(answer, self.name, method) else None
        if answer is None:
            return None
        if not isinstance(answer, MPSCNNConvolutionWeightsAndBiasesState):
            raise TypeError(
                f"update of the data source of {self.name!r} returned a {type(answer).__name__}; it must return an "
                "MPSCNNConvolutionWeightsAndBiasesState, or None for no update"
            )
        return lambda: self.kernel.reload_weights_and_biases(answer)


class MPSCNNConvolutionGradientNode(TrainableGradientNode):
    """The gradients of a convolution for its source, and in its state for weights and biases.

    Parameters
    ----------
    source_gradient, source_image : MPSNNImageNode
        The gradient of the forward result, and the source of the forward node.
    convolution_gradient_state : MPSNNStateNode
        The ``result_state`` of the forward node.
    weights : MPSCNNConvolutionDataSource, optional
        Weights for the gradient for the source alone; updates are those of the forward node [choice graph-updates].
        ``None``: the weights of the forward node.
    **properties
        Initial values of other properties, by name.

    Raises
    ------
    ValueError
        For a forward node with a fused neuron, whose gradient is not defined.
    """

    def __init__(
        self,
        source_gradient: MPSNNImageNode,
        source_image: MPSNNImageNode,
        convolution_gradient_state: MPSNNStateNode,
        weights: MPSCNNConvolutionDataSource | None = None,
        **properties: Any,
    ) -> None:
        super().__init__(source_gradient, source_image, convolution_gradient_state, **properties)
        assert isinstance(self.forward, MPSCNNConvolutionNode)
        self._weights = weights
        check_trainable(load(self.data_source), type(self.forward).__name__, "node")

    @property
    def data_source(self) -> MPSCNNConvolutionDataSource:
        """The data source of the weights."""
        forward = self.forward
        assert isinstance(forward, MPSCNNConvolutionNode)
        return forward.data_source if self._weights is None else self._weights

    def _parameters(self, forward: NodeParameters) -> NodeParameters:
        """Return the weights of the forward node, or of the node's own data source."""
        if self._weights is None:
            return forward
        node = self.forward
        assert isinstance(node, MPSCNNConvolutionNode)
        own = WeightParameters(node.kernel_class(self._weights), self.name)
        weights, expected = (parameters.arrays()["weights"] for parameters in (own, forward))
        assert weights is not None
        assert expected is not None
        if weights.shape != expected.shape:
            raise ShapeError(
                f"weights of {self.name!r} have shape {weights.shape}; those of {node.name!r} {expected.shape}"
            )
        return own

    def _methods(self, step: Step) -> Sequence[str]:
        return [*["gradient_weights"] * step.trains, *["gradient_data"] * step.result_is_needed]

    def _compute(self, step: StepCall, *images: Array) -> Array | None:
        forward = step.call
        (g, x), (part,) = images, forward.reads
        if not forward.is_whole or part is not None:
            part = part or (slice(None),) * 4
            g, x = g[forward.region], x[part]
        if step.trains:
            accumulate(step.state, "gradients", forward.spec.gradient_weights(g, x, backend=step.backend))
        if not step.result_is_needed:
            return None
        result: Array = forward.spec.gradient_data(g, step.parameters["weights"], x.shape, backend=step.backend)
        if part is None:
            return result
        whole = arrays.empty("the result", forward.shape, result.dtype, (result,))
        whole.fill(0)
        whole[part] = result
        return whole


class MPSCNNConvolutionNode(WeightedNode):
    """Convolution; its weights are read when a graph is compiled."""

    kind = "conv"
    _after_images = ("weights", "biases")
    custom_policy: ClassVar[CustomPolicy] = "followed"
    spec_class: ClassVar[type[Spec] | None] = Convolution
    state_class: ClassVar[type[MPSNNStateNode] | None] = MPSCNNConvolutionGradientStateNode
    kernel_class: ClassVar[type[ForwardWeightedKernel]] = MPSCNNConvolution
    gradient_class: ClassVar[type[MPSCNNConvolutionGradientNode]] = MPSCNNConvolutionGradientNode

    accumulator_precision = MPSCNNConvolution.accumulator_precision_option.replace()

    data_source = WeightedKernel.data_source

    def __init__(self, source: MPSNNImageNode, weights: MPSCNNConvolutionDataSource, **properties: Any) -> None:
        set_read_only(self, data_source=weights)
        super().__init__((source,), **properties)

    convolution_gradient_state: Alias[MPSNNStateNode] = Alias("_state", "The same as ``result_state``.")

    _parameters_class = WeightParameters

    def _bind(self, shapes: Sequence[Shape], parameters: WeightParameters, states: Sequence[Call]) -> Call:
        return self._bound(parameters.kernel, shapes)

    def _bound(self, kernel: ForwardWeightedKernel, shapes: Sequence[Shape], result: Shape | None = None) -> Call:
        if isinstance(kernel.padding, MPSNNDefaultPadding) and shapes[0][3] != kernel.input_feature_channels:
            raise ShapeError(
                f"its source has {shapes[0][3]} channels, and its weights are for {kernel.input_feature_channels}; "
                "both must be equal: a node reads whole images"
            )
        return placed_call(kernel, shapes, result)
