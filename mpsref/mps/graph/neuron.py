"""Neuron nodes and their gradient. Source: ``MPSNNGraphNodes.h`` [doc]."""

from __future__ import annotations

from typing import Any, ClassVar

from mpsref.kernels import Neuron
from mpsref.mps.core.properties import Property, fix
from mpsref.mps.graph.nodes import (
    FunctionGradientNode,
    FunctionNode,
    MPSNNGradientFilterNode,
    MPSNNImageNode,
    MPSNNStateNode,
)
from mpsref.mps.neuron_descriptor import MPSNNNeuronDescriptor


def _descriptor(name: str, value: Any) -> MPSNNNeuronDescriptor:
    if not isinstance(value, MPSNNNeuronDescriptor):
        raise TypeError(f"{name} is of type {type(value).__name__}; it must be an MPSNNNeuronDescriptor")
    return value


class MPSCNNNeuronGradientNode(FunctionGradientNode):
    """The gradient of a neuron of any type."""

    descriptor: Property[MPSNNNeuronDescriptor] = Property(
        _descriptor, MPSNNNeuronDescriptor("linear"), "Type and parameters.", read_only=True
    )

    def __init__(
        self,
        source_gradient: MPSNNImageNode,
        source_image: MPSNNImageNode,
        gradient_state: MPSNNStateNode,
        descriptor: MPSNNNeuronDescriptor,
        **properties: Any,
    ) -> None:
        """Make a node with the descriptor of the forward node."""
        fix(self, descriptor=descriptor)
        super().__init__(source_gradient, source_image, gradient_state, **properties)

    @property
    def function(self) -> Neuron:
        """The functional form."""
        return self.descriptor.neuron


class MPSCNNNeuronNode(FunctionNode):
    """Base of the neuron nodes: (source, a, b, c) with as many parameters as the type has, PReLU (source, data)."""

    _abstract = True
    spec_class = Neuron
    gradient_class = MPSCNNNeuronGradientNode
    type: ClassVar[str]
    parameters: ClassVar[tuple[str, ...]] = ()
    descriptor: Property[MPSNNNeuronDescriptor] = Property(
        _descriptor, MPSNNNeuronDescriptor("linear"), "Type and parameters.", read_only=True
    )

    def __init__(self, source: MPSNNImageNode, *values: Any, **properties: Any) -> None:
        """Make a node; what is left out has its documented default."""
        if len(values) > len(self.parameters):
            raise TypeError(
                f"{type(self).__name__} takes (source{''.join(f', {name}' for name in self.parameters)}); "
                f"{len(values)} parameters were given"
            )
        given = dict(zip(self.parameters, values, strict=False))
        for name in self.parameters:
            if name in properties:
                if name in given:
                    raise TypeError(f"{name} is given twice")
                given[name] = properties.pop(name)
        fix(self, descriptor=MPSNNNeuronDescriptor(self.type, **given))
        super().__init__(source, **properties)

    @staticmethod
    def node_with_source_descriptor(source: MPSNNImageNode, descriptor: MPSNNNeuronDescriptor) -> MPSCNNNeuronNode:
        """Return the node of a descriptor's type; type None is a Linear node that changes nothing [choice].

        >>> node = MPSCNNNeuronNode.node_with_source_descriptor(MPSNNImageNode(), MPSNNNeuronDescriptor("elu", a=0.5))
        >>> type(node).__name__, node.descriptor.a
        ('MPSCNNNeuronELUNode', 0.5)
        """
        kind = _descriptor("descriptor", descriptor).neuron_type.name.lower()
        if kind == "none":
            return MPSCNNNeuronLinearNode(source, 1.0, 0.0)
        node = next(node for node in MPSCNNNeuronNode.__subclasses__() if node.type == kind)
        return node(source, *(getattr(descriptor, name) for name in node.parameters))

    @property
    def kind(self) -> str:  # type: ignore[override]
        """The type, in lower case."""
        return self.type

    @property
    def function(self) -> Neuron:
        """The functional form."""
        return self.descriptor.neuron

    def _gradient_node(self, source_gradient: MPSNNImageNode, source_index: int) -> MPSNNGradientFilterNode:
        return MPSCNNNeuronGradientNode(source_gradient, self.source_images[0], self._state, self.descriptor)


class MPSCNNNeuronAbsoluteNode(MPSCNNNeuronNode):
    """The magnitude of x."""

    type = "absolute"


class MPSCNNNeuronELUNode(MPSCNNNeuronNode):
    """x, below 0 ``a (exp(x) - 1)``."""

    type, parameters = "elu", ("a",)


class MPSCNNNeuronExponentialNode(MPSCNNNeuronNode):
    """``c ** (a x + b)``; a base of -1 is e."""

    type, parameters = "exponential", ("a", "b", "c")


class MPSCNNNeuronGeLUNode(MPSCNNNeuronNode):
    """``x`` times the normal distribution at x."""

    type = "gelu"


class MPSCNNNeuronHardSigmoidNode(MPSCNNNeuronNode):
    """``a x + b`` between 0 and 1."""

    type, parameters = "hardsigmoid", ("a", "b")


class MPSCNNNeuronLinearNode(MPSCNNNeuronNode):
    """``a x + b``."""

    type, parameters = "linear", ("a", "b")


class MPSCNNNeuronLogarithmNode(MPSCNNNeuronNode):
    """The logarithm of ``a x + b`` to the base c; a base of -1 is e."""

    type, parameters = "logarithm", ("a", "b", "c")


class MPSCNNNeuronPReLUNode(MPSCNNNeuronNode):
    """x, below 0 the slope of the channel times x."""

    type, parameters = "prelu", ("data",)


class MPSCNNNeuronPowerNode(MPSCNNNeuronNode):
    """``(a x + b) ** c``."""

    type, parameters = "power", ("a", "b", "c")


class MPSCNNNeuronReLUNNode(MPSCNNNeuronNode):
    """x, below 0 ``a x``, and b at most."""

    type, parameters = "relun", ("a", "b")


class MPSCNNNeuronReLUNode(MPSCNNNeuronNode):
    """x, below 0 ``a x``."""

    type, parameters = "relu", ("a",)


class MPSCNNNeuronSigmoidNode(MPSCNNNeuronNode):
    """``1 / (1 + exp(-x))``."""

    type = "sigmoid"


class MPSCNNNeuronSoftPlusNode(MPSCNNNeuronNode):
    """``a log(1 + exp(b x))``."""

    type, parameters = "softplus", ("a", "b")


class MPSCNNNeuronSoftSignNode(MPSCNNNeuronNode):
    """``x / (1 + |x|)``."""

    type = "softsign"


class MPSCNNNeuronTanHNode(MPSCNNNeuronNode):
    """``a tanh(b x)``."""

    type, parameters = "tanh", ("a", "b")
