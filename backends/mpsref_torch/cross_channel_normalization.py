from __future__ import annotations

from typing import Any

from mpsref import CrossChannelNormalization
from mpsref.arguments.arrays import Array
from mpsref_torch.run import Function, Torch


def _layer(torch: Torch, spec: CrossChannelNormalization) -> Function:
    parameters = spec.kernel_size, spec.alpha, spec.beta, spec.delta
    return lambda x: torch.functional.local_response_norm(x, *parameters)


def forward(torch: Torch, problem: Any, x: Array, out: Array) -> None:
    out[...] = torch(_layer(torch, problem.spec), x)


def gradient(torch: Torch, problem: Any, g: Array, x: Array, out: Array) -> None:
    out[...] = torch.gradient(_layer(torch, problem.spec), g, x)


IMPLEMENTATIONS = {(CrossChannelNormalization, "forward"): forward, (CrossChannelNormalization, "gradient"): gradient}
