from __future__ import annotations

from typing import Any

from mpsref import LogSoftMax, SoftMax
from mpsref.arguments.arrays import Array
from mpsref_onnxruntime.run import evaluate


def forward(problem: Any, x: Array, out: Array) -> None:
    operator = "LogSoftmax" if isinstance(problem.spec, LogSoftMax) else "Softmax"
    out[...] = evaluate(problem, lambda graph, x: graph(operator, x, axis=1), x)


IMPLEMENTATIONS = {(kind, "forward"): forward for kind in (SoftMax, LogSoftMax)}
