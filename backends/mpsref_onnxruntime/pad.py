from __future__ import annotations

from typing import Any

from mpsref import Pad
from mpsref.arguments.arrays import Array
from mpsref.errors import UnsupportedError
from mpsref_onnxruntime.run import evaluate, floats, integers

MODES = {"zero": "constant", "constant": "constant", "clamp": "edge", "mirror": "reflect"}


def forward(problem: Any, x: Array, out: Array) -> None:
    spec = problem.spec
    if spec.edge_mode not in MODES or spec.fill_values is not None:
        what = "fill_values" if spec.fill_values is not None else f"edge_mode {spec.edge_mode!r}"
        raise UnsupportedError(f"Pad of ONNX has no {what}")
    longest = [length - 1 for length in problem.source_shape[1:]]
    if spec.edge_mode == "mirror" and any(
        pad > most for pads in (spec.before, spec.after) for pad, most in zip(pads, longest, strict=True)
    ):
        raise UnsupportedError('mode "reflect" of Pad of ONNX Runtime reflects once')
    pads = integers(*(0, spec.before[2], *spec.before[:2]), *(0, spec.after[2], *spec.after[:2]))
    fill = floats(spec.fill_value if spec.edge_mode == "constant" else 0.0)
    out[...] = evaluate(problem, lambda graph, x: graph("Pad", x, pads, fill, mode=MODES[spec.edge_mode]), x)


IMPLEMENTATIONS = {(Pad, "forward"): forward}
