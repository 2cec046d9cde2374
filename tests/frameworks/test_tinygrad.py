"""tinygrad as a backend: it agrees with the reference, but for the defects of tinygrad that the check finds."""

from __future__ import annotations

import importlib.util
import shutil
from dataclasses import replace
from importlib import metadata

import numpy as np
import pytest

import mpsref
import mpsref_tinygrad
from mpsref.conformance.case import Case, operation_named
from mpsref.conformance.checker import check_operation
from mpsref.conformance.runner import run_case

VERSION = "0.14.0"

DEFECTS = (
    "Compare.forward:n1h1w1c2,float32,nonfinite,seed=0",  # a comparison with NaN by <= is true
    "UpsamplingBilinear.forward:n1h1w1c1,s1x1,aligned,float32,seed=1",  # 0 / 0 for one pixel
)
"""Cases that fail in tinygrad 0.14.0; :mod:`mpsref.bugs.findings` has a script for each defect."""


@pytest.fixture(autouse=True)
def installed(request: pytest.FixtureRequest) -> None:
    reason = mpsref_tinygrad.backend.unavailable()
    if reason and "without" not in request.node.name:
        pytest.skip(reason)


@pytest.mark.parametrize(
    "name",
    [
        "Arithmetic.gradient",
        "Convolution.gradient_weights",
        "FullyConnected.forward",
        "Neuron.gradient",
        "PoolingAverage.gradient",
        "SoftMax.gradient",
    ],
)
def test_operation(name: str) -> None:
    """A few operations, one problem each: every shape is compiled."""
    backend = replace(mpsref_tinygrad.backend, distinct_problems=1)
    (row,) = check_operation(operation_named(name), [backend], 6)
    assert row.status == "passed", row.failures


@pytest.mark.parametrize("case", DEFECTS)
def test_a_defect_of_tinygrad(case: str) -> None:
    outcome = run_case(Case.parse(case), mpsref_tinygrad.backend)
    if metadata.version("tinygrad") == VERSION:
        assert outcome.status == "failed", "it is fixed"
    else:
        assert outcome.status == "passed", outcome.message


def test_what_tinygrad_lacks_is_unsupported_with_a_reason() -> None:
    x = np.ones((1, 4, 4, 1), np.float32)
    with pytest.raises(mpsref.UnsupportedError, match="half a pixel"):
        mpsref.UpsamplingBilinear(2).forward(x, backend=mpsref_tinygrad.backend)
    with pytest.raises(mpsref.UnsupportedError, match="no neuron 'prelu'"):
        mpsref.Neuron("prelu", data=(0.5,)).forward(x, backend=mpsref_tinygrad.backend)


def test_without_tinygrad_or_a_compiler_the_backend_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setenv("CC", "clang-99")
    assert "tinygrad compiles with 'clang-99', which is not installed" in str(mpsref_tinygrad.backend.unavailable())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert mpsref_tinygrad.backend.unavailable() == 'tinygrad is not installed: pip install -e ".[tinygrad]"'
