from __future__ import annotations

from typing import Any

from mpsref import GroupNormalization, InstanceNormalization
from mpsref.arguments.arrays import Array
from mpsref_onnxruntime.run import Graph, evaluate


def forward(problem: Any, x: Array, *vectors: Array, out: Array) -> None:
    spec = problem.spec

    def layer(graph: Graph, *inputs: str) -> str:
        if isinstance(spec, InstanceNormalization):
            return graph("InstanceNormalization", *inputs, epsilon=spec.epsilon)
        return graph("GroupNormalization", *inputs, epsilon=spec.epsilon, num_groups=spec.groups)

    out[...] = evaluate(problem, layer, x, *problem.parameters(vectors, x.dtype))


IMPLEMENTATIONS = {(kind, "forward"): forward for kind in (InstanceNormalization, GroupNormalization)}
