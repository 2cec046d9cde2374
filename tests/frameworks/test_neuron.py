"""Neurons against PyTorch, in float64, values and gradients."""

from __future__ import annotations

import numpy as np
import pytest

from mpsref.kernels.neuron import Neuron

torch = pytest.importorskip("torch", reason="PyTorch, the oracle of these tests, is not installed")
F = torch.nn.functional


def test_where_apple_and_pytorch_differ() -> None:
    """PyTorch's slope at 0 is that of the negative side; ours is 1."""
    zero = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    F.leaky_relu(zero, 0.25).backward()
    x = np.zeros((1, 1, 1, 1))
    assert zero.grad.item() == 0.25
    assert Neuron("relu", a=0.25).gradient(np.ones_like(x), x).item() == 1.0
