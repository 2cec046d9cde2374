"""ONNX Runtime as a backend: forward passes agree with the reference, but for defects that the check finds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import mpsref
from mpsref import Backend
from mpsref.conformance.case import Case
from mpsref.conformance.runner import run_case
from mpsref.registry import operations

pytest.importorskip("onnx", reason="ONNX is not installed (the extra `onnxruntime`)")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed (the extra `onnxruntime`)")


import mpsref_onnxruntime
from mpsref_onnxruntime.operations import onnx, operator
from mpsref_onnxruntime.run import node


def test_a_model_is_built_once_for_a_problem() -> None:
    built = []

    def make(problem: object) -> object:
        return lambda x: built.append(problem) or node("Softmax", x, axis=1)

    backend = replace(mpsref_onnxruntime.backend, implementations=onnx.keeping(onnx.layer(mpsref.SoftMax, make)))
    for case in ("SoftMax.forward:n1h2w2c3,float32,seed=1", "SoftMax.forward:n1h2w2c4,float32,seed=1"):
        problem = Case.parse(case)
        for seed in (1, 2, 3):
            assert run_case(replace(problem, seed=seed), backend).status == "passed"
    assert len(built) == 2


def test_there_are_forward_passes_alone() -> None:
    supported = [operation for operation in operations() if operation in mpsref_onnxruntime.backend.implementations]
    assert len(supported) >= 25
    assert {operation.method for operation in supported} == {"forward", "statistics"}


def test_attributes_of_onnx_pool() -> None:
    """Both ways: an overhanging last window by attributes, a window outside of the image on a padded image."""
    x = np.random.default_rng(0).standard_normal((2, 7, 6, 3)).astype(np.float32)
    for pool, size in ((mpsref.PoolingMax(3, 2, edge_mode="clamp"), (4, 3)), (mpsref.PoolingMax(2, offset=-3), (4, 4))):
        expected = pool.forward(x, size, backend="reference")
        assert np.array_equal(pool.forward(x, size, backend=mpsref_onnxruntime.backend), expected)


def test_errors_of_onnxruntime_are_failures() -> None:
    broken = onnx.layer(mpsref.SoftMax, lambda problem: operator("Softmax", axis=7))
    backend = Backend("broken", broken)
    outcome = run_case(Case.parse("SoftMax.forward:n1h2w2c3,float32,seed=1"), backend)
    assert outcome.status == "failed"
    assert "axis" in outcome.message
