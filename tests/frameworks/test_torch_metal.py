"""The Metal kernels that PyTorch compiles, in the clang runtime."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from typing import Any

import numpy as np
import pytest

import mpsref_torch
from mpsref.bugs import FINDINGS
from mpsref.conformance import checker
from mpsref.conformance.case import Case, operation_named
from mpsref.conformance.checker import check_operation
from mpsref.conformance.runner import run_case
from mpsref_torch import inductor
from mpsref_torch.inductor import Inductor, backend
from tests import few

torch = pytest.importorskip("torch", reason="PyTorch is not installed (the extra `torch`)")

compiles = pytest.mark.skipif(inductor.unavailable() is not None, reason=str(inductor.unavailable()))

# Each with another feature of MSL; .ci/frameworks checks all operations.
PASSING = [
    "BatchNormalization.statistics_gradient",
    "GroupNormalization.gradient",
    "PoolingMax.forward",
    "Slice.forward",
]

UNSUPPORTED = {
    "Convolution.forward": "calls convolution",
    "Dropout.mask": "draws its mask itself",
    "Adam.step": "optimizers of PyTorch are objects",
}


@compiles
@pytest.mark.parametrize("name", few(PASSING, 2))
def test_operation(name: str) -> None:
    (row,) = check_operation(operation_named(name), [replace(backend, layouts=("nchw",), distinct_problems=2)], 2)
    assert row.status in ("passed", "partial"), row.failures[-1:] or row.reason
    assert row.cases


@compiles
@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_inductor_does_not_lower_is_unsupported_with_the_reason(name: str) -> None:
    (row,) = check_operation(operation_named(name), [replace(backend, distinct_problems=1)], 2)
    assert row.status == "unsupported"
    assert UNSUPPORTED[name] in row.reason


# --- defects of PyTorch -----------------------------------------------------------------------------------------------


def gradients(run: Inductor, function: Any, x: Any) -> tuple[Any, Any]:
    """Return the gradient by the Metal kernels, and that of PyTorch on the CPU in float64."""
    exact = torch.from_numpy(x).double().permute(0, 3, 1, 2).requires_grad_()
    y = function(exact)
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=y.dtype)
    y.backward(g)
    found = run.gradient(function, g.permute(0, 2, 3, 1).float().contiguous().numpy(), x)
    return found, exact.grad.permute(0, 2, 3, 1).numpy()


@pytest.mark.slow
@compiles
@pytest.mark.parametrize(
    ("name", "image", "arguments", "is_wrong"),
    [
        ("avg_pool2d", 8, (3, 2, 1), False),
        ("avg_pool2d", 7, (2, 2, 0, True, True), True),
        ("lp_pool2d", 7, (2, 2, 2, True), True),
        ("max_pool2d", 21, (10, 1), False),
    ],
)
def test_gradients_of_windows_that_hang_over(name: str, image: int, arguments: Any, is_wrong: bool) -> None:
    """pytorch #198119: the divisor of a window that ceil_mode lets hang over is that of a full one."""
    x = np.random.default_rng(3).standard_normal((1, image, image, 2)).astype(np.float32)
    pool = getattr(torch.nn.functional, name)
    found, expected = gradients(Inductor(), lambda x: pool(x, *arguments), x)
    error = abs(found - expected).max()
    assert error > 0.1 if is_wrong else error < 1e-5


CEIL = "PoolingAverage.gradient:n1h7w7c1,k2x2,s2x2,o1x1,clamp,g4x4,float32,seed=0"


@compiles
def test_a_check_names_the_wrong_gradient() -> None:
    outcome = run_case(Case.parse(CEIL), backend)
    assert outcome.status == "failed"
    assert "13 of 49 elements are wrong" in outcome.message
    assert run_case(Case.parse(CEIL), mpsref_torch.backend).status == "passed"


@pytest.mark.slow
@compiles
def test_the_default_check_tries_a_case_that_shows_it() -> None:
    (finding,) = (one for one in FINDINGS if one.script == "torch_compile_avg_pool2d")
    operation = operation_named("PoolingAverage.gradient")
    cases = checker.random_cases(
        operation, ("float32",), inductor.DISTINCT, 0, backend.layouts, compiles_each_problem=True
    )
    chosen = checker._chosen(checker.layer_cases(operation), backend, checker.CASES)
    concerned = (case for case in (*chosen, *cases) if finding.concerns(case.problem, ()))
    assert any(run_case(case, backend).status == "failed" for case in concerned)


