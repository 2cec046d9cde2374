"""Group normalization with Apple's names, and its gradient.

>>> import numpy as np
>>> source = GroupNormalizationDataSource(4, number_of_groups=2, epsilon=4.0)
>>> norm = MPSCNNGroupNormalization(source)
>>> x = np.array([1, 3, 2, 6, 5, 7, 2, 10], float).reshape(1, 1, 2, 4)
>>> y, state = norm.encode(x, return_state=True)
>>> y[0, 0, :, :2].round(4).tolist()
[[-1.0, -0.3333], [0.3333, 1.0]]
>>> len(state), state.gradient_for_gamma, state.group_normalization is norm
(1, None, True)

Source: ``MPSCNNGroupNormalization.h`` [doc].
"""

from __future__ import annotations

from typing import Any

from mpsref.kernels import GroupNormalization
from mpsref.mps.core.kernel import saved
from mpsref.mps.image_normalization import (
    ImageNormalizationGradient,
    ImageNormalizationGradientState,
    ImageNormalizationKernel,
)
from mpsref.mps.image_normalization_data_source import (
    GroupNormalizationDataSource,
    LoadedParameters,
    MPSCNNGroupNormalizationDataSource,
    load,
)

__all__ = [
    "GroupNormalizationDataSource",
    "MPSCNNGroupNormalization",
    "MPSCNNGroupNormalizationDataSource",
    "MPSCNNGroupNormalizationGradient",
    "MPSCNNGroupNormalizationGradientState",
]


class MPSCNNGroupNormalizationGradientState(ImageNormalizationGradientState):
    """What group normalization leaves for its gradient, and that for the update of gamma and beta."""

    @property
    def group_normalization(self) -> MPSCNNGroupNormalization:
        """The kernel that made the state."""
        kernel: MPSCNNGroupNormalization = self.kernel
        return kernel


@saved("data_source")
class MPSCNNGroupNormalization(ImageNormalizationKernel):
    """Group normalization: :class:`mpsref.GroupNormalization`, with groups, gamma and beta from a data source."""

    state_class = MPSCNNGroupNormalizationGradientState

    @property
    def number_of_groups(self) -> int:
        """How many groups of channels are normalized; as the data source said when it was last loaded."""
        return self._loaded.groups

    def _load(self, data_source: Any) -> LoadedParameters:
        return load(data_source, grouped=True)

    def _function(self) -> GroupNormalization:
        return GroupNormalization(self._loaded.groups, self.epsilon)

    def _ready_source(self) -> GroupNormalizationDataSource:
        loaded = self._loaded
        return GroupNormalizationDataSource(loaded.channels, loaded.groups, loaded.gamma, loaded.beta, loaded.epsilon)


@saved()
class MPSCNNGroupNormalizationGradient(ImageNormalizationGradient):
    """The gradient of group normalization: for the source image, and in the state for gamma and beta."""

    forward_class = MPSCNNGroupNormalization
    state_class = MPSCNNGroupNormalizationGradientState
