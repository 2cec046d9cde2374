"""How PyTorch spells batch normalization.

On CPUs it has the statistics, the forward pass with given statistics, and the two sums of the gradient. Its gradient
for the images computes these sums itself, so it is no counterpart of one that is given them; with frozen statistics
there are none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpsref.arguments.arrays import Array
from mpsref.bench.pytorch import Call, Spelling, Together, nchw
from mpsref.kernels.batch_normalization import BatchNormalization
from mpsref.registry import Spec

__all__ = ["SPELLINGS"]


def batch_normalization(
    torch: Any, problem: Any, inputs: tuple[Array, ...], outs: tuple[Array, ...] | None
) -> Call | None:
    """Return the four operations as PyTorch has them; ``None`` with a neuron, and into given memory."""
    if outs or problem.spec.activates:
        return None
    given = problem.named(inputs)
    x = nchw(torch, given.x)
    aten = torch.ops.aten
    if problem.method == "statistics":
        return None if problem.count else _statistics(aten, x, problem.pixels)
    mean, variance, gamma, beta, epsilon = (*_vectors(torch, given), problem.spec.epsilon)
    if problem.method == "forward":
        return lambda: aten.native_batch_norm(x, gamma, beta, mean, variance, False, 0.0, epsilon)[0]
    if problem.count:
        return None
    g = nchw(torch, given.g)
    wanted = [problem.method == "gradient", *[problem.method == "statistics_gradient"] * 2]

    def backward() -> Any:
        dx, dgamma, dbeta = aten.native_batch_norm_backward(
            g, x, gamma, mean, variance, None, None, False, epsilon, wanted
        )
        return dx if problem.method == "gradient" else (dbeta, dgamma)

    return backward


def _statistics(aten: Any, x: Any, n: int) -> Call:
    def statistics() -> Any:
        mean, variance = aten.batch_norm_update_stats(x, None, None, 0.0)
        return mean, variance * n

    return statistics


def _vectors(torch: Any, given: Any) -> list[Any]:
    vectors = (given.mean, given.variance, given.gamma, given.beta)
    return [None if vector is None else torch.from_numpy(vector) for vector in vectors]


def training_step(torch: Any, spec: Any, arrays: Mapping[str, Array]) -> Call | None:
    """Return a forward pass with the statistics of its batch, and the backward pass; ``None`` with a neuron."""
    if spec.activates:
        return None
    aten, g, x = torch.ops.aten, nchw(torch, arrays["g"]), nchw(torch, arrays["x"])
    gamma, beta = (torch.from_numpy(arrays[name]) if name in arrays else None for name in ("gamma", "beta"))

    def step() -> Any:
        y, mean, root = aten.native_batch_norm(x, gamma, beta, None, None, True, 0.0, spec.epsilon)
        wanted = [True, gamma is not None, beta is not None]
        return y, *aten.native_batch_norm_backward(g, x, gamma, None, None, mean, root, True, spec.epsilon, wanted)

    return step


SPELLINGS: Mapping[type[Spec], Spelling] = {BatchNormalization: batch_normalization}
"""The function of each kernel."""

TOGETHER: Mapping[type[Spec], Together] = {
    BatchNormalization: Together(("statistics", "forward", "statistics_gradient", "gradient"), training_step)
}
"""All four operations are a forward and a backward pass."""
