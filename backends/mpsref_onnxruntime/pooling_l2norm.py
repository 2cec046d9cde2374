from __future__ import annotations

from typing import Any

from mpsref import PoolingL2Norm
from mpsref.arguments.arrays import Array
from mpsref_onnxruntime.windows import pooled


def forward(problem: Any, x: Array, out: Array) -> None:
    pooled("LpPool", problem, x, out, p=2)


IMPLEMENTATIONS = {(PoolingL2Norm, "forward"): forward}
