"""The description of a loss with Apple's names, and of the data of its labels.

>>> MPSCNNLossDescriptor("huber", "mean", delta=0.5)
MPSCNNLossDescriptor(MPSCNNLossType.Huber, MPSCNNReductionType.Mean, delta=0.5)
>>> labels = MPSCNNLossDataDescriptor(np.zeros(12, np.float32), "heightxwidthxfeaturechannels", (3, 2, 1))
>>> labels.array.shape
(2, 2, 3, 1)

Source: ``MPSCNNLoss.h`` [doc].
"""

from __future__ import annotations

import copy
import math
from typing import Any, Self

import numpy as np

from mpsref.arguments.arrays import Array, as_array
from mpsref.arguments.parameters import flag, integer, number
from mpsref.errors import ShapeError
from mpsref.kernels.loss import REDUCTIONS, Loss
from mpsref.kernels.loss_formulas import LOSS_TYPES
from mpsref.mps.core import types
from mpsref.mps.core.properties import Property, fix, initialize, properties_of
from mpsref.mps.core.serialization import SecureCoding, secure_coding
from mpsref.mps.core.types import Enumeration, MPSDataLayout, MTLSize, member

__all__ = [
    "MPSCNNLossDataDescriptor",
    "MPSCNNLossDescriptor",
    "MPSCNNLossType",
    "MPSCNNReductionType",
    "delta",
    "epsilon",
    "label_smoothing",
    "loss_descriptor",
]


class MPSCNNLossType(Enumeration):
    """The losses. Source: ``MPSCNNTypes.h`` [doc]."""

    MeanAbsoluteError = 0
    MeanSquaredError = 1
    SoftMaxCrossEntropy = 2
    SigmoidCrossEntropy = 3
    CategoricalCrossEntropy = 4
    Hinge = 5
    Huber = 6
    CosineDistance = 7
    Log = 8
    KullbackLeiblerDivergence = 9


class MPSCNNReductionType(Enumeration):
    """What becomes of the losses of all elements. Source: ``MPSCNNTypes.h`` [doc]."""

    NONE = 0
    Sum = 1
    Mean = 2
    SumByNonZeroWeights = 3


def label_smoothing(name: str, value: Any) -> float:
    """Return a number in [0, 1]: the check of a property."""
    return number(name, value, 0, 1)


def epsilon(name: str, value: Any) -> float:
    """Return a number >= 0: the check of a property."""
    return number(name, value, 0)


def delta(name: str, value: Any) -> float:
    """Return a number > 0: the check of a property."""
    return number(name, value, 0, above=True)


SETTABLE = "reduce_across_batch", "weight", "label_smoothing", "number_of_classes", "epsilon", "delta"


@secure_coding(version=1, arguments=("loss_type", "reduction_type", *SETTABLE))
class MPSCNNLossDescriptor(SecureCoding):
    """A loss type, a reduction and their parameters, which can be set; kernels copy the descriptor when they are made.

    ``CosineDistance`` takes the reduction ``Sum`` alone [doc]. Legal values are those of :class:`mpsref.Loss`.
    """

    loss_type = Property(
        lambda name, value: member(name, value, MPSCNNLossType),
        MPSCNNLossType.MeanAbsoluteError,
        "Which loss.",
        read_only=True,
    )
    reduction_type = Property(
        lambda name, value: member(name, value, MPSCNNReductionType),
        MPSCNNReductionType.NONE,
        "What becomes of the losses of all elements.",
        read_only=True,
    )
    reduce_across_batch = Property(flag, False, "Whether all images are reduced to one number.")
    weight = Property(number, 1.0, "What every loss and gradient is multiplied by.")
    label_smoothing = Property(label_smoothing, 0.0, "How much labels are smoothed, in [0, 1].")
    number_of_classes = Property(
        lambda name, value: integer(name, value, low=1), 1, "Over how many classes softmax labels are smoothed."
    )
    epsilon = Property(epsilon, 1e-7, "What is added to the arguments of ``Log``'s logarithms, >= 0.")
    delta = Property(delta, 1.0, "Where ``Huber`` turns into a line, > 0.")

    def __init__(self, loss_type: Any, reduction_type: Any, **properties: Any) -> None:
        """Describe a loss; the properties can be given by keyword. ``ValueError`` for what is not legal."""
        fix(self, loss_type=loss_type, reduction_type=reduction_type)
        initialize(self, properties)
        _ = self.function  # which refuses a reduction that the type does not take

    @property
    def function(self) -> Loss:
        """The functional form."""
        settable = {name: getattr(self, name) for name in SETTABLE}
        return Loss(LOSS_TYPES[self.loss_type], REDUCTIONS[self.reduction_type], **settable)

    def copy(self) -> Self:
        """Return an equal descriptor."""
        return copy.copy(self)

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # properties change

    def __repr__(self) -> str:
        known = properties_of(type(self))
        changed = [f"{name}={getattr(self, name)!r}" for name in SETTABLE if getattr(self, name) != known[name].default]
        return f"{type(self).__name__}({', '.join([repr(self.loss_type), repr(self.reduction_type), *changed])})"


def loss_descriptor(name: str, value: Any) -> MPSCNNLossDescriptor:
    """Return a copy of ``value`` if it is a descriptor, else raise ``TypeError``: the check of a property."""
    if not isinstance(value, MPSCNNLossDescriptor):
        raise TypeError(f"{name} is of type {type(value).__name__}; it must be an MPSCNNLossDescriptor")
    return value.copy()


class MPSCNNLossDataDescriptor:
    """Labels or weights in plain memory; of one image, or of as many as the data are for.

    ``array`` is a copy of them as (N, H, W, C). Source: ``MPSCNNLossDataDescriptor`` [doc]; NumPy takes care of strides
    [choice].
    """

    def __init__(self, data: Any, layout: Any, size: Any) -> None:
        """Copy floating-point ``data`` of images of ``size`` (width, height, channels) in ``layout``.

        Raises ``TypeError`` for integers, ``ShapeError`` for another number of values than N times the size.
        """
        array = as_array("data", data)
        if array.dtype.kind != "f":
            raise TypeError(f"data has dtype {array.dtype}; it must be a floating-point array: convert it")
        self._layout = types.data_layout("layout", layout)
        self._size = types.size("size", size)
        width, height, channels = self._size
        values = math.prod(self._size)
        if not values or array.size % values or not array.size:
            raise ShapeError(
                f"data has {array.size} values; it must have N * {values} for N >= 1 images of width {width}, height "
                f"{height} and {channels} channels, each >= 1"
            )
        if self._layout is MPSDataLayout.FeatureChannelsxHeightxWidth:
            images = array.reshape(-1, channels, height, width).transpose(0, 2, 3, 1)
        else:
            images = array.reshape(-1, height, width, channels)
        self._array = np.array(images, dtype=array.dtype.newbyteorder("="), order="C")

    @property
    def array(self) -> Array:
        """The data, (N, H, W, C)."""
        return self._array

    @property
    def layout(self) -> MPSDataLayout:
        """The order in which the data came."""
        return self._layout

    @property
    def size(self) -> MTLSize:
        """(width, height, channels) of an image."""
        return self._size
