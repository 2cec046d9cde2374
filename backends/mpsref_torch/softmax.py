from __future__ import annotations

from typing import Any

from mpsref import LogSoftMax, SoftMax
from mpsref.arguments.arrays import Array
from mpsref_torch.run import Torch


def forward(torch: Torch, problem: Any, x: Array, out: Array) -> None:
    functional = torch.functional
    softmax = functional.log_softmax if isinstance(problem.spec, LogSoftMax) else functional.softmax
    out[...] = torch(lambda x: softmax(x, 1), x)


def gradient(torch: Torch, problem: Any, g: Array, y: Array, out: Array) -> None:
    """Run the operator that autograd calls with the forward result."""
    aten = torch.torch.ops.aten
    backward = aten._log_softmax_backward_data if isinstance(problem.spec, LogSoftMax) else aten._softmax_backward_data
    out[...] = torch(lambda g, y: backward(g, y, 1, y.dtype), g, y)


IMPLEMENTATIONS = {
    (kind, method): function
    for kind in (SoftMax, LogSoftMax)
    for method, function in (("forward", forward), ("gradient", gradient))
}
