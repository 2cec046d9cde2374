"""The neuron classes: descriptors, constructors, offsets and edge modes, states, bad input."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

import numpy as np
import pytest

from mpsref import ShapeError, mps
from mpsref.arguments.arrays import Array
from mpsref.kernels.neuron import slope, value
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
    with pytest.raises(mps.PropertyError, match=r"has no property 'd'; those that can be set are: .*neuron_type"):
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


def brute_force(neuron: Any, x: Array, g: Array, o: tuple[int, int], clamp: bool) -> tuple[Array, Array]:
    """Forward and gradient, pixel by pixel, for a destination as large as g."""
    n, height, width, c = x.shape
    y, dx = np.zeros(g.shape), np.zeros(x.shape)
    for i, k in itertools.product(range(g.shape[1]), range(g.shape[2])):
        j, m = i + o[0], k + o[1]
        if clamp:
            j, m = min(max(j, 0), height - 1), min(max(m, 0), width - 1)
        if 0 <= j < height and 0 <= m < width:
            y[:, i, k] = value(neuron, x[:, j, m])
            dx[:, j, m] += g[:, i, k] * slope(neuron, x[:, j, m])
        else:
            y[:, i, k] = value(neuron, np.zeros((n, c)))
    return y, dx


@pytest.mark.parametrize("edge_mode", ["zero", "clamp"])
@pytest.mark.parametrize("offset", [(0, 0), (1, 0), (0, -2), (-1, 3), (9, -9), (-5, 1)], ids=str)
@pytest.mark.parametrize("size", [(4, 5), (2, 7), (6, 3)], ids=str)
def test_offsets_and_edge_modes(offset: tuple[int, int], size: tuple[int, int], edge_mode: str) -> None:
    rng = np.random.default_rng(1)
    x, g = rng.standard_normal((2, 4, 5, 3)), rng.standard_normal((2, *size, 3))
    descriptor = MPSNNNeuronDescriptor("sigmoid")
    forward = mps.MPSCNNNeuron(descriptor, offset=offset, edge_mode=edge_mode)
    y, state = forward.encode(x, destination_size=size, return_state=True)
    expected_y, expected_dx = brute_force(descriptor.neuron, x, g, offset[::-1], edge_mode == "clamp")
    np.testing.assert_allclose(y, expected_y, rtol=1e-13)
    gradient = mps.MPSCNNNeuronGradient(descriptor)
    np.testing.assert_allclose(gradient.encode(g, x, state), expected_dx, rtol=1e-12, atol=1e-15)
    # The same by hand: the offsets that the state has set, into a given destination.
    if any(offset) or size == x.shape[1:3]:
        given = np.full(x.shape, 7.0)
        np.testing.assert_allclose(gradient.encode(g, x, None, given), expected_dx, rtol=1e-12, atol=1e-15)
    # A part of it.
    gradient.clip_rect = (1, 2, 0), (3, 2, 2)
    part = gradient.encode(g, x, state)
    np.testing.assert_allclose(part[:, 2:4, 1:4], expected_dx[:, 2:4, 1:4], rtol=1e-12, atol=1e-15)
    part[:, 2:4, 1:4] = 0
    assert not part.any()


def test_a_forward_clip_and_channels() -> None:
    """Only the part that was written has a gradient; the rest of x gets 0."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((3, 4, 5, 8)).astype(np.float32)
    forward = mps.MPSCNNNeuronReLU(0.5, clip_rect=((1, 2, 1), (2, 9, 1)), offset=(2, 0, 2))
    forward.source_feature_channel_offset, forward.destination_feature_channel_offset = 4, 8
    y, state = forward.encode(x, destination_size=(4, 5), return_state=True)
    assert y.shape == (2, 4, 5, 12)
    np.testing.assert_array_equal(y[1, 2:, 1:3, 8:], value(forward.neuron_descriptor.neuron, x[2, :2, 2:4, 4:]))
    g = rng.standard_normal(y.shape).astype(np.float32)
    dx = mps.MPSCNNNeuronGradient(forward.neuron_descriptor).encode(g, x, state)
    expected = np.zeros_like(x)
    part = x[2, :2, 2:4, 4:]
    expected[2, :2, 2:4, 4:] = g[1, 2:, 1:3, 8:] * slope(forward.neuron_descriptor.neuron, part)
    np.testing.assert_array_equal(dx, expected)


@pytest.mark.parametrize("backend", ["reference", "cpu", "metal:clang"])
def test_backends_and_float16(backend: str) -> None:
    x = np.linspace(-2, 2, 24, dtype=np.float16).reshape(1, 4, 3, 2)
    forward = mps.MPSCNNNeuronELU(0.5, backend=backend, offset=(-2, 0), edge_mode="clamp")
    y, state = forward.encode(x, destination_size=(4, 5), return_state=True)
    assert y.dtype == np.float16
    g = np.full(y.shape, 0.5, np.float16)
    dx = mps.MPSCNNNeuronGradient(forward.neuron_descriptor, backend=backend).encode(g, x, state)
    assert dx.dtype == np.float16
    counts = np.array([3, 1, 1])[:, None]  # two results outside on the left come from the first column
    exact = 0.5 * counts * slope(forward.neuron_descriptor.neuron, x.astype(np.float64))
    np.testing.assert_allclose(dx, exact, rtol=1e-3)


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


def test_images_that_do_not_fit() -> None:
    x = np.ones((2, 3, 4, 3), np.float32)
    gradient = mps.MPSCNNNeuronGradient(relu())
    for other in (x[:, 1:], x[:, :, 1:]):
        with pytest.raises(ShapeError, match="they must be equal unless an offset"):
            gradient.encode(other, x)
        with pytest.raises(ShapeError, match="they must be equal unless an offset"):
            gradient.encode(x, x, None, np.zeros_like(other))
    with pytest.raises(ShapeError, match="3 channels are read of source_gradient and 2 of source_image"):
        gradient.encode(x, x[..., 1:])
    prelu = mps.MPSCNNNeuronPReLU([0.5, 0.25])
    with pytest.raises(ShapeError, match="data has 2 values and the image 3 channels"):
        prelu.encode(x)
    _, state = mps.MPSCNNNeuronReLU().encode(x, return_state=True)
    with pytest.raises(ShapeError, match=r"source_image has shape .* that of the forward pass was"):
        gradient.encode(x, x[:, 1:], state)
    _, pooled = mps.MPSCNNPoolingMax(1, 1).encode(x, return_state=True)
    with pytest.raises(TypeError, match="gradient_state was left by MPSCNNPoolingMax"):
        gradient.encode(x, x, pooled)
    for edge_mode in ("mirror", "constant"):
        with pytest.raises(ValueError, match="edge_mode"):
            mps.MPSCNNNeuron(relu(), edge_mode=edge_mode)
