"""Neurons with Apple's names: descriptors, kernels of every type, their gradient, and nodes of graphs.

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

Source: ``MPSCNNNeuron.h``, ``MPSCNNNeuronType.h``, ``MPSNNGraphNodes.h`` [doc].
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from mpsref.arguments.arrays import Array
from mpsref.arguments.parameters import choice
from mpsref.kernels.neuron import ACTIVATIONS, TYPES, Neuron
from mpsref.mps.core.encode import ImageKernel
from mpsref.mps.core.pixelwise import Pixelwise, PixelwiseGradient
from mpsref.mps.core.properties import (
    Alias,
    Argument,
    NoNewAttributes,
    Property,
    PropertyError,
    constructed,
    instance_of,
    set_read_only,
)
from mpsref.mps.core.serialization import SecureCoding, secure_coding
from mpsref.mps.core.types import Enumeration, member
from mpsref.mps.graph.nodes import ForwardKernelNode, GradientKernelNode, MPSNNImageNode
from mpsref.registry import Backend


class MPSCNNNeuronType(Enumeration):
    """The functions of neurons. Source: ``MPSCNNNeuronType.h`` [doc]."""

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


class _Parameters:
    """Parameters of a functional form, read-only."""

    _neuron: ClassVar[Alias[Neuron]]

    a: Alias[float] = Alias("_neuron.a", "The first parameter; 0.0 where the type has none.")
    b: Alias[float] = Alias("_neuron.b", "The second parameter; 0.0 where the type has none.")
    c: Alias[float] = Alias("_neuron.c", "The third parameter; 0.0 where the type has none.")


class _TypeAndParameters:
    """In addition, the type."""

    _neuron: ClassVar[Alias[Neuron]]

    a, b, c = _Parameters.a, _Parameters.b, _Parameters.c
    neuron_type: Alias[MPSCNNNeuronType] = Alias(
        "_neuron.type", "The function.", lambda kind: MPSCNNNeuronType(TYPES.index(kind))
    )
    data: Alias[tuple[float, ...] | None] = Alias(
        "_neuron.data", "The slopes of PReLU.", lambda data: None if data is None else tuple(data)
    )


PARAMETERS = "neuron_type", "a", "b", "c", "data"


def _settable(name: str) -> Any:
    view: Any = getattr(_TypeAndParameters, name)
    return property(lambda self: view.__get__(self, None), lambda self, value: self._set(name, value), doc=view.__doc__)


@secure_coding(version=1, arguments=PARAMETERS)
class MPSNNNeuronDescriptor(_TypeAndParameters, NoNewAttributes, SecureCoding):
    """A type of neuron and its parameters.

    They can be set, except those of a descriptor that belongs to a kernel or to another descriptor, which has a copy.
    Parameters that a new type shares with the present one keep their values; others get the documented default.

    Parameters
    ----------
    neuron_type : MPSCNNNeuronType, int or str
        The type, its number, or its name in lower case.
    a, b, c : float, optional
        Finite; ``None`` is the documented default. Parameters that the type does not have are 0.0.
    data : array_like, optional
        One slope for each channel, for PReLU only.

    Raises
    ------
    TypeError, ValueError
        As :class:`mpsref.Neuron`.

    Examples
    --------
    >>> MPSNNNeuronDescriptor("relun", a=0.0)
    MPSNNNeuronDescriptor(neuron_type=MPSCNNNeuronType.ReLUN, a=0.0, b=6.0)
    >>> MPSNNNeuronDescriptor(MPSCNNNeuronType.PReLU, data=[0.25, 0.5]).neuron
    Neuron('prelu', data=(0.25, 0.5))
    """

    neuron: Neuron
    """The functional form."""

    def __init__(
        self,
        neuron_type: MPSCNNNeuronType | int | str,
        a: float | None = None,
        b: float | None = None,
        c: float | None = None,
        data: ArrayLike | None = None,
    ) -> None:
        chosen = member("neuron_type", neuron_type, MPSCNNNeuronType)
        vars(self)["neuron"] = Neuron(TYPES[chosen], a, b, c, data)  # type: ignore[arg-type]  # None: the default

    @classmethod
    def cnn_neuron_descriptor_with_type(cls, neuron_type: MPSCNNNeuronType | int | str) -> Self:
        """Return the descriptor of a type with its documented parameters."""
        return cls(neuron_type)

    @classmethod
    def cnn_neuron_descriptor_with_type_a(cls, neuron_type: MPSCNNNeuronType | int | str, a: float) -> Self:
        """Return a new descriptor; equivalent to the constructor."""
        return cls(neuron_type, a)

    @classmethod
    def cnn_neuron_descriptor_with_type_a_b(cls, neuron_type: MPSCNNNeuronType | int | str, a: float, b: float) -> Self:
        """Return a new descriptor; equivalent to the constructor."""
        return cls(neuron_type, a, b)

    @classmethod
    def cnn_neuron_descriptor_with_type_a_b_c(
        cls, neuron_type: MPSCNNNeuronType | int | str, a: float, b: float, c: float
    ) -> Self:
        """Return a new descriptor; equivalent to the constructor."""
        return cls(neuron_type, a, b, c)

    @classmethod
    def cnn_neuron_prelu_descriptor_with_data_no_copy(cls, data: ArrayLike, no_copy: bool = False) -> Self:
        """Return the descriptor of PReLU; slopes are always copied, ``no_copy`` is ignored [design objects-options]."""
        return cls(MPSCNNNeuronType.PReLU, data=data)

    _neuron: ClassVar[Alias[Neuron]] = Alias("neuron", "The functional form.")

    def _set(self, name: str, value: Any) -> None:
        if vars(self).get("_owned"):
            raise PropertyError(
                f"{name} cannot be set: the descriptor belongs to a kernel or to another descriptor; set another "
                "MPSNNNeuronDescriptor there, or make another kernel"
            )
        present, given = self.neuron, {name: value}
        kind = present.type
        if name == "neuron_type":
            kind, given = TYPES[member(name, value, MPSCNNNeuronType)], {}
        elif name == "data" and value is not None:
            kind = "prelu"
        shared = ACTIVATIONS[present.type].needs.keys() & ACTIVATIONS[kind].needs.keys()
        vars(self)["neuron"] = Neuron(kind, **({one: getattr(present, one) for one in shared} | given))

    neuron_type: MPSCNNNeuronType = _settable("neuron_type")
    a: float = _settable("a")
    b: float = _settable("b")
    c: float = _settable("c")
    data: tuple[float, ...] | None = _settable("data")

    def copy(self) -> Self:
        """Return an equal descriptor, whose properties can be set."""
        return type(self)(self.neuron_type, self.a, self.b, self.c, self.data)

    def __eq__(self, other: object) -> bool:
        return self.neuron == other.neuron if isinstance(other, MPSNNNeuronDescriptor) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # properties change

    def __reduce__(self) -> tuple[object, ...]:
        owned = {"_owned": True} if "_owned" in vars(self) else None
        return type(self), (self.neuron_type, self.a, self.b, self.c, self.data), owned

    def __repr__(self) -> str:
        _, *parameters = repr(self.neuron)[len("Neuron(") : -1].split(", ", 1)
        return f"MPSNNNeuronDescriptor({', '.join([f'neuron_type={self.neuron_type!r}', *parameters])})"


def neuron_descriptor(name: str, value: object) -> MPSNNNeuronDescriptor:
    """Check a property that is a descriptor; return a copy that does not change."""
    descriptor = instance_of(name, value, MPSNNNeuronDescriptor)
    if vars(descriptor).get("_owned"):
        return descriptor
    own = descriptor.copy()
    vars(own)["_owned"] = True
    return own


def neuron_of(descriptor: MPSNNNeuronDescriptor | None) -> Neuron | None:
    """Return the functional form; ``None`` also for the type None."""
    return None if descriptor is None or descriptor.neuron.type == "none" else descriptor.neuron


# --- kernels of any type ----------------------------------------------------------------------------------------------


@constructed(init=False)
class _Described(_TypeAndParameters, ImageKernel):
    """A forward or a gradient kernel, with the parameters of its descriptor."""

    neuron_descriptor: Argument[MPSNNNeuronDescriptor] = Argument(
        neuron_descriptor, "Type and parameters of the neuron."
    )

    _neuron: ClassVar[Alias[Neuron]] = Alias("neuron_descriptor.neuron", "The functional form.")


@constructed()
class MPSCNNNeuron(_Described, Pixelwise):
    """A neuron, (N, H, W, C) to the same shape: :class:`mpsref.Neuron`. Classes of single types are equal to it."""

    type: ClassVar[MPSCNNNeuronType]

    def __init_subclass__(cls, type: MPSCNNNeuronType | None = None) -> None:
        super().__init_subclass__()
        if type is not None:
            cls.type = type

    def __eq__(self, other: object) -> bool:
        """Whether both are neurons with equal properties."""
        return vars(self) == vars(other) if isinstance(other, MPSCNNNeuron) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # properties change

    _form = Alias("_neuron", "The functional form.")


@constructed()
class MPSCNNNeuronGradient(_Described, PixelwiseGradient):
    """The gradient of a neuron, from g and the source image x; the forward result is not read.

    ``relun_clamped_slope`` selects the derivative of ReLUN at and above its clamp b: "zero", the derivative, or
    "documented", the value b in Apple's header [obs neuron-relun].
    """

    forward_class = MPSCNNNeuron

    _: KW_ONLY
    relun_clamped_slope: Property[str] = Property(
        partial(choice, legal=("zero", "documented")), "zero", "ReLUN's slope at and above its clamp."
    )

    @property
    def _form(self) -> Neuron | _DocumentedReLUN:
        neuron = self._neuron
        is_other = neuron.type == "relun" and self.relun_clamped_slope == "documented"
        return _DocumentedReLUN(neuron.a, neuron.b) if is_other else neuron


class _DocumentedReLUN(NamedTuple):
    """ReLUN with the slope b at and above b."""

    a: float
    b: float

    def gradient(self, g: Array, x: Array, *, backend: str | Backend | None) -> Array:
        forms = Neuron("linear", a=self.b), Neuron("relu", a=self.a)
        above, below = (form.gradient(g, x, backend=backend) for form in forms)
        return np.where(x >= self.b, above, below)


# --- kernels of one type: their arguments are the parameters of the type; ``None`` is the documented default ----------


class _WithoutParameters(MPSCNNNeuron):
    def __init__(self, **properties: Any) -> None:
        super().__init__(MPSNNNeuronDescriptor(self.type), **properties)


class _WithA(MPSCNNNeuron):
    def __init__(self, a: float | None = None, **properties: Any) -> None:
        super().__init__(MPSNNNeuronDescriptor(self.type, a), **properties)


class _WithAB(MPSCNNNeuron):
    def __init__(self, a: float | None = None, b: float | None = None, **properties: Any) -> None:
        super().__init__(MPSNNNeuronDescriptor(self.type, a, b), **properties)


class _WithABC(MPSCNNNeuron):
    def __init__(
        self, a: float | None = None, b: float | None = None, c: float | None = None, **properties: Any
    ) -> None:
        super().__init__(MPSNNNeuronDescriptor(self.type, a, b, c), **properties)


class MPSCNNNeuronReLU(_WithA, type=MPSCNNNeuronType.ReLU):
    """``y = x`` from 0 on, ``a*x`` below."""


class MPSCNNNeuronLinear(_WithAB, type=MPSCNNNeuronType.Linear):
    """``y = a*x + b``."""


class MPSCNNNeuronSigmoid(_WithoutParameters, type=MPSCNNNeuronType.Sigmoid):
    """``y = 1 / (1 + e**-x)``."""


class MPSCNNNeuronHardSigmoid(_WithAB, type=MPSCNNNeuronType.HardSigmoid):
    """``y = a*x + b``, clamped to [0, 1]."""


class MPSCNNNeuronTanH(_WithAB, type=MPSCNNNeuronType.TanH):
    """``y = a * tanh(b*x)``."""


class MPSCNNNeuronAbsolute(_WithoutParameters, type=MPSCNNNeuronType.Absolute):
    """``y = |x|``."""


class MPSCNNNeuronSoftPlus(_WithAB, type=MPSCNNNeuronType.SoftPlus):
    """``y = a * log(1 + e**(b*x))``."""


class MPSCNNNeuronSoftSign(_WithoutParameters, type=MPSCNNNeuronType.SoftSign):
    """``y = x / (1 + |x|)``."""


class MPSCNNNeuronELU(_WithA, type=MPSCNNNeuronType.ELU):
    """``y = x`` from 0 on, ``a * (e**x - 1)`` below."""


class MPSCNNNeuronPReLU(MPSCNNNeuron, type=MPSCNNNeuronType.PReLU):
    """``y = x`` from 0 on, ``data[c] * x`` below, in channel c; Apple's parameters are ``a`` and its length."""

    def __init__(self, data: ArrayLike, **properties: Any) -> None:
        super().__init__(MPSNNNeuronDescriptor(self.type, data=data), **properties)


