"""Instance and group normalization nodes, and their gradients. Source: ``MPSNNGraphNodes.h`` [doc]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from mpsref.arguments.arrays import Array, Shape
from mpsref.errors import ShapeError
from mpsref.kernels import GroupNormalization, InstanceNormalization
from mpsref.mps.graph.nodes import Bound, BoundState, Call, MPSNNGradientFilterNode, MPSNNImageNode
from mpsref.mps.graph.normalization_parameters import NormalizationParameters
from mpsref.mps.graph.trainable import TrainableGradientNode, WeightedNode, accumulate
from mpsref.mps.group_normalization import MPSCNNGroupNormalization
from mpsref.mps.image_normalization import ImageNormalizationGradientState, ImageNormalizationKernel
from mpsref.mps.instance_normalization import MPSCNNInstanceNormalization


class _Scale(NormalizationParameters):
    """Gamma and beta of one normalization in one graph."""

    def arrays(self) -> Mapping[str, Array | None]:
        """Return gamma and beta in force."""
        return {"gamma": self.kernel.gamma, "beta": self.kernel.beta}

    @property
    def form(self) -> Any:
        """The number of groups, which the data source may change."""
        return self.kernel._function()

    def state(self, step_state: Mapping[str, Any]) -> ImageNormalizationGradientState:
        """Return a synchronized state with the gradients of one run."""
        state: ImageNormalizationGradientState = self.kernel.state_class(
            self.record(step_state["shapes"], {"kernel": self.kernel})
        )
        if "gradients" in step_state:
            state.write(*step_state["gradients"])
        state.synchronize()
        return state


class _Gradient(TrainableGradientNode):
    def _compute(self, call: Call, *images: Array) -> Array:
        dx, *gradients = call.spec.gradient(*images, call.parameters["gamma"], backend=call.backend)
        if call.trains:
            accumulate(call.state, "gradients", tuple(gradients))
        return dx  # type: ignore[no-any-return]


class MPSCNNInstanceNormalizationGradientNode(_Gradient):
    """The gradient of instance normalization: for its source, and, in its state, for gamma and beta."""


class MPSCNNGroupNormalizationGradientNode(_Gradient):
    """The gradient of group normalization: for its source, and, in its state, for gamma and beta."""


class _Node(WeightedNode):
    kernel_class: ClassVar[type[ImageNormalizationKernel]]
    gradient_class: ClassVar[type[_Gradient]]

    def __init__(self, source: MPSNNImageNode, data_source: Any, **properties: Any) -> None:
        """Make a node; the data source is not asked for anything yet."""
        self._data_source = data_source
        super().__init__((source,), **properties)

    @property
    def data_source(self) -> Any:
        """Where gamma and beta come from."""
        return self._data_source

    def _load(self) -> _Scale:
        return _Scale(self.kernel_class(self._data_source, backend="reference"), self.name)

    def _bind(self, shapes: Sequence[Shape], parameters: Any, states: Sequence[BoundState]) -> Bound:
        kernel = parameters.kernel
        if shapes[0][3] != kernel.number_of_feature_channels:
            raise ShapeError(
                f"its source has {shapes[0][3]} channels; its data source has {kernel.number_of_feature_channels}"
            )
        return Bound(kernel._function(), shapes[0])

    def _compute(self, call: Call, *images: Array) -> Array:
        known = call.parameters
        return call.spec.forward(images[0], known["gamma"], known["beta"], backend=call.backend)  # type: ignore[no-any-return]

    def _gradient_node(self, source_gradient: MPSNNImageNode, source_index: int) -> MPSNNGradientFilterNode:
        return self.gradient_class(source_gradient, self.source_images[0], self._state)


class MPSCNNInstanceNormalizationNode(_Node):
    """Instance normalization with the parameters of a data source."""

    kind = "inorm"
    spec_class = InstanceNormalization
    kernel_class = MPSCNNInstanceNormalization
    gradient_class = MPSCNNInstanceNormalizationGradientNode


class MPSCNNGroupNormalizationNode(_Node):
    """Group normalization with the parameters of a data source."""

    kind = "gnorm"
    spec_class = GroupNormalization
    kernel_class = MPSCNNGroupNormalization
    gradient_class = MPSCNNGroupNormalizationGradientNode
