"""Neurons against PyTorch, in float64, values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mpsref.kernels.neuron import Neuron

torch = pytest.importorskip("torch", reason="PyTorch, the oracle of these tests, is not installed")
F = torch.nn.functional

PAIRS: list[tuple[Neuron, Callable[[Any], Any]]] = [
    (Neuron("relu"), F.relu),
    (Neuron("relu", a=0.1), lambda x: F.leaky_relu(x, 0.1)),
    (Neuron("linear", a=2.5, b=-1), lambda x: 2.5 * x - 1),
    (Neuron("sigmoid"), torch.sigmoid),
    (Neuron("hardsigmoid", a=1 / 6, b=0.5), lambda x: (x / 6 + 0.5).clamp(0, 1)),
    (Neuron("hardsigmoid", a=-0.3, b=0.2), lambda x: (-0.3 * x + 0.2).clamp(0, 1)),
    (Neuron("tanh", a=1.7, b=0.6), lambda x: 1.7 * torch.tanh(0.6 * x)),
    (Neuron("absolute"), torch.abs),
    (Neuron("softplus", a=0.5, b=2), lambda x: F.softplus(x, beta=2, threshold=1e3)),
    (Neuron("softplus", a=-1.5, b=-0.5), lambda x: -1.5 * F.softplus(-0.5 * x, threshold=1e3)),
    (Neuron("softsign"), F.softsign),
    (Neuron("elu", a=0.5), lambda x: F.elu(x, 0.5)),
    (Neuron("relun", a=0, b=6), F.relu6),
    (Neuron("relun", a=-0.5, b=2), lambda x: F.leaky_relu(x, -0.5).clamp(max=2)),
    (Neuron("power", a=0.5, b=5, c=1.5), lambda x: (0.5 * x + 5) ** 1.5),
    (Neuron("power", a=0.5, b=1, c=-3), lambda x: (0.5 * x + 1) ** -3),
    (Neuron("exponential", a=0.5, b=-1), lambda x: torch.exp(0.5 * x - 1)),
    (Neuron("exponential", a=0.5, b=-1, c=3), lambda x: 3.0 ** (0.5 * x - 1)),
    (Neuron("logarithm", a=0.5, b=5), lambda x: torch.log(0.5 * x + 5)),
    (Neuron("logarithm", a=0.5, b=5, c=10), lambda x: torch.log10(0.5 * x + 5)),
    (Neuron("gelu"), F.gelu),
]


@pytest.mark.parametrize(("neuron", "function"), PAIRS, ids=[str(neuron) for neuron, _ in PAIRS])
def test_against_pytorch(neuron: Neuron, function: Callable[[Any], Any]) -> None:
    """Random points: PyTorch has other slopes at 0 than Apple documents."""
    rng = np.random.default_rng(5)
    x, g = rng.uniform(-8, 8, (2, 5, 4, 3)), rng.standard_normal((2, 5, 4, 3))
    tensor = torch.from_numpy(x).requires_grad_()
    y = function(tensor)
    y.backward(torch.from_numpy(g))
    np.testing.assert_allclose(neuron.forward(x), y.detach().numpy(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(neuron.gradient(g, x), tensor.grad.numpy(), rtol=1e-11, atol=1e-14)


def test_prelu_against_pytorch() -> None:
    rng = np.random.default_rng(6)
    x, g, data = rng.standard_normal((2, 5, 4, 3)), rng.standard_normal((2, 5, 4, 3)), rng.standard_normal(3)
    tensor = torch.from_numpy(x.transpose(0, 3, 1, 2).copy()).requires_grad_()
    slopes = torch.from_numpy(data).requires_grad_()
    y = F.prelu(tensor, slopes)
    y.backward(torch.from_numpy(g.transpose(0, 3, 1, 2).copy()))
    neuron = Neuron("prelu", data=data)
    np.testing.assert_allclose(neuron.forward(x), y.detach().numpy().transpose(0, 2, 3, 1), rtol=1e-13)
    np.testing.assert_allclose(neuron.gradient(g, x), tensor.grad.numpy().transpose(0, 2, 3, 1), rtol=1e-13)
    np.testing.assert_allclose(neuron.parameter_gradient(g, x), slopes.grad.numpy(), rtol=1e-12)


def test_where_apple_and_pytorch_differ() -> None:
    """PyTorch's slope at 0 is that of the negative side; ours is 1."""
    zero = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    F.leaky_relu(zero, 0.25).backward()
    x = np.zeros((1, 1, 1, 1))
    assert zero.grad.item() == 0.25
    assert Neuron("relu", a=0.25).gradient(np.ones_like(x), x).item() == 1.0
