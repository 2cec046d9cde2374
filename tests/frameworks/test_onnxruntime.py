"""ONNX Runtime as a backend: forward passes agree with the reference, but for defects that the check finds."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import numpy as np
import pytest

import mpsref
from mpsref import Backend
from mpsref.conformance.case import Case, operation_named
from mpsref.conformance.checker import check_operation
from mpsref.conformance.runner import run_case
from mpsref.errors import UnsupportedError
from mpsref.registry import operations

pytest.importorskip("onnx", reason="ONNX is not installed (the extra `onnxruntime`)")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed (the extra `onnxruntime`)")


import mpsref_onnxruntime
from mpsref_onnxruntime.operations import onnx, operator
from mpsref_onnxruntime.run import node

SUPPORTED = [operation for operation in operations() if operation in mpsref_onnxruntime.backend.implementations]


# Of each way to build a model one; .ci/frameworks checks all operations, and the defects.
SOME = ["Compare.forward", "Convolution.forward", "CrossChannelNormalization.forward", "Pad.forward"]
SOME += ["PoolingL2Norm.forward", "Slice.forward"]


@pytest.mark.parametrize("name", SOME)
def test_operation(name: str) -> None:
    (row,) = check_operation(operation_named(name), [mpsref_onnxruntime.backend], 12)
    assert row.status == "passed", (row.reason, row.failures)


@pytest.mark.parametrize(
    "case",
    [
        "FullyConnected.forward:n2h1w3c3,k1x3,neuron:prelu:data1.5_0.25,co2,float32,seed=1",  # slopes of a matrix
        "ConvolutionTranspose.forward:n1h9w6c2,k2x1,s1x2,o2x1,ko1x7,co7,out1x3,biased,float32,exact,seed=5",
        "PoolingAverage.forward:n1h5w6c2,k3x2,s2x2,o3x2,clamp,zp1x0,float32,seed=2",  # begins inside of the image
        "BatchNormalization.statistics:n2h2w3c2,count4,float32,seed=3",
        "Slice.forward:n1h2w2c2,size2x2x2,o5x0x0,float32,seed=4",  # beside the image
    ],
)
def test_case(case: str) -> None:
    outcome = run_case(Case.parse(case), mpsref_onnxruntime.backend)
    assert outcome.status in ("passed", "mistrusted"), outcome.message


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
    assert len(SUPPORTED) >= 25
    assert {operation.method for operation in SUPPORTED} == {"forward", "statistics"}
    (row,) = check_operation(operation_named("PoolingMax.gradient"), [mpsref_onnxruntime.backend], 1)
    assert row.status == "unsupported"


def test_attributes_of_onnx_pool() -> None:
    """Both ways: an overhanging last window by attributes, a window outside of the image on a grown image."""
    x = np.random.default_rng(0).standard_normal((2, 7, 6, 3)).astype(np.float32)
    for pool, size in ((mpsref.PoolingMax(3, 2, edge_mode="clamp"), (4, 3)), (mpsref.PoolingMax(2, offset=-3), (4, 4))):
        expected = pool.forward(x, size, backend="reference")
        assert np.array_equal(pool.forward(x, size, backend=mpsref_onnxruntime.backend), expected)


def test_refusals_name_the_reason() -> None:
    x = np.ones((1, 2, 2, 4), np.float32)
    with pytest.raises(UnsupportedError, match="LRN of ONNX Runtime takes an odd one"):
        mpsref.CrossChannelNormalization(4).forward(x, backend=mpsref_onnxruntime.backend)
    with pytest.raises(UnsupportedError, match="alpha_ > 0"):
        mpsref.CrossChannelNormalization(3, alpha=0).forward(x, backend=mpsref_onnxruntime.backend)


def test_errors_of_onnxruntime_are_failures() -> None:
    broken = onnx.layer(mpsref.SoftMax, lambda problem: operator("Softmax", axis=7))
    backend = Backend("broken", broken)
    outcome = run_case(Case.parse("SoftMax.forward:n1h2w2c3,float32,seed=1"), backend)
    assert outcome.status == "failed"
    assert "axis" in outcome.message


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_without_its_packages_the_backend_is_unavailable(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else name)
    reason = mpsref_onnxruntime.backend.unavailable()
    assert reason == f'{missing} is not installed: pip install -e ".[onnxruntime]"'