class MPSCNNNeuronReLUN(_WithAB, type=MPSCNNNeuronType.ReLUN):
    """``y = min(x, b)`` from 0 on, ``min(a*x, b)`` below."""


class MPSCNNNeuronPower(_WithABC, type=MPSCNNNeuronType.Power):
    """``y = (a*x + b)**c``."""


class MPSCNNNeuronExponential(_WithABC, type=MPSCNNNeuronType.Exponential):
    """``y = c**(a*x + b)``; c = -1 stands for the base e."""


class MPSCNNNeuronLogarithm(_WithABC, type=MPSCNNNeuronType.Logarithm):
    """``y = log(a*x + b)`` to the base c; c = -1 stands for e."""


# --- nodes of graphs --------------------------------------------------------------------------------------------------


@constructed()
class MPSCNNNeuronGradientNode(GradientKernelNode):
    """The gradient of a neuron of any type."""

    kernel_class, _renamed = MPSCNNNeuronGradient, {"neuron_descriptor": "descriptor"}
    descriptor: Argument[MPSNNNeuronDescriptor] = Argument(neuron_descriptor, "Type and parameters of the neuron.")


class MPSCNNNeuronNode(_Parameters, ForwardKernelNode):
    """Base class of the neuron nodes.

    Parameters
    ----------
    source : MPSNNImageNode
        The image.
    a, b, c : float, optional
        The parameters that the type has, in this order; by default the documented ones. PReLU has ``a_data``.
    **properties
        Initial values of other properties, by name.
    """

    _abstract = True
    spec_class = Neuron
    kernel_class, _renamed = MPSCNNNeuron, {"neuron_descriptor": "descriptor"}
    gradient_class = MPSCNNNeuronGradientNode
    neuron_type: ClassVar[MPSCNNNeuronType]
    descriptor = MPSCNNNeuron.neuron_descriptor.fixed()
    _neuron: ClassVar[Alias[Neuron]] = Alias("descriptor.neuron", "The functional form.")
    _of_type: ClassVar[dict[MPSCNNNeuronType, type[MPSCNNNeuronNode]]] = {}

    def __init_subclass__(cls, kernel: type[MPSCNNNeuron] | None = None) -> None:
        """Derive the type from the kernel."""
        super().__init_subclass__()
        if kernel is not None:
            cls.neuron_type = kernel.type
        if hasattr(cls, "neuron_type"):
            cls.kind = cls.neuron_type.name.lower()
            MPSCNNNeuronNode._of_type.setdefault(cls.neuron_type, cls)

    def __init__(self, source: MPSNNImageNode, **properties: Any) -> None:
        described = properties.pop("descriptor", None)
        set_read_only(self, descriptor=MPSNNNeuronDescriptor(self.neuron_type) if described is None else described)
        super().__init__(source, **properties)

    @staticmethod
    def node_with_source_descriptor(source: MPSNNImageNode, descriptor: MPSNNNeuronDescriptor) -> MPSCNNNeuronNode:
        """Return the node of a type and its parameters; for NONE a Linear node, a = 1, b = 0 [design objects-options].

        >>> node = MPSCNNNeuronNode.node_with_source_descriptor(MPSNNImageNode(), MPSNNNeuronDescriptor("elu", a=0.5))
        >>> type(node).__name__, node.descriptor.a
        ('MPSCNNNeuronELUNode', 0.5)
        """
        kind = neuron_descriptor("descriptor", descriptor).neuron_type
        if kind is MPSCNNNeuronType.NONE:
            return MPSCNNNeuronLinearNode(source, 1.0, 0.0)
        node = object.__new__(MPSCNNNeuronNode._of_type[kind])
        MPSCNNNeuronNode.__init__(node, source, descriptor=descriptor)
        return node


