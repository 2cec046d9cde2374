from __future__ import annotations

from typing import Any

from mpsref import PoolingAverage
from mpsref.arguments.arrays import Array
from mpsref_onnxruntime.windows import pooled


def forward(problem: Any, x: Array, out: Array) -> None:
    pooled("AveragePool", problem, x, out)


IMPLEMENTATIONS = {(PoolingAverage, "forward"): forward}
