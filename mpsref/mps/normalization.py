"""Batch, instance and group normalization: base classes of their forward kernels, and of their nodes in a graph.

Source: ``MPSCNNBatchNormalization.h``, ``MPSCNNInstanceNormalization.h``, ``MPSCNNGroupNormalization.h`` [doc].
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np

from mpsref.arguments.arrays import Array, DType, Shape
from mpsref.arguments.parameters import Pair, real
from mpsref.errors import ShapeError
from mpsref.kernels.normalization import FLT_MIN
from mpsref.mps.core.call import Call
from mpsref.mps.core.command_buffer import MPSCommandBuffer, check_not_a_command_buffer
from mpsref.mps.core.image_arguments import ImageArgument
from mpsref.mps.core.image_kernels import MPSCNNKernel
from mpsref.mps.core.properties import Alias, Argument, Property, constructed, instance_of, set_read_only
from mpsref.mps.core.serialization import SecureCoding
from mpsref.mps.core.state import MPSState
from mpsref.mps.core.whole_image import IMAGE, require_defaults, require_whole
from mpsref.mps.graph.nodes import MPSNNImageNode, MPSNNTrainingStyle
from mpsref.mps.graph.trainable import NodeParameters, WeightedNode
from mpsref.mps.normalization_data_source import (
    Kind,
    LoadedParameters,
    MPSCNNInstanceNormalizationDataSource,
    MPSCNNNormalizationGammaAndBetaState,
    MPSCNNNormalizationMeanAndVarianceState,
    NormalizationArrays,
    NormalizationPairState,
    load,
    read_only,
)
from mpsref.registry import Spec

WHOLE = tuple(name for name in IMAGE if name != "edge_mode")
"""The properties that must keep their defaults: a result on a part of the pixels has no documented gradient."""

PAIRS: dict[str, type[NormalizationPairState]] = {
    "gamma_and_beta": MPSCNNNormalizationGammaAndBetaState,
    "mean_and_variance": MPSCNNNormalizationMeanAndVarianceState,
}


def any_source(name: str, value: Any) -> Any:
    """Return a data source, which :func:`load` checks: the check of a property."""
    return value


def check_channels(images: Sequence[ImageArgument], channels: int) -> None:
    """Raise ``ShapeError`` for an image with another number of channels than the parameters."""
    for image in images:
        if image.array.shape[3] != channels:
            raise ShapeError(
                f"{image.name} has {image.array.shape[3]} channels; number_of_feature_channels of the data source is "
                f"{channels}: both must be equal"
            )


@lru_cache(maxsize=64)
def _constant(value: int, channels: int, dtype: DType) -> Array:
    return read_only(np.full(channels, value, dtype))


@constructed(init=False)
class NormalizationKernel(MPSCNNKernel):
    """A forward kernel with a data source; not a class of Apple's.

    Raises
    ------
    TypeError, ValueError
        For a data source that does not fit.
    OrderError
        If ``load`` of the data source fails.
    """

    kind: ClassVar[Kind]
    channels_changed: ClassVar[str] = "is now {new}; a reload cannot change it from {old}"

    source_class: ClassVar[type[NormalizationArrays]]
    """The class of a data source that can be saved."""

    data_source: Argument[MPSCNNInstanceNormalizationDataSource] = Argument(any_source, "The source of the vectors.")
    _: KW_ONLY
    epsilon: Property[float] = Property(
        partial(real, low=0),
        FLT_MIN,
        "The summand of a variance, >= 0; initially that of the data source.",
    )

    def _set_arguments(self, **values: Any) -> None:
        self._loaded: LoadedParameters = load(values["data_source"], self.kind)
        super()._set_arguments(**values, epsilon=self._loaded.epsilon)

    @property
    @abc.abstractmethod
    def function(self) -> Spec:
        """The functional form, with the current epsilon."""

    def _place(self, sources: Sequence[ImageArgument], asked: Shape | Pair | None, state: Any) -> tuple[Shape, DType]:
        shape, dtype = super()._place(sources, asked, state)
        require_defaults(self, *WHOLE)
        source = sources[0].array.shape
        check_channels(sources, self._loaded.number_of_feature_channels)
        require_whole(self, shape, source)
        return shape, dtype

    number_of_feature_channels: Alias[int] = Alias(
        "_loaded.number_of_feature_channels", "C: the number of channels of every image."
    )

    @property
    def scale(self) -> tuple[Array, Array]:
        """Current gamma and beta, (C,) each, read-only; ones and zeros where the data source has none."""
        gamma, beta, n = self._loaded.gamma, self._loaded.beta, self._loaded.number_of_feature_channels
        if gamma is None:
            gamma = _constant(1, n, np.dtype(np.float32) if beta is None else beta.dtype)
        return gamma, _constant(0, n, gamma.dtype) if beta is None else beta

    gamma: Alias[Array] = Alias(
        "scale", "The current scale (C,), read-only; ones where the data source has none.", itemgetter(0)
    )
    beta: Alias[Array] = Alias(
        "scale", "The current shift (C,), read-only; zeros where the data source has none.", itemgetter(1)
    )

    def reload_gamma_and_beta_from_data_source(self) -> None:
        """Load gamma and beta again, for all later encodes; ``epsilon`` does not change.

        Raises ``ShapeError`` if the number of channels has changed. No error changes gamma and beta.
        """
        old = self._loaded
        self._loaded = dataclasses.replace(self._reloaded(self.data_source), mean=old.mean, variance=old.variance)

    def reload_gamma_and_beta(
        self,
        gamma_and_beta_state: MPSCNNNormalizationGammaAndBetaState,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> None:
        """Read gamma and beta from a state, for all encodes that follow on the command buffer.

        Of a longer state the first C values are used [doc]. Raises ``TypeError`` for another class, ``ShapeError`` for
        a shorter state. No error changes gamma and beta.
        """
        gamma, beta = self._from_state("gamma_and_beta", gamma_and_beta_state, command_buffer)
        self._replace(gamma=gamma, beta=beta)

    def _replace(self, **values: Array | None) -> None:
        """Replace loaded parameters, by name, by checked read-only ones."""
        self._loaded = dataclasses.replace(self._loaded, **values)  # type: ignore[arg-type]  # by name

    def _reload_data_source(self, data_source: MPSCNNInstanceNormalizationDataSource) -> None:
        self._loaded = self._reloaded(data_source)
        self._assign(data_source=data_source)

    def _reloaded(self, data_source: MPSCNNInstanceNormalizationDataSource) -> LoadedParameters:
        new = load(data_source, self.kind)
        if new.number_of_feature_channels != self._loaded.number_of_feature_channels:
            changed = self.channels_changed.format(
                new=new.number_of_feature_channels, old=self._loaded.number_of_feature_channels
            )
            raise ShapeError(f"data_source.number_of_feature_channels {changed}: make another kernel")
        return new

    def _from_state(self, pair: str, state: object, command_buffer: MPSCommandBuffer | None) -> tuple[Array, Array]:
        check_not_a_command_buffer(f"{pair}_state", state, f"reload_{pair}(state, command_buffer=buffer)")
        vectors = instance_of(f"{pair}_state", state, PAIRS[pair])
        return vectors.device_read(self.number_of_feature_channels, command_buffer)

    def saved_values(self) -> dict[str, object]:
        """Return the values to save: the data source if it has the current vectors, else a new one with them."""
        values = super().saved_values()
        loaded = dataclasses.replace(self._loaded, epsilon=self.epsilon)
        if _can_be_saved(self.data_source):
            there = dataclasses.replace(load(self.data_source, self.kind), epsilon=self.epsilon)
            if there == loaded:
                return values
        own = vars(loaded)
        arguments = {name: own[name] for name in self.source_class._coding.arguments if name in own}
        return values | {"data_source": self.source_class(**arguments)}

    def _details(self) -> str:
        """Return what ``repr`` has in addition."""
        return ""

    def __repr__(self) -> str:
        source = f"{self.number_of_feature_channels} channels from {type(self.data_source).__name__}"
        return f"<{type(self).__name__}: {source}, epsilon={self.epsilon!r}{self._details()}>"


def _can_be_saved(data_source: object) -> bool:
    """Return whether the class of a data source is registered for saving."""
    try:
        return isinstance(data_source, SecureCoding) and bool(data_source.saved_values())
    except ValueError:
        return False


class NormalizationParameters(NodeParameters):
    """Gamma and beta of one node in one graph, and for batch normalization mean and variance."""

    pairs: ClassVar[tuple[str, ...]] = ("gamma_and_beta",)
    """The pairs of vectors that the data source may update, in this order [choice data-source-calls]."""
    kernel: NormalizationKernel

    @property
    def callback_names(self) -> Mapping[MPSNNTrainingStyle, tuple[str, ...]]:  # type: ignore[override]
        """The methods of the data source that each style calls."""
        return {
            MPSNNTrainingStyle.GPU: tuple(f"update_{pair}" for pair in self.pairs),
            MPSNNTrainingStyle.CPU: tuple(f"update_{pair}_cpu" for pair in self.pairs),
        }

    def arrays(self) -> Mapping[str, Array | None]:
        """Return the current gamma and beta."""
        gamma, beta = self.kernel.scale
        return {"gamma": gamma, "beta": beta}

    def reload(self) -> None:
        """Read the data source again."""
        for pair in self.pairs:
            self._reload(pair)

    def _reload(self, pair: str) -> None:
        getattr(self.kernel, f"reload_{pair}_from_data_source")()

    def _update(self, style: MPSNNTrainingStyle, state: MPSState) -> Callable[[], None] | None:
        changes: list[Callable[[], None]] = []
        for method, callback in self.callbacks(style).items():
            pair = next(name for name in self.pairs if name in method)
            answer = callback(state)
            if style is MPSNNTrainingStyle.CPU:
                if not isinstance(answer, bool):
                    raise TypeError(
                        f"{method} of the data source of {self.name!r} returned {answer!r}; it must return True, or "
                        "False for no update"
                    )
                if answer:
                    changes.append(partial(self._reload, pair))
            elif answer is not None:
                if not isinstance(answer, PAIRS[pair]):
                    raise TypeError(
                        f"{method} of the data source of {self.name!r} returned a {type(answer).__name__}; it must "
                        f"return an {PAIRS[pair].__name__}, or None for no update"
                    )
                changes.append(partial(getattr(self.kernel, f"reload_{pair}"), answer))
        if not changes:
            return None

        def change() -> None:
            for apply in changes:
                apply()

        return change


class NormalizationNode(WeightedNode):
    """A normalization node with a data source; not a class of Apple's."""

    _abstract = True
    kernel_class: ClassVar[type[NormalizationKernel]]
    _parameters_class: ClassVar[type[NormalizationParameters]]
    data_source = NormalizationKernel.data_source

    def __init__(
        self, source: MPSNNImageNode, data_source: MPSCNNInstanceNormalizationDataSource, **properties: Any
    ) -> None:
        set_read_only(self, data_source=data_source)
        super().__init__((source,), **properties)

    def _bind(self, shapes: Sequence[Shape], parameters: NormalizationParameters, states: Sequence[Call]) -> Call:
        channels = parameters.kernel.number_of_feature_channels
        if shapes[0][3] != channels:
            raise ShapeError(f"its source has {shapes[0][3]} channels; its data source has {channels}")
        return super()._bind(shapes, parameters, states)
