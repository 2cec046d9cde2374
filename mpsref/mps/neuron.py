"""Neuron kernels with Apple's names: one class for every type, thin classes for single types, and the gradient.

>>> import numpy as np
>>> neuron = MPSCNNNeuron(MPSNNNeuronDescriptor("relu", a=0.5))
>>> x = np.array([[[[-2.0, 0.0, 3.0]]]], np.float32)
>>> y, state = neuron.encode(x, return_state=True)
>>> y.ravel().tolist()
[-1.0, 0.0, 3.0]
>>> MPSCNNNeuronGradient(neuron.neuron_descriptor).encode(np.ones_like(x), x, state).ravel().tolist()
[0.5, 1.0, 1.0]
>>> MPSCNNNeuronReLU(0.5) == neuron
True

Source: ``MPSCNNNeuron.h`` [doc].
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.arguments.parameters import choice
from mpsref.kernels.neuron import Neuron
from mpsref.mps.core.kernel import saved
from mpsref.mps.core.pixelwise import Pixelwise, PixelwiseGradient
from mpsref.mps.core.properties import Property, fix
from mpsref.mps.neuron_descriptor import MPSCNNNeuronType, MPSNNNeuronDescriptor, neuron_descriptor
from mpsref.registry import Backend

__all__ = [
    "MPSCNNNeuron",
    "MPSCNNNeuronAbsolute",
    "MPSCNNNeuronELU",
    "MPSCNNNeuronExponential",
    "MPSCNNNeuronGradient",
    "MPSCNNNeuronHardSigmoid",
    "MPSCNNNeuronLinear",
    "MPSCNNNeuronLogarithm",
    "MPSCNNNeuronPReLU",
    "MPSCNNNeuronPower",
    "MPSCNNNeuronReLU",
    "MPSCNNNeuronReLUN",
    "MPSCNNNeuronSigmoid",
    "MPSCNNNeuronSoftPlus",
    "MPSCNNNeuronSoftSign",
    "MPSCNNNeuronTanH",
    "MPSCNNNeuronType",
    "MPSNNNeuronDescriptor",
]


class Described:
    """What the forward and the gradient kernel share: the descriptor, whose values they show."""

    neuron_descriptor = Property(
        neuron_descriptor, MPSNNNeuronDescriptor("none"), "Type and parameters of the neuron.", read_only=True
    )

    @property
    def neuron_type(self) -> MPSCNNNeuronType:
        """Which function."""
        return self.neuron_descriptor.neuron_type

    @property
    def a(self) -> float:
        """The first parameter; 0.0 where the type has none."""
        return self.neuron_descriptor.a

    @property
    def b(self) -> float:
        """The second parameter; 0.0 where the type has none."""
        return self.neuron_descriptor.b

    @property
    def c(self) -> float:
        """The third parameter; 0.0 where the type has none."""
        return self.neuron_descriptor.c

    @property
    def data(self) -> tuple[float, ...] | None:
        """The slopes of PReLU."""
        return self.neuron_descriptor.data


@saved("neuron_descriptor")
class MPSCNNNeuron(Described, Pixelwise):
    """A neuron, (N, H, W, C) to the same shape: :class:`mpsref.Neuron`. Classes of single types are equal to it."""

    def __init__(
        self, neuron_descriptor: MPSNNNeuronDescriptor, *, backend: str | Backend | None = None, **properties: Any
    ) -> None:
        """Make a kernel; ``TypeError`` for what is no descriptor. Properties can be given by keyword."""
        fix(self, neuron_descriptor=neuron_descriptor)
        super().__init__(backend=backend, **properties)

    def __eq__(self, other: object) -> bool:
        """Whether both are neurons with equal properties."""
        return vars(self) == vars(other) if isinstance(other, MPSCNNNeuron) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # properties change

    def _forward(self, x: Array, out: Array) -> None:
        self.neuron_descriptor.neuron.forward(x, out=out, backend=self.backend)


def _slope_choice(name: str, value: Any) -> str:
    return choice(name, value, ("zero", "documented"))


@saved("neuron_descriptor")
class MPSCNNNeuronGradient(Described, PixelwiseGradient):
    """The gradient of a neuron, from g and the source image x; the forward result is not read.

    ``relun_clamped_slope`` is what ReLUN's derivative is from its clamp b on: "zero", which is the derivative, or
    "documented", the b that Apple's header prints [choice].
    """

    forward_class = MPSCNNNeuron

    relun_clamped_slope = Property(_slope_choice, "zero", "ReLUN's slope at and above its clamp, as the class says.")

    def __init__(
        self, neuron_descriptor: MPSNNNeuronDescriptor, *, backend: str | Backend | None = None, **properties: Any
    ) -> None:
        """Make a kernel; ``TypeError`` for what is no descriptor. Properties can be given by keyword."""
        fix(self, neuron_descriptor=neuron_descriptor)
        super().__init__(backend=backend, **properties)

    def _gradient(self, g: Array, other: Array, out: Array | None = None) -> Array:
        neuron = self.neuron_descriptor.neuron
        if neuron.type != "relun" or self.relun_clamped_slope == "zero":
            return neuron.gradient(g, other, out=out, backend=self.backend)
        above, below = (
            slopes.gradient(g, other, backend=self.backend)
            for slopes in (Neuron("linear", a=neuron.b), Neuron("relu", a=neuron.a))
        )
        found = np.where(other >= neuron.b, above, below)
        if out is not None:
            out[...] = found
        return found


class SingleType(MPSCNNNeuron):
    """Base of the classes with one type of neuron; their arguments are the parameters that the type has."""

    type: ClassVar[MPSCNNNeuronType]

    def _describe(self, properties: dict[str, Any], **parameters: Any) -> None:
        backend = properties.pop("backend", None)
        MPSCNNNeuron.__init__(self, MPSNNNeuronDescriptor(self.type, **parameters), backend=backend, **properties)


class WithoutParameters(SingleType):
    """Base of the classes whose type has no parameters."""

    def __init__(self, **properties: Any) -> None:
        """Make a kernel; properties, ``backend`` among them, can be given by keyword."""
        self._describe(properties)


class WithA(SingleType):
    """Base of the classes whose type has the parameter ``a``."""

    def __init__(self, a: float | None = None, **properties: Any) -> None:
        """Make a kernel; ``None`` is the documented default. Errors as in :class:`MPSNNNeuronDescriptor`."""
        self._describe(properties, a=a)


class WithAB(SingleType):
    """Base of the classes whose type has the parameters ``a`` and ``b``."""

    def __init__(self, a: float | None = None, b: float | None = None, **properties: Any) -> None:
        """Make a kernel; ``None`` is the documented default. Errors as in :class:`MPSNNNeuronDescriptor`."""
        self._describe(properties, a=a, b=b)


class WithABC(SingleType):
    """Base of the classes whose type has the parameters ``a``, ``b`` and ``c``."""

    def __init__(
        self, a: float | None = None, b: float | None = None, c: float | None = None, **properties: Any
    ) -> None:
        """Make a kernel; ``None`` is the documented default. Errors as in :class:`MPSNNNeuronDescriptor`."""
        self._describe(properties, a=a, b=b, c=c)


@saved("a")
class MPSCNNNeuronReLU(WithA):
    """``y = x`` from 0 on, ``a*x`` below."""

    type = MPSCNNNeuronType.ReLU


@saved("a", "b")
class MPSCNNNeuronLinear(WithAB):
    """``y = a*x + b``."""

    type = MPSCNNNeuronType.Linear


@saved()
class MPSCNNNeuronSigmoid(WithoutParameters):
    """``y = 1 / (1 + e**-x)``."""

    type = MPSCNNNeuronType.Sigmoid


@saved("a", "b")
class MPSCNNNeuronHardSigmoid(WithAB):
    """``y = a*x + b``, clamped to [0, 1]."""

    type = MPSCNNNeuronType.HardSigmoid


@saved("a", "b")
class MPSCNNNeuronTanH(WithAB):
    """``y = a * tanh(b*x)``."""

    type = MPSCNNNeuronType.TanH


@saved()
class MPSCNNNeuronAbsolute(WithoutParameters):
    """``y = |x|``."""

    type = MPSCNNNeuronType.Absolute


@saved("a", "b")
class MPSCNNNeuronSoftPlus(WithAB):
    """``y = a * log(1 + e**(b*x))``."""

    type = MPSCNNNeuronType.SoftPlus


@saved()
class MPSCNNNeuronSoftSign(WithoutParameters):
    """``y = x / (1 + |x|)``."""

    type = MPSCNNNeuronType.SoftSign


@saved("a")
class MPSCNNNeuronELU(WithA):
    """``y = x`` from 0 on, ``a * (e**x - 1)`` below."""

    type = MPSCNNNeuronType.ELU


@saved("data")
class MPSCNNNeuronPReLU(SingleType):
    """``y = x`` from 0 on, ``data[c] * x`` below, in channel c."""

    type = MPSCNNNeuronType.PReLU

    def __init__(self, data: Any, **properties: Any) -> None:
        """Make a kernel with one slope for each channel. Errors as in :class:`MPSNNNeuronDescriptor`."""
        self._describe(properties, data=data)


@saved("a", "b")
class MPSCNNNeuronReLUN(WithAB):
    """``y = min(x, b)`` from 0 on, ``min(a*x, b)`` below."""

    type = MPSCNNNeuronType.ReLUN


@saved("a", "b", "c")
class MPSCNNNeuronPower(WithABC):
    """``y = (a*x + b)**c``."""

    type = MPSCNNNeuronType.Power


@saved("a", "b", "c")
class MPSCNNNeuronExponential(WithABC):
    """``y = c**(a*x + b)``; c = -1 stands for the base e."""

    type = MPSCNNNeuronType.Exponential


@saved("a", "b", "c")
class MPSCNNNeuronLogarithm(WithABC):
    """``y = log(a*x + b)`` to the base c; c = -1 stands for e."""

    type = MPSCNNNeuronType.Logarithm
