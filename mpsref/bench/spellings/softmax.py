"""How PyTorch spells softmax and log-softmax: over the last axis of what it calls channels_last, its fastest case."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpsref.arguments.arrays import Array
from mpsref.bench.pytorch import Call, Spelling
from mpsref.kernels import LogSoftMax, SoftMax
from mpsref.registry import Spec

__all__ = ["SPELLINGS"]


def softmax(torch: Any, problem: Any, inputs: tuple[Array, ...], outs: tuple[Array, ...] | None) -> Call:
    """Return either kernel, or its gradient from the result."""
    aten = torch.ops.aten
    tensors = [torch.from_numpy(array) for array in inputs]
    log = isinstance(problem.spec, LogSoftMax)
    if problem.method == "forward":
        operation, arguments = (aten._log_softmax if log else aten._softmax), (*tensors, 3, False)
        into = "out"
    else:
        operation = aten._log_softmax_backward_data if log else aten._softmax_backward_data
        arguments = (*tensors, 3, torch.float32)
        into = "out" if log else "grad_input"
    if outs is None:
        return lambda: operation(*arguments).permute(0, 3, 1, 2)
    out, store = torch.from_numpy(outs[0]), operation.out
    return lambda: store(*arguments, **{into: out}).permute(0, 3, 1, 2)


SPELLINGS: Mapping[type[Spec], Spelling] = {SoftMax: softmax, LogSoftMax: softmax}
