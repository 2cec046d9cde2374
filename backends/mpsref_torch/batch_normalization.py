"""Batch normalization of PyTorch: its statistics, the layer in evaluation mode, and the gradients of that.

In training the layer computes mean, variance and the sums of its gradient itself, so the gradient with given sums is
no call of PyTorch; :func:`mpsref.frameworks.training_batch_normalization` is the operation to compare it with.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpsref import BatchNormalization
from mpsref.arguments.arrays import Array
from mpsref.errors import UnsupportedError
from mpsref.kernels.batch_normalization import merged
from mpsref_torch.convolution import activation
from mpsref_torch.run import Function, Tensor, Torch


def _layer(torch: Torch, problem: Any) -> Function:
    """Return the layer as a function of x, gamma, beta, mean and variance."""
    neuron, epsilon = activation(torch, problem.spec.neuron), problem.spec.epsilon
    batch_norm = torch.functional.batch_norm

    def layer(x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        return neuron(batch_norm(x, mean, variance, gamma, beta, training=False, eps=epsilon))

    return layer


def _inputs(given: Any) -> list[Array]:
    """Return x, gamma, beta, mean and variance."""
    gamma = np.ones_like(given.mean) if given.gamma is None else given.gamma
    beta = np.zeros_like(given.mean) if given.beta is None else given.beta
    return [given.x, gamma, beta, given.mean, given.variance]


def statistics(torch: Torch, problem: Any, *inputs: Array, out: tuple[Array, Array]) -> None:
    given = problem.named(inputs)
    moments = torch.torch.ops.aten.batch_norm_update_stats
    mean, variance = (torch(lambda x, k=k: moments(x, None, None, 0.0)[k], given.x) for k in (0, 1))
    m2 = variance.astype(out[1].dtype) * problem.pixels
    if problem.count:
        before, after = ([one.astype(np.float64) for one in pair] for pair in ((given.mean, given.m2), (mean, m2)))
        mean, m2 = merged(problem.count, before[0], before[1], problem.pixels, after[0], after[1])
    out[0][...], out[1][...] = mean, m2


def forward(torch: Torch, problem: Any, *inputs: Array, out: Array) -> None:
    out[...] = torch(_layer(torch, problem), *_inputs(problem.named(inputs)))


def statistics_gradient(torch: Torch, problem: Any, *inputs: Array, out: tuple[Array, Array]) -> None:
    given = problem.named(inputs)
    layer = _layer(torch, problem)
    x, gamma, beta, *rest = _inputs(given)
    function = lambda gamma, beta, x, *rest: layer(x, gamma, beta, *rest)  # noqa: E731
    dgamma, dbeta = torch.gradients(function, [gamma, beta, x, *rest], given.g, count=2)
    out[0][...] = dbeta + (given.dbeta if problem.count else 0)
    out[1][...] = dgamma + (given.dgamma if problem.count else 0)


def gradient(torch: Torch, problem: Any, *inputs: Array, out: Array) -> None:
    given = problem.named(inputs)
    if problem.count:
        raise UnsupportedError("in training PyTorch computes mean, variance and both sums itself; it takes none")
    out[...] = torch.gradient(_layer(torch, problem), given.g, *_inputs(given))


IMPLEMENTATIONS = {
    (BatchNormalization, "statistics"): statistics,
    (BatchNormalization, "forward"): forward,
    (BatchNormalization, "statistics_gradient"): statistics_gradient,
    (BatchNormalization, "gradient"): gradient,
}
