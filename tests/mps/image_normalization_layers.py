"""What the tests of instance and group normalization share: both pairs of classes, and data sources for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mpsref
from mpsref.arguments.arrays import Array
from mpsref.mps import (
    GroupNormalizationDataSource,
    InstanceNormalizationDataSource,
    MPSCNNGroupNormalization,
    MPSCNNGroupNormalizationGradient,
    MPSCNNInstanceNormalization,
    MPSCNNInstanceNormalizationGradient,
)

INSTANCE = MPSCNNInstanceNormalization, MPSCNNInstanceNormalizationGradient
GROUP = MPSCNNGroupNormalization, MPSCNNGroupNormalizationGradient
PAIRS: list[Any] = [INSTANCE, GROUP]
GAMMA, BETA = [2.0, 3.0, -1.0, 0.5], [0.0, 1.0, 0.25, -2.0]
by_class = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0].__name__)


def noise(*shape: int, seed: int = 0, dtype: str = "float32") -> Array:
    return np.random.default_rng((seed, *shape)).uniform(-2, 2, shape).astype(dtype)


def source(pair: Any, gamma: Any = GAMMA, beta: Any = BETA, epsilon: float = 0.25, optimizer: Any = None) -> Any:
    if pair is INSTANCE:
        return InstanceNormalizationDataSource(4, gamma, beta, epsilon, optimizer)
    return GroupNormalizationDataSource(4, 2, gamma, beta, epsilon, optimizer)


def function(pair: Any, epsilon: float = 0.25) -> Any:
    return mpsref.InstanceNormalization(epsilon) if pair is INSTANCE else mpsref.GroupNormalization(2, epsilon)


class Plain:
    """A user's data source: what the protocol of instance normalization names, and no more."""

    number_of_feature_channels = 4

    def __init__(self, gamma: Any = None, beta: Any = None) -> None:
        self.vectors = gamma, beta

    def gamma(self) -> Any:
        return self.vectors[0]

    def beta(self) -> Any:
        return self.vectors[1]

    def label(self) -> str:
        return "plain"


class Grouped(Plain):
    number_of_groups = 2


def plain(pair: Any, *vectors: Any) -> Any:
    return (Plain if pair is INSTANCE else Grouped)(*vectors)
