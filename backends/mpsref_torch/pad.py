from __future__ import annotations

from typing import Any

from mpsref import Pad
from mpsref.arguments.arrays import Array
from mpsref.errors import UnsupportedError
from mpsref_torch.run import Function, Torch, like

MODES = {"zero": "constant", "constant": "constant", "clamp": "replicate", "mirror": "reflect"}


def _function(torch: Torch, problem: Any) -> Function:
    spec = problem.spec
    (top, left, front), (bottom, right, back) = spec.before, spec.after
    if spec.edge_mode not in MODES or spec.fill_values is not None:
        what = "fill_values" if spec.fill_values is not None else f"edge_mode {spec.edge_mode!r}"
        raise UnsupportedError(f"pad of PyTorch has no {what}")
    if MODES[spec.edge_mode] == "constant":
        fill = spec.fill_value if spec.edge_mode == "constant" else 0.0
        pads = (left, right, top, bottom, front, back)
        return lambda x: torch.functional.pad(x, pads, value=fill)
    if front or back:
        raise UnsupportedError(f"mode {MODES[spec.edge_mode]!r} of PyTorch's pad leaves the channels of an image alone")
    height, width = problem.source_shape[1:3]
    if spec.edge_mode == "mirror" and (max(top, bottom) >= height or max(left, right) >= width):
        raise UnsupportedError("mode 'reflect' of PyTorch's pad reflects once")
    return lambda x: torch.functional.pad(x, (left, right, top, bottom), mode=MODES[spec.edge_mode])


def forward(torch: Torch, problem: Any, x: Array, out: Array) -> None:
    out[...] = torch(_function(torch, problem), x)


def gradient(torch: Torch, problem: Any, g: Array, out: Array) -> None:
    out[...] = torch.gradient(_function(torch, problem), g, like(g, problem.source_shape))


IMPLEMENTATIONS = {(Pad, "forward"): forward, (Pad, "gradient"): gradient}
