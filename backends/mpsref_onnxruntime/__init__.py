"""ONNX Runtime as a backend, for forward passes: a model of a few operators for each problem."""

from __future__ import annotations

from mpsref_onnxruntime.operations import FORWARD_PASSES, onnx

__all__ = ["backend"]

RULES = (
    "sigmoid relative to 1",
    "folded scale and shift",
    "rounded means",
    "rounded positions",
    "running sums",
    "plain means",
    "plain sums",
    "variance from squares",
    "NaN by another formula",
    "NaN is the extremum",
)

backend = onnx.backend(
    "onnxruntime",
    FORWARD_PASSES,
    rules=RULES,
)
