"""Instance normalization with Apple's names, and its gradient.

>>> import numpy as np
>>> source = InstanceNormalizationDataSource(2, gamma=[2, 3], beta=[0, 1], epsilon=3.0)
>>> norm, gradient = MPSCNNInstanceNormalization(source), MPSCNNInstanceNormalizationGradient()
>>> x = np.array([[1, 10], [3, 14]], float).reshape(1, 1, 2, 2)
>>> y, state = norm.encode(x, return_state=True)
>>> y.ravel().round(4).tolist()
[-1.0, -1.2678, 1.0, 3.2678]
>>> g = np.array([[1, 1], [2, 0]], float).reshape(1, 1, 2, 2)
>>> gradient.encode(g, x, state).ravel().round(4).tolist()
[-0.375, 0.243, 0.375, -0.243]
>>> state.synchronize()
>>> state.gradient_for_gamma.round(4).tolist(), state[0].gradient_for_beta.tolist()
([[0.5, -0.7559]], [3.0, 1.0])

Source: ``MPSCNNInstanceNormalization.h`` [doc].
"""

from __future__ import annotations

from typing import Any

from mpsref.kernels import InstanceNormalization
from mpsref.mps.core.kernel import saved
from mpsref.mps.core.properties import fix
from mpsref.mps.image_normalization import (
    ImageNormalizationGradient,
    ImageNormalizationGradientState,
    ImageNormalizationKernel,
)
from mpsref.mps.image_normalization_data_source import (
    InstanceNormalizationDataSource,
    LoadedParameters,
    MPSCNNInstanceNormalizationDataSource,
    load,
)

__all__ = [
    "InstanceNormalizationDataSource",
    "MPSCNNInstanceNormalization",
    "MPSCNNInstanceNormalizationDataSource",
    "MPSCNNInstanceNormalizationGradient",
    "MPSCNNInstanceNormalizationGradientState",
]


class MPSCNNInstanceNormalizationGradientState(ImageNormalizationGradientState):
    """What instance normalization leaves for its gradient, and that for the update of gamma and beta."""

    @property
    def instance_normalization(self) -> MPSCNNInstanceNormalization:
        """The kernel that made the state."""
        kernel: MPSCNNInstanceNormalization = self.kernel
        return kernel


@saved("data_source")
class MPSCNNInstanceNormalization(ImageNormalizationKernel):
    """Instance normalization: :class:`mpsref.InstanceNormalization`, with gamma and beta from a data source."""

    state_class = MPSCNNInstanceNormalizationGradientState

    def _load(self, data_source: Any) -> LoadedParameters:
        return load(data_source, grouped=False)

    def _function(self) -> InstanceNormalization:
        return InstanceNormalization(self.epsilon)

    def _ready_source(self) -> InstanceNormalizationDataSource:
        loaded = self._loaded
        return InstanceNormalizationDataSource(loaded.channels, loaded.gamma, loaded.beta, loaded.epsilon)

    def reload_data_source(self, data_source: Any) -> None:
        """Take another data source in place of the old one, and its gamma and beta. Deprecated by Apple [doc].

        Raises ``ValueError`` for another number of channels; then the old one stays.
        """
        self._replace(self._load(data_source))
        fix(self, data_source=data_source)


@saved()
class MPSCNNInstanceNormalizationGradient(ImageNormalizationGradient):
    """The gradient of instance normalization: for the source image, and in the state for gamma and beta."""

    forward_class = MPSCNNInstanceNormalization
    state_class = MPSCNNInstanceNormalizationGradientState
