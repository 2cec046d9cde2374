from __future__ import annotations

from typing import Any

import numpy as np

from mpsref import GroupNormalization, InstanceNormalization, frameworks
from mpsref.arguments.arrays import Array
from mpsref_torch.run import Function, Tensor, Torch


def _layer(torch: Torch, problem: Any) -> Function:
    spec, functional = problem.spec, torch.functional

    def normalize(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        if isinstance(spec, InstanceNormalization):
            return functional.instance_norm(x, weight=gamma, bias=beta, eps=spec.epsilon)
        return functional.group_norm(x, spec.groups, gamma, beta, spec.epsilon)

    return normalize


def forward(torch: Torch, problem: Any, x: Array, *vectors: Array, out: Array) -> None:
    wide = np.promote_types(x.dtype, np.float32)
    gamma, beta = (one.astype(wide, copy=False) for one in problem.parameters(vectors, wide))
    out[...] = torch(_layer(torch, problem), x, gamma, beta)


def gradient(torch: Torch, problem: Any, g: Array, x: Array, *vectors: Array, out: tuple[Array, Array, Array]) -> None:
    wide = np.promote_types(x.dtype, np.float32)
    gamma = problem.parameters(vectors, wide).astype(wide, copy=False)
    layer, beta = _layer(torch, problem), np.zeros_like(gamma)
    out[0][...], *summed = torch.gradients(layer, [x, gamma, beta], g, count=3)
    # PyTorch sums the gradients of gamma and beta over the batch.
    parameters = lambda g, x: torch.gradients(layer, [x, gamma, beta], g, count=3)[1:]  # noqa: E731
    rows = [one[None] for one in summed] if len(x) == 1 else frameworks.per_image(parameters, g, x)
    out[1][...], out[2][...] = rows


IMPLEMENTATIONS = {
    (kind, method): function
    for kind in (InstanceNormalization, GroupNormalization)
    for method, function in (("forward", forward), ("gradient", gradient))
}
