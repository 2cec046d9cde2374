"""The description of a neuron with Apple's names: for neuron kernels, and for kernels that end or begin with one.

>>> MPSNNNeuronDescriptor("relun", a=0.0)
MPSNNNeuronDescriptor(neuron_type=MPSCNNNeuronType.ReLUN, a=0.0, b=6.0)
>>> MPSNNNeuronDescriptor(MPSCNNNeuronType.PReLU, data=[0.25, 0.5]).neuron
Neuron('prelu', data=(0.25, 0.5))

Source: ``MPSCNNNeuronType.h``, ``MPSCNNNeuron.h`` [doc].
"""

from __future__ import annotations

from typing import Any

from mpsref.kernels.neuron import TYPES, Neuron
from mpsref.mps.core.serialization import SecureCoding, secure_coding
from mpsref.mps.core.types import Enumeration, member

__all__ = ["MPSCNNNeuronType", "MPSNNNeuronDescriptor", "neuron_descriptor"]


class MPSCNNNeuronType(Enumeration):
    """The functions that neurons have. Source: ``MPSCNNNeuronType.h`` [doc]."""

    NONE = 0
    ReLU = 1
    Linear = 2
    Sigmoid = 3
    HardSigmoid = 4
    TanH = 5
    Absolute = 6
    SoftPlus = 7
    SoftSign = 8
    ELU = 9
    PReLU = 10
    ReLUN = 11
    Power = 12
    Exponential = 13
    Logarithm = 14
    GeLU = 15


@secure_coding(version=1, arguments=("neuron_type", "a", "b", "c", "data"))
class MPSNNNeuronDescriptor(SecureCoding):
    """A type of neuron and its parameters; immutable, and equal to another with the same values.

    ``a``, ``b`` and ``c`` are finite; ``None`` is the documented default, and those that the type does not have read
    0.0. ``data`` is one slope for each channel, for PReLU alone. ``TypeError`` or ``ValueError`` for anything else, as
    :class:`mpsref.Neuron` says.
    """

    __slots__ = ("_neuron",)

    def __init__(self, neuron_type: Any, a: Any = None, b: Any = None, c: Any = None, data: Any = None) -> None:
        """Describe a neuron; ``neuron_type`` is a member of :class:`MPSCNNNeuronType`, its number or its name."""
        chosen = member("neuron_type", neuron_type, MPSCNNNeuronType)
        object.__setattr__(self, "_neuron", Neuron(TYPES[chosen], a, b, c, data))

    @classmethod
    def cnn_neuron_descriptor_with_type(cls, neuron_type: Any, a: Any = None, b: Any = None, c: Any = None) -> Any:
        """Return the descriptor of a type and its parameters; Apple's four factories of this name in one."""
        return cls(neuron_type, a, b, c)

    @classmethod
    def cnn_neuron_prelu_descriptor_with_data(cls, data: Any, no_copy: bool = False) -> Any:
        """Return the descriptor of PReLU; the slopes are copied whatever ``no_copy`` says [choice]."""
        return cls(MPSCNNNeuronType.PReLU, data=data)

    @property
    def neuron(self) -> Neuron:
        """The functional form."""
        found: Neuron = object.__getattribute__(self, "_neuron")
        return found

    @property
    def neuron_type(self) -> MPSCNNNeuronType:
        """Which function."""
        return MPSCNNNeuronType(TYPES.index(self.neuron.type))

    @property
    def a(self) -> float:
        """The first parameter; 0.0 where the type has none."""
        return self.neuron.a

    @property
    def b(self) -> float:
        """The second parameter; 0.0 where the type has none."""
        return self.neuron.b

    @property
    def c(self) -> float:
        """The third parameter; 0.0 where the type has none."""
        return self.neuron.c

    @property
    def data(self) -> tuple[float, ...] | None:
        """The slopes of PReLU."""
        return None if self.neuron.data is None else tuple(self.neuron.data)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name} cannot be set: an MPSNNNeuronDescriptor is immutable; make another one")

    def __eq__(self, other: object) -> bool:
        return self.neuron == other.neuron if isinstance(other, MPSNNNeuronDescriptor) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.neuron)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.neuron_type, self.a, self.b, self.c, self.data)

    def __repr__(self) -> str:
        _, *parameters = repr(self.neuron)[len("Neuron(") : -1].split(", ", 1)
        return f"MPSNNNeuronDescriptor({', '.join([f'neuron_type={self.neuron_type!r}', *parameters])})"


def neuron_descriptor(name: str, value: Any) -> MPSNNNeuronDescriptor:
    """Return ``value`` if it is a descriptor, else raise ``TypeError``: the check of a property."""
    if not isinstance(value, MPSNNNeuronDescriptor):
        raise TypeError(f"{name} is of type {type(value).__name__}; it must be an MPSNNNeuronDescriptor")
    return value
