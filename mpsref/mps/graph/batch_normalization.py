"""The batch normalization node and its gradient.

In a program in which a gradient step reads its state, the node normalizes with the statistics of the batch; otherwise,
for inference, with those of its data source. ``flags`` overrides that. Source: ``MPSNNGraphNodes.h`` [doc].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from mpsref.arguments.arrays import Array, Shape
from mpsref.errors import OrderError, ShapeError
from mpsref.kernels import BatchNormalization
from mpsref.kernels.batch_normalization_problems import BatchGradientSums, not_negative
from mpsref.mps.batch_normalization import MPSCNNBatchNormalization
from mpsref.mps.batch_normalization_state import MPSCNNBatchNormalizationState
from mpsref.mps.core.properties import Property
from mpsref.mps.core.types import Enumeration, member
from mpsref.mps.graph.nodes import (
    Bound,
    BoundState,
    Call,
    MPSNNGradientFilterNode,
    MPSNNImageNode,
    MPSNNTrainingStyle,
    Step,
)
from mpsref.mps.graph.normalization_parameters import SCALE, STATISTICS, NormalizationParameters
from mpsref.mps.graph.trainable import TrainableGradientNode, WeightedNode, accumulate


class MPSCNNBatchNormalizationFlags(Enumeration):
    """Which statistics a node uses. Source: ``MPSNNGraphNodes.h`` [doc]."""

    Default = 0
    Always = 1
    Never = 2


def _flags(name: str, value: Any) -> MPSCNNBatchNormalizationFlags:
    """Check the flags: a member, its number, or a name in lower case; "automatic" is the default."""
    return member(name, "default" if value == "automatic" else value, MPSCNNBatchNormalizationFlags)


class Statistics(NormalizationParameters):
    """Gamma, beta, mean and variance of one batch normalization in one graph."""

    pairs = (SCALE, STATISTICS)
    callback_names: ClassVar = {
        MPSNNTrainingStyle.GPU: (f"update_{SCALE}", f"update_{STATISTICS}"),
        MPSNNTrainingStyle.CPU: (f"update_{SCALE}_cpu", f"update_{STATISTICS}_cpu"),
    }

    updates_together = True

    def _update_together(self, together: Any, step_state: Mapping[str, Any]) -> Callable[[], None]:
        dbeta, dgamma = step_state["gradients"]
        statistics = step_state.get("statistics")
        later = together((dgamma, dbeta), None if statistics is None else (statistics.mean, step_state["variance"]))

        def change() -> None:
            like, _ = self.kernel.scale
            new = self._joint_result(later(), dict.fromkeys(("gamma", "beta", "mean", "variance"), like))
            if "variance" in new:
                not_negative("variance", new["variance"])
            self.kernel._replace(**new)

        return change

    def arrays(self) -> Mapping[str, Array | None]:
        """Return gamma, beta, mean and variance in force."""
        mean, variance = self.kernel.statistics
        return {**super().arrays(), "mean": mean, "variance": variance}

    def state(self, step_state: Mapping[str, Any]) -> MPSCNNBatchNormalizationState:
        """Return a synchronized state with the gradients of one run."""
        state = MPSCNNBatchNormalizationState(self.kernel, self.record(step_state["shapes"], {}))
        if "statistics" in step_state:
            state.write_statistics(step_state["statistics"])
        if "gradients" in step_state:
            pixels = math.prod(step_state["shapes"][0][:3])
            state.write_sums(BatchGradientSums(pixels, *step_state["gradients"]))
        state.synchronize()
        return state


class MPSCNNBatchNormalizationGradientNode(TrainableGradientNode):
    """The gradient of batch normalization: for its source, and, in its state, for gamma and beta.

    With stored statistics these are constants, and no gradient goes through them [choice].
    """

    def _methods(self, step: Step) -> Sequence[str]:
        forward = self.forward
        assert isinstance(forward, MPSCNNBatchNormalizationNode)
        of_batch = step.trains or forward._uses_batch(True)
        return [*["statistics_gradient"] * of_batch, *["gradient"] * step.result_is_needed]

    def _compute(self, call: Call, *images: Array) -> Array | None:
        g, x = images
        spec, known = call.spec, call.parameters
        statistics = call.state.get("statistics")
        mean, variance = known["mean"], known["variance"]
        if statistics is not None:
            mean, variance = statistics.mean, call.state["variance"]
        scale = known["gamma"], known["beta"]
        sums = None
        if statistics is not None or call.trains:
            sums = spec.statistics_gradient(g, x, mean, variance, *scale, backend=call.backend)
            if call.trains:
                accumulate(call.state, "gradients", (sums.dbeta, sums.dgamma))
        if not call.result_is_needed:
            return None
        batch = None if statistics is None else sums
        return spec.gradient(g, x, mean, variance, *scale, sums=batch, backend=call.backend)  # type: ignore[no-any-return]


class MPSCNNBatchNormalizationNode(WeightedNode):
    """Batch normalization with the parameters of a data source."""

    kind = "bn"
    spec_class = BatchNormalization
    gradient_class = MPSCNNBatchNormalizationGradientNode

    flags: Property[MPSCNNBatchNormalizationFlags] = Property(
        _flags, MPSCNNBatchNormalizationFlags.Default, "Which statistics it uses: those of the batch, or stored ones."
    )

    def __init__(self, source: MPSNNImageNode, data_source: Any, **properties: Any) -> None:
        """Make a node; the data source is not asked for anything yet."""
        self._data_source = data_source
        super().__init__((source,), **properties)

    @property
    def data_source(self) -> Any:
        """Where the parameters come from."""
        return self._data_source

    def _load(self) -> Statistics:
        return Statistics(MPSCNNBatchNormalization(self._data_source, backend="reference"), self.name)

    def _bind(self, shapes: Sequence[Shape], parameters: Any, states: Sequence[BoundState]) -> Bound:
        kernel = parameters.kernel
        if shapes[0][3] != kernel.number_of_feature_channels:
            raise ShapeError(
                f"its source has {shapes[0][3]} channels; its data source has {kernel.number_of_feature_channels}"
            )
        return Bound(BatchNormalization(kernel.epsilon), shapes[0])

    def _methods(self, step: Step) -> Sequence[str]:
        return [*["statistics"] * self._uses_batch(step.trains), "forward"]

    def _uses_batch(self, trains: bool) -> bool:
        """Whether a forward step uses the statistics of its batch."""
        if self.flags is MPSCNNBatchNormalizationFlags.Default:
            return trains
        return self.flags is MPSCNNBatchNormalizationFlags.Always

    def _compute(self, call: Call, *images: Array) -> Array:
        spec, known, x = call.spec, call.parameters, images[0]
        mean, variance = known["mean"], known["variance"]
        if self._uses_batch(call.trains):
            statistics = spec.statistics(x, backend=call.backend)
            mean, variance = statistics.mean, statistics.variance
            call.state["statistics"], call.state["variance"] = statistics, variance
        elif mean is None:
            raise OrderError(
                f"{self.name}: the data source has no mean and variance, which inference needs; let it return those of "
                'training, or set flags to "always"'
            )
        return spec.forward(x, mean, variance, known["gamma"], known["beta"], backend=call.backend)  # type: ignore[no-any-return]

    def _gradient_node(self, source_gradient: MPSNNImageNode, source_index: int) -> MPSNNGradientFilterNode:
        return MPSCNNBatchNormalizationGradientNode(source_gradient, self.source_images[0], self._state)
