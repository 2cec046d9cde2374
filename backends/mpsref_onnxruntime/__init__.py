"""ONNX Runtime as a backend, for forward passes: a model of a few operators for each problem.

An implementation builds the graph of its operators by :class:`mpsref_onnxruntime.run.Graph`, whose attributes are those
of :func:`mpsref.frameworks.onnx`. Images are (N, C, H, W) in the models, as ONNX has them.
"""

from __future__ import annotations

from mpsref import Backend
from mpsref.backend import LazyImplementations
from mpsref_onnxruntime import run

__all__ = ["backend"]


class ForwardPasses(LazyImplementations):
    """The operations that are no gradients."""

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) and isinstance(key, tuple) and key[1] in ("forward", "statistics")


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
)

backend = Backend(
    "onnxruntime",
    ForwardPasses(__name__),
    unavailable=run.unavailable,
    device=run.described,
    named_only=True,
    dtypes=("float32",),
    rules=RULES,
)
