from __future__ import annotations

from typing import Any

from mpsref import PoolingL2Norm
from mpsref.arguments.arrays import Array
from mpsref_torch.run import Torch
from mpsref_torch.windows import pooled, pooling_gradient


def forward(torch: Torch, problem: Any, x: Array, out: Array) -> None:
    pooled(torch, problem, torch.functional.lp_pool2d, x, out)


def gradient(torch: Torch, problem: Any, g: Array, x: Array, out: Array) -> None:
    pooling_gradient(torch, problem, torch.functional.lp_pool2d, g, x, out)


IMPLEMENTATIONS = {(PoolingL2Norm, "forward"): forward, (PoolingL2Norm, "gradient"): gradient}
