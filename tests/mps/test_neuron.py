"""The neuron classes: descriptors, constructors, offsets and edge modes, states, bad input."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from mpsref import mps
from mpsref.arguments.arrays import Array
from mpsref.kernels.neuron import value
from mpsref.mps import MPSCNNNeuronType, MPSNNNeuronDescriptor
from tests.mps.fakes import NAMES

CLASSES: list[tuple[Any, str, dict[str, Any]]] = [
    (mps.MPSCNNNeuronReLU, "relu", {"a": 0.25}),
    (mps.MPSCNNNeuronLinear, "linear", {"a": 2.0, "b": -1.0}),
    (mps.MPSCNNNeuronSigmoid, "sigmoid", {}),
    (mps.MPSCNNNeuronHardSigmoid, "hardsigmoid", {"a": 0.25, "b": 0.75}),
    (mps.MPSCNNNeuronTanH, "tanh", {"a": 3.0, "b": 0.5}),
    (mps.MPSCNNNeuronAbsolute, "absolute", {}),
    (mps.MPSCNNNeuronSoftPlus, "softplus", {"a": 0.5, "b": 2.0}),
    (mps.MPSCNNNeuronSoftSign, "softsign", {}),
    (mps.MPSCNNNeuronELU, "elu", {"a": 0.5}),
    (mps.MPSCNNNeuronPReLU, "prelu", {"data": (0.5, 0.25)}),
    (mps.MPSCNNNeuronReLUN, "relun", {"a": 0.0, "b": 6.0}),
    (mps.MPSCNNNeuronPower, "power", {"a": 1.0, "b": 2.0, "c": 3.0}),
    (mps.MPSCNNNeuronExponential, "exponential", {"a": 1.0, "b": 2.0, "c": 3.0}),
    (mps.MPSCNNNeuronLogarithm, "logarithm", {"a": 1.0, "b": 2.0, "c": 3.0}),
]
IDS = [kind.__name__ for kind, _, _ in CLASSES]


def row(*values: float) -> Array:
    return np.array(values, np.float32).reshape(1, 1, -1, 1)


def relu(a: float = 0.5) -> MPSNNNeuronDescriptor:
    return MPSNNNeuronDescriptor("relu", a=a)


def test_types() -> None:
    names = "NONE ReLU Linear Sigmoid HardSigmoid TanH Absolute SoftPlus SoftSign ELU PReLU ReLUN Power Exponential"
    assert " ".join(kind.name for kind in MPSCNNNeuronType) == f"{names} Logarithm GeLU"
    assert [int(kind) for kind in MPSCNNNeuronType] == list(range(16))
    for kind in MPSCNNNeuronType:
        data = [1.0] if kind is MPSCNNNeuronType.PReLU else None
        one, two, three = (MPSNNNeuronDescriptor(k, data=data) for k in (kind, int(kind), kind.name.lower()))
        assert one == two == three
        assert one.neuron_type is kind
    for bad, error in ((16, ValueError), (-1, ValueError), ("count", ValueError), (1.0, TypeError), (True, TypeError)):
        with pytest.raises(error, match=r"^neuron_type"):
            MPSNNNeuronDescriptor(bad)


def test_properties_of_a_descriptor_can_be_set() -> None:
    one = MPSNNNeuronDescriptor("linear", 2, 3)
    one.a = 0.5
    assert one == MPSNNNeuronDescriptor("linear", 0.5, 3)
    one.neuron_type = "relun"
    assert one == MPSNNNeuronDescriptor("relun", 0.5, 3), "shared parameters keep their values"
    one.neuron_type = MPSCNNNeuronType.Power
    assert one == MPSNNNeuronDescriptor("power", 0.5, 3, 1), "c has its default"
    with pytest.raises(ValueError, match="a is inf"):
        one.a = np.inf
    with pytest.raises(ValueError, match="data is None; PReLU needs"):
        one.neuron_type = "prelu"
    assert one == MPSNNNeuronDescriptor("power", 0.5, 3, 1), "an error changes nothing"
    one.data = [0.5, 2]
    assert one == MPSNNNeuronDescriptor("prelu", data=[0.5, 2])
    with pytest.raises(mps.PropertyError, match=r"has no property 'd'.*; those that can be set are: .*neuron_type"):
        one.d = 1


@pytest.mark.parametrize("twin", [lambda kernel: kernel, copy.copy, copy.deepcopy, lambda kernel: kernel.copy()])
def test_a_kernel_has_a_descriptor_of_its_own(twin: Any) -> None:
    given = relu()
    kernel, convolution = mps.MPSCNNNeuron(given), mps.MPSCNNConvolutionDescriptor(1, 1, 1, 1)
    convolution.fused_neuron_descriptor = given
    given.a = 0.25
    for owner in (twin(kernel).neuron_descriptor, twin(convolution).fused_neuron_descriptor):
        assert owner.a == 0.5
        with pytest.raises(mps.PropertyError, match="a cannot be set: the descriptor belongs to a kernel or to an"):
            owner.a = 3
        changed = owner.copy()
        changed.a = 3
        assert (owner.a, changed.a) == (0.5, 3)
    with pytest.raises(mps.PropertyError, match="belongs to"):
        mps.MPSCNNConvolutionDescriptor(1, 1, 1, 1).fused_neuron_descriptor.neuron_type = "relu"


def test_descriptors() -> None:
    fresh = MPSNNNeuronDescriptor(MPSCNNNeuronType.ReLU)
    assert (fresh.a, fresh.b, fresh.c, fresh.data) == (0.0, 0.0, 0.0, None)
    one = MPSNNNeuronDescriptor("relun", 0.5, 6, 99)
    assert (one.a, one.b, one.c) == (0.5, 6.0, 0.0)
    assert one == MPSNNNeuronDescriptor.cnn_neuron_descriptor_with_type_a_b(11, a=0.5, b=6)
    assert one != MPSNNNeuronDescriptor("relun", 0.5, 5)
    assert one != "relun"
    prelu = MPSNNNeuronDescriptor("prelu", data=np.array([0.5, 0.25]))
    assert prelu == MPSNNNeuronDescriptor.cnn_neuron_prelu_descriptor_with_data_no_copy([0.5, 0.25], no_copy=True)
    assert prelu.data == (0.5, 0.25)
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)
    for made in (one, prelu, fresh):
        for twin in (
            eval(repr(made), NAMES),
            copy.deepcopy(made),
            pickle.loads(pickle.dumps(made)),
            MPSNNNeuronDescriptor.from_json(made.to_json()),
        ):
            assert twin == made
    for name, bad in (("a", np.nan), ("b", np.inf), ("c", 1e300)):
        with pytest.raises(ValueError, match=f"^{name} is"):
            MPSNNNeuronDescriptor("relu", **{name: bad})
    with pytest.raises(ValueError, match="describes no legal MPSNNNeuronDescriptor"):
        MPSNNNeuronDescriptor.from_json(fresh.to_json().replace('"neuron_type":1', '"neuron_type":16'))


@pytest.mark.parametrize(("kind", "name", "parameters"), CLASSES, ids=IDS)
def test_classes_of_one_type(kind: Any, name: str, parameters: dict[str, Any]) -> None:
    kernel = kind(*parameters.values(), offset=(1, 2))
    general = mps.MPSCNNNeuron(MPSNNNeuronDescriptor(name, **parameters), offset=(1, 2))
    assert kernel == general
    assert general == kernel
    assert kernel != kind(*parameters.values())
    assert kind(**parameters) == kind(*parameters.values())
    assert {key: getattr(kernel, key) for key in parameters} == parameters
    for key in ("neuron_type", "a", "b", "c", "data", "neuron_descriptor"):
        with pytest.raises((TypeError, AttributeError)):
            setattr(kernel, key, 1)
    for twin in (eval(repr(kernel), NAMES), kernel.copy(), kind.from_json(kernel.to_json())):
        assert type(twin) is kind
        assert twin == kernel
    x = np.linspace(-1, 1, 12).reshape(1, 2, 3, 2)
    np.testing.assert_array_equal(kind(*parameters.values()).encode(x), value(kernel.neuron_descriptor.neuron, x))
    if name != "prelu":
        assert kind().neuron_descriptor == MPSNNNeuronDescriptor(name)
    with pytest.raises(TypeError):
        kind(*parameters.values(), 1.0)
    if "a" in parameters:
        with pytest.raises(ValueError, match=r"^a is nan"):
            kind(a=np.nan)


def test_a_saved_kernel_keeps_its_bytes() -> None:
    """A change of this text breaks what users have saved: raise the version of the class with it."""
    text = mps.MPSCNNNeuronGradient(relu(), relun_clamped_slope="documented").to_json()
    descriptor = '{"class":"MPSNNNeuronDescriptor","properties":{"a":0.5,"b":0.0,"c":0.0,"data":null,"neuron_type":1}'
    assert f'"neuron_descriptor":{descriptor},"version":1}}' in text
    assert '"relun_clamped_slope":"documented"' in text


# --- offsets and edge modes: f(x[i + o]), and the sum of g over what comes from a pixel ------------------------------


def test_without_a_state_the_offset_is_zero() -> None:
    x, g = row(-1, 0, 2), row(1, 10, 100)
    gradient = mps.MPSCNNNeuronGradient(relu())
    assert gradient.encode(g, x).ravel().tolist() == [0.5, 10, 100]
    out = np.zeros_like(x)
    assert gradient.encode(g, x, None, out) is out
    assert out.ravel().tolist() == [0.5, 10, 100]


def test_clamped_slopes_of_relun() -> None:
    """The documented slope is b from the clamp on, for comparison with hardware; it is no derivative."""
    descriptor = MPSNNNeuronDescriptor("relun", a=0.5, b=2)
    x, g = row(-3, 0, 1, 2, 5), row(1, 10, 100, 1000, 10000)
    gradient = mps.MPSCNNNeuronGradient(descriptor)
    assert gradient.relun_clamped_slope == "zero"
    assert gradient.encode(g, x).ravel().tolist() == [0.5, 10, 100, 0, 0]
    documented = mps.MPSCNNNeuronGradient(descriptor, relun_clamped_slope="documented")
    assert documented.encode(g, x).ravel().tolist() == [0.5, 10, 100, 2000, 20000]
    other = mps.MPSCNNNeuronGradient(relu(), relun_clamped_slope="documented")
    assert other.encode(g, x).ravel().tolist() == [0.5, 10, 100, 1000, 10000]
    with pytest.raises(ValueError, match="relun_clamped_slope is 'b'; it must be one of 'zero', 'documented'"):
        documented.relun_clamped_slope = "b"
    with pytest.raises(TypeError, match="relun_clamped_slope"):
        mps.MPSCNNNeuronGradient(descriptor, relun_clamped_slope=0)