class _NodeWithA(MPSCNNNeuronNode):
    _abstract = True

    def __init__(self, source: MPSNNImageNode, a: float | None = None, **properties: Any) -> None:
        super().__init__(source, descriptor=MPSNNNeuronDescriptor(self.neuron_type, a), **properties)


class _NodeWithAB(MPSCNNNeuronNode):
    _abstract = True

    def __init__(
        self, source: MPSNNImageNode, a: float | None = None, b: float | None = None, **properties: Any
    ) -> None:
        super().__init__(source, descriptor=MPSNNNeuronDescriptor(self.neuron_type, a, b), **properties)


class _NodeWithABC(MPSCNNNeuronNode):
    _abstract = True

    def __init__(
        self,
        source: MPSNNImageNode,
        a: float | None = None,
        b: float | None = None,
        c: float | None = None,
        **properties: Any,
    ) -> None:
        super().__init__(source, descriptor=MPSNNNeuronDescriptor(self.neuron_type, a, b, c), **properties)


class MPSCNNNeuronAbsoluteNode(MPSCNNNeuronNode, kernel=MPSCNNNeuronAbsolute):
    """``y = |x|``."""


class MPSCNNNeuronELUNode(_NodeWithA, kernel=MPSCNNNeuronELU):
    """``y = x`` from 0 on, ``a * (e**x - 1)`` below."""


