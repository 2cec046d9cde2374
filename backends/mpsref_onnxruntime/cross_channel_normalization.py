from __future__ import annotations

from typing import Any

from mpsref import CrossChannelNormalization
from mpsref.arguments.arrays import Array
from mpsref.errors import UnsupportedError
from mpsref_onnxruntime.run import evaluate


def forward(problem: Any, x: Array, out: Array) -> None:
    spec = problem.spec
    if spec.kernel_size % 2 == 0:
        raise UnsupportedError(f"kernel_size is {spec.kernel_size}; LRN of ONNX Runtime takes an odd one")
    attributes = {"size": spec.kernel_size, "alpha": spec.alpha, "beta": spec.beta, "bias": spec.delta}
    out[...] = evaluate(problem, lambda graph, x: graph("LRN", x, **attributes), x)


IMPLEMENTATIONS = {(CrossChannelNormalization, "forward"): forward}
