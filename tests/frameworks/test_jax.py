"""JAX as a backend: it agrees with the reference, but for a defect of its CPU compiler."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from mpsref.conformance.case import Case, operation_named
from mpsref.conformance.checker import check_operation
from mpsref.conformance.runner import run_case

pytest.importorskip("jax", reason="JAX is not installed (the extra `jax`)")

import jax
import jax.numpy as jnp

import mpsref_jax
from mpsref import Loss, Reshape, SoftMax
from mpsref_jax.operations import jax as framework

FEW = replace(mpsref_jax.backend, distinct_problems=1)

# Of each way to call JAX one; .ci/frameworks checks all operations.
SOME = ["BatchNormalization.statistics_gradient", "Loss.gradient", "Neuron.parameter_gradient", "SoftMax.gradient"]


@pytest.mark.parametrize("name", SOME)
def test_operation(name: str) -> None:
    (row,) = check_operation(operation_named(name), [FEW], 4)
    assert row.status == "passed", (row.reason, row.failures)


@pytest.mark.parametrize("backend", ["cpu", "jax"])
def test_log_loss_of_a_prediction_near_1(backend: str) -> None:
    """1 + epsilon, rounded, would be a fifth of the gradient off."""
    loss, y, t = Loss("log", "none"), np.float32([[[[1 - 2.0**-20, 1 - 2.0**-24]]]]), np.float32([[[[0, 0.25]]]])
    assert_allclose(loss.forward(y, t, backend=backend), loss.forward(y, t), rtol=1e-6)
    assert_allclose(loss.gradient(y, y, t, backend=backend), loss.gradient(y, y, t), rtol=1e-6)


@pytest.mark.parametrize("name", ["Adam.step", "RMSProp.step", "StochasticGradientDescent.step", "Dropout.mask"])
def test_what_jax_lacks_is_unsupported(name: str) -> None:
    (row,) = check_operation(operation_named(name), [FEW], 1)
    assert row.status == "unsupported"
    assert row.reason


@pytest.mark.parametrize(
    "case",
    [
        "PoolingMax.gradient:n1h4w4c1,k2x2,s1x1,o1x1,g3x3,float32,hard,seed=7",
        "PoolingMax.gradient:n2h5w4c3,k2x3,s2x1,o-1x3,g4x3,float32,seed=3",  # taps outside read as 0: a grown image
        "PoolingAverage.gradient:n2h5w5c2,k3x2,s2x2,clamp,zp1x0,g3x3,p0x-1,ko1x0,float32,seed=1",
        "PoolingL2Norm.gradient:n1h4w4c2,k3x3,clamp,float32,exact,seed=0",
        "Convolution.gradient_weights:n2h7w6c4,k3x2,s2x1,d1x2,groups2,co6,float32,seed=5",
        "ConvolutionTranspose.gradient_data:n1h3w4c2,k3x3,s2x3,co3,g7x11,float32,seed=4",
        "Loss.gradient:n2h2w3c2,huber,mean,across,chained,float32,seed=6",
        "Loss.gradient:n2h1w2c3,softmaxcrossentropy,sum,float32,seed=3",  # labels of any sum
        "Loss.forward:n2h1w2c3,softmaxcrossentropy,mean,weighted,float32,seed=3",
        "FullyConnected.forward:n2h1w3c3,k1x3,neuron:prelu:data1.5_0.25,co2,float32,seed=1",
        "GroupNormalization.gradient:n3h2w2c4,scaled,g2,eps1e-05,float32,seed=2",  # a row of dgamma for each image
    ],
)
def test_case(case: str) -> None:
    outcome = run_case(Case.parse(case), mpsref_jax.backend)
    assert outcome.status == "passed", outcome.message


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("BatchNormalization.gradient:n1h2w2c1,count4,float32,seed=1", "it takes none"),
        ("PoolingMax.gradient:n1h5w6c2,k2x2,d2x2,g3x4,float32,seed=2", "VJP not implemented for select_and_gather"),
    ],
)
def test_refusals_have_a_reason(case: str, reason: str) -> None:
    outcome = run_case(Case.parse(case), mpsref_jax.backend)
    assert outcome.status == "unsupported"
    assert reason in outcome.message


def test_a_problem_is_compiled_once() -> None:
    traced: list[object] = []

    def make(problem: object) -> object:
        return lambda x: (traced.append(problem), x + 0)[1]

    backend = replace(mpsref_jax.backend, implementations=framework.keeping(framework.layer(Reshape, make)))
    for method in ("forward", "gradient"):
        case = Case.parse(f"Reshape.{method}:n1h2w2c2,size2x2x2,HWC,float32,seed=1")
        traced.clear()
        for seed in (1, 2, 3):
            run_case(replace(case, seed=seed), backend)
        assert len(traced) == 1


def test_a_wrong_function_fails() -> None:
    case = Case.parse("SoftMax.forward:n1h2w2c3,float32,seed=1")
    wrong = framework.layer(SoftMax, lambda problem: lambda x: jax.nn.softmax(x, axis=2))
    assert run_case(case, replace(FEW, implementations=wrong)).status == "failed"
    broken = framework.layer(SoftMax, lambda problem: lambda x: jnp.reshape(x, (7, 7)))
    assert run_case(case, replace(FEW, implementations=broken)).kind == "raised TypeError"


def test_without_jax_the_backend_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert mpsref_jax.backend.unavailable() == 'JAX is not installed: pip install -e ".[jax]"'


def test_the_device_is_named() -> None:
    assert mpsref_jax.backend.device() == f"{jax.default_backend().upper()}, JAX {jax.__version__}"
