"""The description of an optimizer with Apple's names: learning rate, clipping, rescale and regularization.

>>> MPSNNOptimizerDescriptor(0.1, regularization_type="l2", regularization_scale=0.5)
MPSNNOptimizerDescriptor(learning_rate=0.1, regularization_type=MPSNNRegularizationType.L2, regularization_scale=0.5)

Source: ``MPSNNOptimizerDescriptor`` in ``MPSNNOptimizers.h`` [doc].
"""

from __future__ import annotations

import copy
import math
from typing import Any, Self

import numpy as np

from mpsref.arguments.parameters import flag, number
from mpsref.mps.core.properties import Property, initialize, properties_of
from mpsref.mps.core.serialization import SecureCoding, secure_coding
from mpsref.mps.core.types import Enumeration, member

__all__ = ["MPSNNOptimizerDescriptor", "MPSNNRegularizationType", "clip_bound", "optimizer_descriptor"]


class MPSNNRegularizationType(Enumeration):
    """What is added to the loss. Source: ``MPSNNOptimizers.h`` [doc]."""

    NONE = 0
    L1 = 1
    L2 = 2


def regularization_type(name: str, value: Any) -> MPSNNRegularizationType:
    """Return ``value`` as a member: the check of a property."""
    return member(name, value, MPSNNRegularizationType)


def clip_bound(name: str, value: Any) -> float:
    """Return a bound of gradients, a number or an infinity: the check of a property."""
    if isinstance(value, (float, np.floating)) and math.isinf(value):
        return float(value)
    return number(name, value)


@secure_coding(
    version=1,
    arguments=(
        "learning_rate",
        "gradient_rescale",
        "apply_gradient_clipping",
        "gradient_clip_max",
        "gradient_clip_min",
        "regularization_type",
        "regularization_scale",
    ),
)
class MPSNNOptimizerDescriptor(SecureCoding):
    """What all optimizers have in common. Numbers are finite and of any sign; the clip bounds may be infinite.

    The properties can be set; an optimizer copies the descriptor when it is made.
    """

    learning_rate = Property(number, 1e-3, "What a step is multiplied by.")
    gradient_rescale = Property(number, 1.0, "What a gradient is multiplied by, after clipping.")
    apply_gradient_clipping = Property(flag, False, "Whether gradients are clipped.")
    gradient_clip_max = Property(clip_bound, math.inf, "The largest gradient.")
    gradient_clip_min = Property(clip_bound, -math.inf, "The smallest gradient.")
    regularization_type = Property(
        regularization_type, MPSNNRegularizationType.NONE, "What is added to the loss: nothing, L1 or L2."
    )
    regularization_scale = Property(number, 0.0, "What the gradient of that is multiplied by.")

    def __init__(
        self,
        learning_rate: float = 1e-3,
        gradient_rescale: float = 1.0,
        *,
        apply_gradient_clipping: bool = False,
        gradient_clip_max: float = math.inf,
        gradient_clip_min: float = -math.inf,
        regularization_type: Any = MPSNNRegularizationType.NONE,
        regularization_scale: float = 0.0,
    ) -> None:
        """Describe an optimizer; ``ValueError`` for gradient_clip_min > gradient_clip_max."""
        initialize(
            self,
            {
                "learning_rate": learning_rate,
                "gradient_rescale": gradient_rescale,
                "apply_gradient_clipping": apply_gradient_clipping,
                "gradient_clip_max": gradient_clip_max,
                "gradient_clip_min": gradient_clip_min,
                "regularization_type": regularization_type,
                "regularization_scale": regularization_scale,
            },
        )
        self.check()

    def check(self) -> None:
        """Raise ``ValueError`` unless gradient_clip_min <= gradient_clip_max."""
        if self.gradient_clip_min > self.gradient_clip_max:
            raise ValueError(
                f"gradient_clip_min is {self.gradient_clip_min} and gradient_clip_max is {self.gradient_clip_max}; "
                "the former must be <= the latter"
            )

    def copy(self) -> Self:
        """Return an equal descriptor."""
        return copy.copy(self)

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # properties change

    def __repr__(self) -> str:
        changed = {
            name: vars(self)[name] for name, one in properties_of(type(self)).items() if vars(self)[name] != one.default
        }
        words = (f"{name}={'float(' + repr(str(v)) + ')' if _infinite(v) else repr(v)}" for name, v in changed.items())
        return f"{type(self).__name__}({', '.join(words)})"


def _infinite(value: Any) -> bool:
    return isinstance(value, float) and math.isinf(value)


def optimizer_descriptor(name: str, value: Any) -> MPSNNOptimizerDescriptor:
    """Return a copy of ``value`` if it is a descriptor, else raise ``TypeError``: the check of a property."""
    if not isinstance(value, MPSNNOptimizerDescriptor):
        raise TypeError(f"{name} is of type {type(value).__name__}; it must be an MPSNNOptimizerDescriptor")
    value.check()
    return value.copy()
