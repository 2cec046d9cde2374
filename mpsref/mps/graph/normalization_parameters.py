"""The parameters of one normalization in one graph: a kernel that has loaded them."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from mpsref.arguments.arrays import Array
from mpsref.mps.core.state import MPSState
from mpsref.mps.graph.nodes import MPSNNTrainingStyle
from mpsref.mps.graph.trainable import NodeParameters
from mpsref.mps.normalization_states import (
    MPSCNNNormalizationGammaAndBetaState,
    MPSCNNNormalizationMeanAndVarianceState,
)

Pair = TypeVar("Pair", MPSCNNNormalizationGammaAndBetaState, MPSCNNNormalizationMeanAndVarianceState)

SCALE = "gamma_and_beta"
STATISTICS = "mean_and_variance"
CLASSES: dict[str, type[MPSState]] = {
    SCALE: MPSCNNNormalizationGammaAndBetaState,
    STATISTICS: MPSCNNNormalizationMeanAndVarianceState,
}


class NormalizationParameters(NodeParameters):
    """Gamma and beta, and for batch normalization mean and variance."""

    pairs: ClassVar[tuple[str, ...]] = (SCALE,)
    """What the data source may update, in this order [choice]."""
    callback_names: ClassVar = {
        MPSNNTrainingStyle.GPU: (f"update_{SCALE}",),
        MPSNNTrainingStyle.CPU: (f"update_{SCALE}_cpu",),
    }

    @property
    def data_source(self) -> Any:
        """Where the parameters come from."""
        return self.kernel.data_source

    def arrays(self) -> Mapping[str, Array | None]:
        """Return gamma and beta in force."""
        gamma, beta = self.kernel.scale
        return {"gamma": gamma, "beta": beta}

    def snapshot(self) -> Any:
        """Return everything that the kernel holds."""
        return dict(vars(self.kernel))

    def restore(self, before: Any) -> None:
        """Put it back."""
        vars(self.kernel).clear()
        vars(self.kernel).update(before)

    def reload(self) -> None:
        """Read the data source again."""
        for pair in self.pairs:
            self._reload(pair)

    def _reload(self, pair: str) -> None:
        getattr(self.kernel, f"reload_{pair}_from_data_source")()

    @abc.abstractmethod
    def state(self, step_state: Mapping[str, Any]) -> MPSState:
        """Return a synchronized state with the gradients of one run."""

    def _update(self, style: MPSNNTrainingStyle, state: MPSState) -> Callable[[], None] | None:
        changes: list[Callable[[], None]] = []
        for method, callback in self.callbacks(style).items():
            pair = next(one for one in self.pairs if one in method)
            answer = callback(state)
            if style is MPSNNTrainingStyle.CPU:
                if not isinstance(answer, bool):
                    raise TypeError(
                        f"{method} of the data source of {self.name!r} returned {answer!r}; it must return True, or "
                        "False for no update"
                    )
                if answer:
                    changes.append(lambda pair=pair: self._reload(pair))  # type: ignore[misc]
            elif answer is not None:
                if not isinstance(answer, CLASSES[pair]):
                    raise TypeError(
                        f"{method} of the data source of {self.name!r} returned a {type(answer).__name__}; it must "
                        f"return an {CLASSES[pair].__name__}, or None for no update"
                    )
                changes.append(lambda pair=pair, answer=answer: self._replace(pair, answer))  # type: ignore[misc]
        if not changes:
            return None

        def change() -> None:
            for one in changes:
                one()

        return change

    def _replace(self, pair: str, state: MPSState) -> None:
        getattr(self.kernel, f"reload_{pair}")(state)
