"""JAX as a backend: it agrees with the reference, but for a defect of its CPU compiler."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from mpsref.conformance.case import Case
from mpsref.conformance.runner import run_case

pytest.importorskip("jax", reason="JAX is not installed (the extra `jax`)")

import jax
import jax.numpy as jnp

import mpsref_jax
from mpsref import Loss, Reshape, SoftMax
from mpsref_jax.operations import jax as framework

FEW = replace(mpsref_jax.backend, distinct_problems=1)


@pytest.mark.parametrize("backend", ["cpu", "jax"])
def test_log_loss_of_a_prediction_near_1(backend: str) -> None:
    """1 + epsilon, rounded, would be a fifth of the gradient off."""
    loss, y, t = Loss("log", "none"), np.float32([[[[1 - 2.0**-20, 1 - 2.0**-24]]]]), np.float32([[[[0, 0.25]]]])
    assert_allclose(loss.forward(y, t, backend=backend), loss.forward(y, t), rtol=1e-6)
    assert_allclose(loss.gradient(y, y, t, backend=backend), loss.gradient(y, y, t), rtol=1e-6)


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


def test_the_device_is_named() -> None:
    assert mpsref_jax.backend.device() == f"{jax.default_backend().upper()}, JAX {jax.__version__}"
