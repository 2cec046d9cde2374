"""How PyTorch spells batch normalization.

On CPUs it has the statistics, the forward pass with given statistics, and the two sums of the gradient. Its gradient
for the images computes these sums itself, so it is no counterpart of one that is given them; with frozen statistics
there are none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpsref.bench.pytorch import Call, Spelling, nchw
from mpsref.images import Array
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


SPELLINGS: Mapping[type[Spec], Spelling] = {BatchNormalization: batch_normalization}
"""The function of each kernel."""