# --- the programs -----------------------------------------------------------------------------------------------------


@compiles
def test_equal_functions_of_equal_shapes_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    run, seen = Inductor(), []
    written = Inductor._written

    def count(self: Inductor, *args: Any) -> str:
        seen.append(args)
        return written(self, *args)

    monkeypatch.setattr(Inductor, "_written", count)
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(1, 2, 3, 4)

    def scaled(factor: float) -> Any:
        return lambda x: torch.exp(x) * factor

    for factor in (2.0, 2.0, 3.0):
        np.testing.assert_allclose(run.run(scaled(factor), x), np.exp(x) * factor, rtol=1e-6)
    assert len(seen) == 2
    run.run(scaled(2.0), x[:, :1])
    assert len(seen) == 3


@compiles
def test_results_that_no_kernel_writes_are_nan() -> None:
    empty = Inductor()._empty((2, 3), (3, 1), dtype=torch.float32, device="cpu")
    assert torch.isnan(empty).all()


@compiles
def test_a_kernel_that_reads_out_of_bounds_is_an_error() -> None:
    library = Inductor()._library(
        "#include <c10/metal/utils.h>\n"
        "kernel void f(device float* y, constant float* x, uint i [[thread_position_in_grid]]) { y[i] = x[i + 1]; }"
    )
    x, y = torch.arange(4.0), torch.zeros(4)
    with pytest.raises(inductor.clang.LaunchError, match="read out of bounds"):
        library.f(y, x, threads=[4])
    library.f(y[:3], x, threads=[3])
    assert y.tolist() == [1, 2, 3, 0]
    library.f(y[::2], x, threads=[3])  # the elements between are in the memory of the tensor
    assert y.tolist() == [1, 2, 3, 0]


@compiles
def test_errors_that_a_kernel_reports_are_raised() -> None:
    library = Inductor()._library(
        "#include <c10/metal/utils.h>\n#include <c10/metal/error.h>\n#include <metal_atomic>\n"
        "kernel void f(device float* y, device c10::metal::ErrorMessages* e, uint i [[thread_position_in_grid]]) {\n"
        'if (i == 2) { TORCH_REPORT_ERROR(e, "index ", 7); return; }\ny[i] = 1; }'
    )
    library.f(torch.zeros(2), threads=[2], error_buf_idx=1)
    with pytest.raises(RuntimeError, match="kernel f: index 7"):
        library.f(torch.zeros(3), threads=[3], error_buf_idx=1)


def test_other_versions_of_pytorch_are_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "2.99.1")
    assert inductor.unavailable() == (
        "torch:metal uses private parts of PyTorch and was tested with 2.13, not with 2.99.1: "
        'pip install "torch==2.13.*"'
    )
    monkeypatch.setattr(inductor.importlib.util, "find_spec", lambda name: None)
    assert "PyTorch is not installed" in str(inductor.unavailable())


def test_on_an_apple_gpu_torch_compile_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    for function in (inductor._has_gpu, inductor.run):
        function.cache_clear()
    try:
        monkeypatch.setattr(inductor.platform, "system", lambda: "Darwin")
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
        monkeypatch.setattr(metadata, "version", lambda name: "2.99.1")
        assert inductor.unavailable() is None
        assert (inductor.run().device, inductor.run().compiles) == ("mps", True)
        assert backend.device() == "MPS, PyTorch 2.99.1, compiled"
    finally:
        for function in (inductor._has_gpu, inductor.run):
            function.cache_clear()
    monkeypatch.undo()
    assert isinstance(inductor.run(), Inductor)


@pytest.mark.slow
def test_programs_of_other_gradients_and_the_first_program_of_a_process() -> None:
    """A program has the gradients of its first call only; max pooling is compiled before anything is imported."""
    cases = [
        "PoolingMax.gradient:n1h2w2c1,k2x2,clamp,float32,exact,seed=1",
        "Neuron.gradient:n1h2w3c2,prelu,data0.25_0.5,float32,exact,memory=nchw+nchw,seed=1",
        "Neuron.parameter_gradient:n1h2w3c2,prelu,data0.25_0.5,float32,exact,memory=nchw+nchw,seed=1",
    ]
    code = (
        "from mpsref.conformance.case import Case; from mpsref.conformance.runner import run_case\n"
        "from mpsref_torch.inductor import backend\n"
        f"for text in {cases!r}: print(run_case(Case.parse(text), backend))"
    )
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | path, capture_output=True, text=True, check=True
    )
    assert found.stdout.count("status='passed'") == 3, found.stdout
