"""MLX as a backend: it agrees with the reference, but for the defects of MLX that the check finds."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import numpy as np
import pytest

import mpsref
import mpsref_mlx
from mpsref.conformance.case import Case, operation_named
from mpsref.conformance.checker import check_operation
from mpsref.conformance.runner import run_case
from mpsref.registry import Operation, operations

VERSION = "0.32.4"

DEFECTS = (
    # conv_transpose2d with output_padding
    "ConvolutionTranspose.gradient_data:n1h1w1c1,k1x1,s1x2,co1,g1x2,float32,exact,seed=0",
    "ConvolutionTranspose.gradient_weights:n1h1w1c1,k1x1,s1x3,ko0x1,co1,float32,exact,seed=0",
    # nn.prelu at 0
    "Neuron.gradient:n1h4w4c1,prelu,data2.0,float32,exact,seed=0",
)
"""Cases that fail in MLX 0.32.4; :mod:`mpsref.bugs.findings` has a script for each defect."""

FEW = replace(mpsref_mlx.backend, isolated=False, distinct_problems=2)
"""Few layers; not in another process, because MLX has computed in this one."""

SUPPORTED = [operation for operation in operations() if operation in mpsref_mlx.backend.implementations]


@pytest.fixture(autouse=True)
def installed(request: pytest.FixtureRequest) -> None:
    reason = mpsref_mlx.backend.unavailable()
    if reason and "without" not in request.node.name:
        pytest.skip(reason)


@pytest.mark.parametrize("operation", SUPPORTED, ids=str)
def test_operation(operation: Operation) -> None:
    if str(operation) == "LogSoftMax.forward":
        pytest.skip("it ends the process; the script mlx_log_softmax.py shows it")
    (row,) = check_operation(operation, [FEW], 8)
    assert row.status in ("passed", "partial", "unsupported"), row.failures[-1]
    assert row.status == "passed" or row.reason


@pytest.mark.parametrize("case", DEFECTS)
def test_a_defect_of_mlx(case: str) -> None:
    outcome = run_case(Case.parse(case), FEW)
    if mpsref_mlx.mlx.core.__version__ == VERSION:
        assert outcome.status == "failed", "it is fixed"
    else:
        assert outcome.status == "passed", outcome.message


def test_transposed_images() -> None:
    x = np.arange(96, dtype=np.float32).reshape(2, 3, 4, 4).transpose(0, 2, 3, 1)
    (tensor,) = [mpsref_mlx.mlx.tensor(x)]
    assert tensor.shape == x.shape
    np.testing.assert_array_equal(mpsref_mlx.mlx.array(tensor), x)
    (row,) = check_operation(operation_named("PoolingMax.gradient"), [FEW], 8)
    assert row.status == "passed", row.failures


def test_what_mlx_lacks_is_unsupported_with_a_reason() -> None:
    x = np.ones((1, 4, 4, 1), np.float32)
    for spec, reason in (
        (mpsref.PoolingMax(2, dilations=2), "the dilation is"),
        (mpsref.Neuron("relu", a=2), "maximum of x and a"),
        (mpsref.UpsamplingBilinear(2), "half a pixel"),
    ):
        with pytest.raises(mpsref.UnsupportedError, match=reason):
            spec.forward(x, backend=mpsref_mlx.backend)


def test_without_mlx_the_backend_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert mpsref_mlx.backend.unavailable() == 'MLX is not installed: pip install -e ".[mlx]"'