class MPSCNNNeuronExponentialNode(_NodeWithABC, kernel=MPSCNNNeuronExponential):
    """``y = c**(a*x + b)``; c = -1 stands for the base e."""


class MPSCNNNeuronGeLUNode(MPSCNNNeuronNode):
    """``y = x`` times the normal distribution at x; there is no kernel class of this type."""

    neuron_type = MPSCNNNeuronType.GeLU


class MPSCNNNeuronHardSigmoidNode(_NodeWithAB, kernel=MPSCNNNeuronHardSigmoid):
    """``y = a*x + b``, clamped to [0, 1]."""


class MPSCNNNeuronLinearNode(_NodeWithAB, kernel=MPSCNNNeuronLinear):
    """``y = a*x + b``."""


class MPSCNNNeuronLogarithmNode(_NodeWithABC, kernel=MPSCNNNeuronLogarithm):
    """``y = log(a*x + b)`` to the base c; c = -1 stands for e."""


class MPSCNNNeuronPReLUNode(MPSCNNNeuronNode, kernel=MPSCNNNeuronPReLU):
    """``y = x`` from 0 on, ``a_data[c] * x`` below, in channel c."""

    def __init__(self, source: MPSNNImageNode, a_data: ArrayLike, **properties: Any) -> None:
        super().__init__(source, descriptor=MPSNNNeuronDescriptor(self.neuron_type, data=a_data), **properties)


class MPSCNNNeuronPowerNode(_NodeWithABC, kernel=MPSCNNNeuronPower):
    """``y = (a*x + b)**c``."""


class MPSCNNNeuronReLUNNode(_NodeWithAB, kernel=MPSCNNNeuronReLUN):
    """``y = min(x, b)`` from 0 on, ``min(a*x, b)`` below."""


class MPSCNNNeuronReLUNode(_NodeWithA, kernel=MPSCNNNeuronReLU):
    """``y = x`` from 0 on, ``a*x`` below."""


class MPSCNNNeuronSigmoidNode(MPSCNNNeuronNode, kernel=MPSCNNNeuronSigmoid):
    """``y = 1 / (1 + e**-x)``."""


class MPSCNNNeuronSoftPlusNode(_NodeWithAB, kernel=MPSCNNNeuronSoftPlus):
    """``y = a * log(1 + e**(b*x))``."""


class MPSCNNNeuronSoftSignNode(MPSCNNNeuronNode, kernel=MPSCNNNeuronSoftSign):
    """``y = x / (1 + |x|)``."""


class MPSCNNNeuronTanHNode(_NodeWithAB, kernel=MPSCNNNeuronTanH):
    """``y = a * tanh(b*x)``."""
