from __future__ import annotations

from typing import Any

from mpsref import Compare
from mpsref.arguments.arrays import Array
from mpsref_torch.arithmetic import part
from mpsref_torch.run import Tensor, Torch

NAMES = {"less": "lt", "lessorequal": "le", "greater": "gt", "greaterorequal": "ge"}


def forward(torch: Torch, problem: Any, x: Array, y: Array, out: Array) -> None:
    spec = problem.spec

    def compare(x: Tensor, y: Tensor) -> Tensor:
        first, second = (part(operand, image) for operand, image in zip(spec.operands, (x, y), strict=True))
        if spec.comparison_type in NAMES:
            return getattr(torch.torch, NAMES[spec.comparison_type])(first, second).to(x.dtype)
        equal = torch.torch.abs(first - second) <= spec.threshold
        return (equal if spec.comparison_type == "equal" else ~equal).to(x.dtype)

    out[...] = torch(compare, x, y)


IMPLEMENTATIONS = {(Compare, "forward"): forward}
