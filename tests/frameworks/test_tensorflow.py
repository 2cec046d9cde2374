"""TensorFlow as a backend: it agrees with the reference, but for the defects of TensorFlow that the check finds."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import numpy as np
import pytest

import mpsref
import mpsref_tensorflow
from mpsref.bugs.known import without_defects
from mpsref.conformance.case import Case
from mpsref.conformance.checker import check_operation
from mpsref.conformance.runner import run_case
from mpsref.registry import Operation, operations

VERSION = "2.21.0"

FEW = replace(mpsref_tensorflow.backend, isolated=False, distinct_problems=2)
"""Few layers; not in another process, because TensorFlow has computed in this one."""

SUPPORTED = [operation for operation in operations() if operation in mpsref_tensorflow.backend.implementations]


@pytest.fixture(autouse=True)
def installed(request: pytest.FixtureRequest) -> None:
    reason = mpsref_tensorflow.backend.unavailable()
    if reason and "without" not in request.node.name:
        pytest.skip(reason)


@pytest.mark.filterwarnings("ignore")  # of TensorFlow about itself
@pytest.mark.parametrize("operation", SUPPORTED, ids=str)
def test_operation(operation: Operation) -> None:
    if str(operation) == "Convolution.gradient_weights":
        pytest.skip("it ends the process; the script tensorflow_conv2d_gradient.py shows it")
    (row,) = check_operation(operation, [without_defects(FEW)], 8)
    assert row.status in ("passed", "partial", "unsupported"), row.failures[-1]
    assert row.status == "passed" or row.reason


def test_the_gradient_of_the_weights_of_a_convolution() -> None:
    for problem in ("n2h5w4c2,k3x3,co3", "n1h5w6c4,k3x2,s2x1,co4,groups2", "n1h7w7c2,k3x3,d2x2,co2"):
        outcome = run_case(Case.parse(f"Convolution.gradient_weights:{problem},float32,seed=1"), FEW)
        assert outcome.status == "passed", outcome.message


@pytest.mark.parametrize(
    "case",
    [
        "PoolingMax.forward:n1h1w1c1,k1x1,clamp,float32,nonfinite,seed=8192",  # minus infinity
        "SoftMax.forward:n1h1w1c2,float32,nonfinite,seed=0",  # 0 next to a NaN
    ],
)
def test_a_defect_of_tensorflow(case: str) -> None:
    outcome = run_case(Case.parse(case), FEW)
    fails = mpsref_tensorflow.tensorflow.tf.__version__ == VERSION
    assert outcome.status == ("failed" if fails else "passed")


def test_what_tensorflow_lacks_is_unsupported_with_a_reason() -> None:
    x = np.ones((1, 4, 4, 1), np.float32)
    for spec, reason in (
        (mpsref.PoolingMax(2, dilations=2), "dilations is"),
        (mpsref.Neuron("prelu", data=(0.5,)), "no neuron 'prelu'"),
        (mpsref.UpsamplingBilinear(2), "half a pixel"),
        (mpsref.CrossChannelNormalization(kernel_size=4), "odd number of channels"),
        (mpsref.Reduce("argumentmax", "featurechannels"), "pass over NaN"),
    ):
        with pytest.raises(mpsref.UnsupportedError, match=reason):
            spec.forward(x, backend=mpsref_tensorflow.backend)


def test_without_tensorflow_the_backend_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert mpsref_tensorflow.backend.unavailable() == 'TensorFlow is not installed: pip install -e ".[tensorflow]"'
