"""Convolution, fully connected and transposed convolution nodes, and their gradients.

A node refers to its data source; the weights are read when a graph is compiled. Source: ``MPSNNGraphNodes.h`` [doc].
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from mpsref.arguments.arrays import Array, Shape
from mpsref.errors import ShapeError, UnsupportedError
from mpsref.kernels import Convolution, ConvolutionTranspose, FullyConnected
from mpsref.mps.convolution import MPSCNNConvolution, convolution, rearranged
from mpsref.mps.convolution_kernel import ForwardWeightedKernel
from mpsref.mps.convolution_loading import load
from mpsref.mps.convolution_state import MPSCNNConvolutionGradientState
from mpsref.mps.convolution_transpose import MPSCNNConvolutionTranspose
from mpsref.mps.convolution_types import MPSNNConvolutionAccumulatorPrecisionOption, precision
from mpsref.mps.convolution_weights import MPSCNNConvolutionWeightsAndBiasesState
from mpsref.mps.core.properties import Property
from mpsref.mps.core.state import MPSState, SourceProperties
from mpsref.mps.core.types import MPSOffset
from mpsref.mps.fully_connected import MPSCNNFullyConnected
from mpsref.mps.graph.nodes import (
    Bound,
    BoundState,
    Call,
    MPSNNGradientFilterNode,
    MPSNNGradientStateNode,
    MPSNNImageNode,
    MPSNNStateNode,
    MPSNNTrainingStyle,
    Step,
)
from mpsref.mps.graph.trainable import NodeParameters, TrainableGradientNode, WeightedNode, accumulate, updated
from mpsref.registry import Spec


class MPSCNNConvolutionGradientStateNode(MPSNNGradientStateNode):
    """The state of a convolution."""


class MPSCNNConvolutionTransposeGradientStateNode(MPSCNNConvolutionGradientStateNode):
    """The state of a transposed convolution."""


class Weights(NodeParameters):
    """The weights of one convolution in one graph: a kernel that has loaded them."""

    kernel: ForwardWeightedKernel
    callback_names: ClassVar = {MPSNNTrainingStyle.GPU: ("update",), MPSNNTrainingStyle.CPU: ("update_cpu",)}

    @property
    def data_source(self) -> Any:
        """Where the weights come from."""
        return self.kernel.data_source

    def arrays(self) -> Mapping[str, Array | None]:
        """Return weights and biases in force."""
        return {"weights": self.kernel._functional_weights, "biases": self.kernel._loaded.biases}

    @property
    def form(self) -> Any:
        """The descriptor, whose fused neuron the data source may change."""
        return self.kernel._loaded.descriptor

    def snapshot(self) -> Any:
        """Return everything that the kernel holds."""
        return self.kernel._loaded

    def restore(self, before: Any) -> None:
        """Put it back."""
        self.kernel._loaded = before

    def reload(self) -> None:
        """Read the data source again."""
        self.kernel.reload_weights_and_biases_from_data_source()

    def state(self, step_state: Mapping[str, Any]) -> MPSCNNConvolutionGradientState:
        """Return a synchronized state with the gradients of one run."""
        known = self.record(step_state["shapes"], {"kernel": self.kernel}, step_state["details"].source)
        state: MPSCNNConvolutionGradientState = self.kernel.state_class(known)  # type: ignore[assignment]
        if "gradients" in step_state:
            dw, db = step_state["gradients"]
            state.accumulate(dw, db, dw.dtype)
        state.synchronize()
        return state

    updates_together = True

    def _update_together(self, together: Any, step_state: Mapping[str, Any]) -> Callable[[], None]:
        later = together(step_state["gradients"])

        def change() -> None:
            loaded = self.kernel._loaded
            known = {"weights": loaded.weights} | ({} if loaded.biases is None else {"biases": loaded.biases})
            self.kernel._replace(**self._joint_result(later(), known))

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
    """The gradient of a convolution: for its source, and, in its state, for weights and biases."""

    def __init__(
        self,
        source_gradient: MPSNNImageNode,
        source_image: MPSNNImageNode,
        gradient_state: MPSNNStateNode,
        weights: Any = None,
        **properties: Any,
    ) -> None:
        """Make a node; ``weights`` is a data source, ``None`` for the weights of the forward node.

        Weights of its own count in the gradient for the source alone; updates are those of the forward node [choice].
        Raises ``ValueError`` for a forward node with a fused neuron, whose gradient cannot be known.
        """
        super().__init__(source_gradient, source_image, gradient_state, **properties)
        assert isinstance(self.forward, MPSCNNConvolutionNode)
        self._weights = weights
        _check_trainable(self.data_source, type(self.forward))

    @property
    def data_source(self) -> Any:
        """Where the weights come from."""
        forward = self.forward
        assert isinstance(forward, MPSCNNConvolutionNode)
        return forward.data_source if self._weights is None else self._weights

    def _parameters(self, forward: NodeParameters) -> NodeParameters:
        """Return the weights of the forward node, or, if it was given one, those of a data source of its own."""
        if self._weights is None:
            return forward
        node = self.forward
        assert isinstance(node, MPSCNNConvolutionNode)
        own = Weights(node.kernel_class(self._weights, backend="reference"), self.name)
        mine, theirs = (one.arrays()["weights"] for one in (own, forward))
        assert mine is not None
        assert theirs is not None
        if mine.shape != theirs.shape:
            raise ShapeError(f"weights of {self.name!r} have shape {mine.shape}; those of {node.name!r} {theirs.shape}")
        return own

    def _methods(self, step: Step) -> Sequence[str]:
        return [*["gradient_weights"] * step.trains, *["gradient_data"] * step.result_is_needed]

    def _compute(self, call: Call, *images: Array) -> Array | None:
        g, x = images
        if call.trains:
            accumulate(call.state, "gradients", call.spec.gradient_weights(g, x, backend=call.backend))
        if not call.result_is_needed:
            return None
        weights = call.parameters["weights"]
        return call.spec.gradient_data(g, weights, x.shape, backend=call.backend)  # type: ignore[no-any-return]


def _check_trainable(data_source: Any, kind: type[MPSCNNConvolutionNode]) -> None:
    """Look at the descriptor of a data source: a fused neuron hides what its gradient needs."""
    loaded = load(data_source)
    if loaded.descriptor.neuron is not None:
        raise ValueError(
            f"fused_neuron_descriptor is {loaded.descriptor.fused_neuron_descriptor!r}; a {kind.__name__} that is "
            "trained must have none: use a neuron node of its own"
        )
    if loaded.descriptor.batch_normalization is not None:
        raise ValueError(
            f"a batch normalization is folded into the weights of a {kind.__name__}; use a node of its own"
        )
    if loaded.descriptor.sub_pixel_factor != 1:
        raise UnsupportedError("a sub-pixel convolution has no gradient; use a plain one")


class MPSCNNFullyConnectedGradientNode(MPSCNNConvolutionGradientNode):
    """The gradient of a fully connected layer."""


class MPSCNNConvolutionTransposeGradientNode(MPSCNNConvolutionGradientNode):
    """The gradient of a transposed convolution."""


class MPSCNNConvolutionNode(WeightedNode):
    """Convolution with the weights of a data source."""

    kind = "conv"
    spec_class: ClassVar[type[Spec] | None] = Convolution
    state_class: ClassVar[type[MPSNNStateNode] | None] = MPSCNNConvolutionGradientStateNode
    kernel_class: ClassVar[type[ForwardWeightedKernel]] = MPSCNNConvolution
    gradient_class: ClassVar[type[MPSCNNConvolutionGradientNode]] = MPSCNNConvolutionGradientNode

    accumulator_precision: Property[MPSNNConvolutionAccumulatorPrecisionOption] = Property(
        precision, MPSNNConvolutionAccumulatorPrecisionOption.Float, "Kept; sums are always at least float32."
    )

    def __init__(self, source: MPSNNImageNode, weights: Any, **properties: Any) -> None:
        """Make a node; ``weights`` is a data source, which is not asked for anything yet."""
        self._weights = weights
        super().__init__((source,), **properties)

    @property
    def data_source(self) -> Any:
        """Where the weights come from."""
        return self._weights

    @property
    def convolution_gradient_state(self) -> MPSNNStateNode:
        """The same as ``result_state``."""
        return self._state

    def _load(self) -> Weights:
        kernel = self.kernel_class(self._weights, padding=self.padding_policy, backend="reference")
        return Weights(kernel, self.name)

    def _bind(self, shapes: Sequence[Shape], parameters: Any, states: Sequence[BoundState]) -> Bound:
        kernel = copy.copy(parameters.kernel)
        shape = kernel.infer_padding(shapes[0])
        source = kernel._source_properties(0)
        offset = kernel.offset.y, kernel.offset.x
        spec = convolution(source, offset, kernel._loaded.descriptor.effective_groups, kernel._neuron)
        return Bound(spec, shape, _Placed(source, kernel.sub_pixel_scale_factor))

    def _compute(self, call: Call, *images: Array) -> Array:
        factor = call.details.sub_pixel_factor
        _, height, width, _ = call.result_shape
        weights, biases = call.parameters["weights"], call.parameters["biases"]
        size = -(-height // factor), -(-width // factor)
        result: Array = call.spec.forward(images[0], weights, biases, size, backend=call.backend)
        return result if factor == 1 else rearranged(result, factor)[:, :height, :width]

    def _gradient_node(self, source_gradient: MPSNNImageNode, source_index: int) -> MPSNNGradientFilterNode:
        return self.gradient_class(source_gradient, self.source_images[0], self._state)


class _Placed(NamedTuple):
    """What a state records of the forward kernel, and how many pixels one window makes on each axis."""

    source: SourceProperties
    sub_pixel_factor: int = 1


class MPSCNNFullyConnectedNode(MPSCNNConvolutionNode):
    """A fully connected layer: its window is the whole image, its result one pixel."""

    kind = "fc"
    spec_class = FullyConnected
    kernel_class = MPSCNNFullyConnected
    gradient_class = MPSCNNFullyConnectedGradientNode

    def _bind(self, shapes: Sequence[Shape], parameters: Any, states: Sequence[BoundState]) -> Bound:
        kernel = copy.copy(parameters.kernel)
        spec = kernel._function()
        n, height, width, channels = shapes[0]
        _, rows, columns, inputs = kernel.weights_shape
        if (height, width, channels) != (rows, columns, inputs):
            raise ShapeError(
                f"its source has shape {shapes[0]}; its weights {kernel.weights_shape} are for images of "
                f"({rows}, {columns}, {inputs}); a concatenation pads each of its sources to a multiple of 4 channels"
            )
        return Bound(spec, (n, 1, 1, kernel.output_feature_channels), _Placed(kernel._source_properties(0)))

    def _compute(self, call: Call, *images: Array) -> Array:
        weights, biases = call.parameters["weights"], call.parameters["biases"]
        return call.spec.forward(images[0], weights, biases, backend=call.backend)  # type: ignore[no-any-return]


class MPSCNNConvolutionTransposeNode(MPSCNNConvolutionNode):
    """A transposed convolution; with the state of a convolution its result has the size of that one's source."""

    kind = "convt"
    spec_class = ConvolutionTranspose
    state_class = MPSCNNConvolutionTransposeGradientStateNode
    kernel_class = MPSCNNConvolutionTranspose
    gradient_class = MPSCNNConvolutionTransposeGradientNode

    def __init__(
        self,
        source: MPSNNImageNode,
        convolution_gradient_state: MPSNNStateNode | None,
        weights: Any,
        **properties: Any,
    ) -> None:
        """Make a node; the state may be ``None``."""
        if convolution_gradient_state is not None and (
            type(convolution_gradient_state) is not MPSCNNConvolutionGradientStateNode
        ):
            raise TypeError(
                f"convolution_gradient_state is of type {type(convolution_gradient_state).__name__}; it must be the "
                "result_state of a convolution node, or None"
            )
        super().__init__(source, weights, **properties)
        self._source_states = () if convolution_gradient_state is None else (convolution_gradient_state,)

    def _bind(self, shapes: Sequence[Shape], parameters: Any, states: Sequence[BoundState]) -> Bound:
        kernel = copy.copy(parameters.kernel)
        if states:
            forward, sources = states[0]
            height, width = sources[0][1:3]
            pair = getattr(forward.spec, "windows", ())  # a fully connected layer has none
            own = kernel._source_properties(0).windows
            if [(w.kernel, w.stride) for w in pair] != [(w.kernel, w.stride) for w in own]:
                raise ShapeError("the convolution of its state has another kernel size or other strides; use the same")
            kernel_offset = tuple(window.even - window.offset for window in pair)
            shape: Shape = (shapes[0][0], height, width, kernel.output_feature_channels)
            return Bound(kernel._function(MPSOffset(0, 0), kernel_offset), shape, _Placed(kernel._source_properties(0)))
        shape = kernel.infer_padding(shapes[0])
        spec = kernel._function(kernel.offset, (kernel.kernel_offset_y, kernel.kernel_offset_x))
        return Bound(spec, shape, _Placed(kernel._source_properties(0)))
