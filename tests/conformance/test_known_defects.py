"""Checks without known defects of frameworks: what these concern is left out, and a case of each must fail."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import os
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from mpsref import cli, registry
from mpsref.arguments.layouts import arranged
from mpsref.bugs import FINDINGS, Finding, known
from mpsref.conformance import check, checker, mutants, runner
from mpsref.conformance.case import Case, operation_named
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.isolation import Limits
from mpsref.registry import Backend

ROOT = Path(__file__).parents[2]
BACKENDS = {*tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]["mpsref.backends"]}

SOFTMAX = operation_named("SoftMax.forward")
INSTALLED = importlib.metadata.version("numpy")

WRONG = "SoftMax.forward:n1h1w1c2,float32,seed=0"
RIGHT = "SoftMax.forward:n1h1w1c3,float32,seed=0"

FINDING = Finding(
    "numpy_two_channels",
    "numpy",
    (INSTALLED,),
    "Two channels are wrong.",
    WRONG,
    ("odd",),
    (str(SOFTMAX),),
    lambda problem, inputs: problem.source_shape[3] == 2,
)


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> Backend:
    """A framework that is wrong for two channels."""

    def run(problem: Any, x: Any, out: Any) -> None:
        out[...] = mutants.correct(problem, x) * (1 + (x.shape[3] == 2))

    backend = Backend("odd", {SOFTMAX: run})
    monkeypatch.setitem(registry._registered, "odd", backend)
    monkeypatch.setitem(registry._loaded, "odd", backend)
    return backend


def declare(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Finding:
    finding = FINDING._replace(**changes)
    monkeypatch.setattr(known, "FINDINGS", (finding,))
    return finding


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, ["check", "-b", "odd", "-k", str(SOFTMAX), "--cases", "20", *arguments])
    return result.exit_code, result.output


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@needs_fork
def test_what_a_defect_concerns_is_left_out_and_its_case_fails(monkeypatch: pytest.MonkeyPatch, odd: Backend) -> None:
    assert not check(odd, [SOFTMAX], 20).ok
    declare(monkeypatch)
    (row,) = check(known.without_defects(odd), [SOFTMAX], 20).rows
    assert row.status == "passed"
    assert 0 < row.refused < row.cases
    assert row.reason == f"numpy {INSTALLED} has the defect numpy_two_channels"
    status, output = run("--except-defects")
    assert status == 0
    assert f"numpy_two_channels: {WRONG} on odd failed, as expected" in output
    assert run()[0] == 1


def test_a_failure_names_its_defect_and_the_next_step(monkeypatch: pytest.MonkeyPatch, odd: Backend) -> None:
    finding, case = declare(monkeypatch), "SoftMax.forward:n1h1w1c2,float32,exact,seed=0"
    for output in (run()[1], CliRunner().invoke(cli.app, ["replay", case, "-b", "odd"]).output):
        assert f"known defect {finding.script} of numpy {INSTALLED}: {finding.text}" in output
        assert f"mpsref check --backend 'odd' --kernel {SOFTMAX} --except-defects" in output
        assert "x: [[[[1., 2.]]]]\n" in output
        assert "result, expected: [[[[0.268941421, 0.731058579]]]]\n" in output
        assert "result of the backend: [[[[0.53788286, 1.4621172 ]]]]\n" in output
    declare(monkeypatch, versions=("0",))
    assert "known defect" not in run()[1]
    declare(monkeypatch, concerns=lambda problem, inputs: False)
    assert "known defect" not in run()[1]


def test_a_property_that_fails_names_the_defect_of_the_calls_that_it_makes(
    monkeypatch: pytest.MonkeyPatch, odd: Backend
) -> None:
    """The case itself is right, and its arrays are not shown beside the message."""

    def one_channel_less(case: Case, backend: Backend) -> None:
        n, height, width, c = case.problem.source_shape
        if c == 3:
            problem = dataclasses.replace(case.problem, source_shape=(n, height, width, 2))
            x = np.zeros((n, height, width, 2), np.float32)
            np.testing.assert_array_equal(runner.compute(problem, backend, x)[0], 0.5)

    def declared(case: Case, backend: Backend) -> None:
        try:
            one_channel_less(case, backend)
        except AssertionError as error:
            raise Mismatch("one channel less") from error

    monkeypatch.setattr(checker.families, "properties", lambda operation: (declared,))
    finding = declare(monkeypatch)
    other = finding._replace(script="numpy_other", concerns=lambda problem, inputs: False)
    monkeypatch.setattr(known, "FINDINGS", (other, finding))
    assert known.defect_of(RIGHT, "odd") == finding
    assert known.defect_of("SoftMax.forward:n1h1w1c4,float32,seed=0", "odd") is None, "it does not fail"
    output = CliRunner().invoke(cli.app, ["replay", RIGHT, "-b", "odd"]).output
    assert f"one channel less\nknown defect {finding.script} of numpy" in output
    declare(monkeypatch, concerns=lambda problem, inputs: False)
    assert known.defect_of(RIGHT, "odd") is None, "it fails without the calls of the finding, too"


@needs_fork
def test_a_defect_that_is_gone_fails_the_check(monkeypatch: pytest.MonkeyPatch, odd: Backend) -> None:
    finding = declare(monkeypatch, case=RIGHT)
    monkeypatch.setattr(Finding, "show", lambda self: "fixed: all is right")
    (confirmed,) = known.confirm([odd])
    assert not confirmed.expected
    assert confirmed.text == (
        f"{finding.script}: {RIGHT} on odd passed; take {INSTALLED} from its versions in mpsref/bugs/findings.py."
    )
    status, output = run("--except-defects")
    assert status == 1
    assert f"take {INSTALLED} from its versions" in output


@needs_fork
def test_a_machine_without_the_defect_is_left_out(monkeypatch: pytest.MonkeyPatch, odd: Backend) -> None:
    declare(monkeypatch, case=RIGHT)
    monkeypatch.setattr(Finding, "show", lambda self: "not affected: only on another processor")
    assert not list(known.confirm([odd]))


@needs_fork
def test_a_version_that_is_not_listed_must_not_have_the_defect(monkeypatch: pytest.MonkeyPatch, odd: Backend) -> None:
    declare(monkeypatch, versions=("0.1",))
    assert known.without_defects(odd) is odd
    (confirmed,) = known.confirm([odd])
    assert not confirmed.expected
    assert f"failed; add {INSTALLED} to its versions" in confirmed.text
    declare(monkeypatch, versions=("0.1",), case=RIGHT)
    (confirmed,) = known.confirm([odd])
    assert confirmed.expected
    assert run("--except-defects")[0] == 1, "the check finds it"


@needs_fork
def test_a_defect_that_ends_the_process_is_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch)
    dying = Backend("odd", {SOFTMAX: lambda problem, x, out: os.abort()})
    (confirmed,) = known.confirm([dying])
    assert confirmed.expected


def test_backends_must_be_named() -> None:
    result = CliRunner().invoke(cli.app, ["check", "--except-defects"])
    assert isinstance(result.exception, ValueError)
    assert "add --backend" in str(result.exception)


@pytest.mark.parametrize("finding", [finding for finding in FINDINGS if finding.backends], ids=lambda f: f.script)
def test_a_finding_concerns_its_own_case(finding: Finding) -> None:
    case = Case.parse(finding.case)
    assert str(case) == finding.case
    assert str(case.problem.operation) in finding.operations
    assert finding.concerns(case.problem, case.inputs())
    assert {*finding.backends} <= BACKENDS
    assert all(map(operation_named, finding.operations))


@pytest.mark.parametrize(
    ("script", "case"),
    [
        ("torch_instance_norm", "InstanceNormalization.gradient:n1h2w2c2,eps1e-05,memory=nchw+nhwc+nhwc,seed=0"),
        ("torch_conv2d_one_channel", "Convolution.forward:n2h1w1c2,k2x5,s1x2,o1x1,co1,out2x1,float32,seed=0"),
        ("torch_conv2d_one_channel", "Convolution.forward:n2h1w1c1,k2x5,s2x1,o1x1,co1,out2x1,float32,seed=0"),
        ("torch_conv2d_crash", "Convolution.forward:n2h2w1c5,k2x2,s1x2,d1x2,co1,float32,seed=0"),
        ("torch_compile_avg_pool2d", "PoolingAverage.gradient:n1h4w4c1,k2x2,s2x2,o1x1,clamp,g2x2,float32,seed=0"),
        ("torch_metal_max_pool2d", "PoolingMax.gradient:n1h7w7c1,k3x3,clamp,float32,memory=nchw+nchw,seed=0"),
        ("torch_metal_max_pool2d", "PoolingMax.gradient:n1h7w7c2,k3x3,s2x2,clamp,float32,memory=nchw+nchw,seed=0"),
        ("torch_upsample_nearest", "UpsamplingNearest.forward:n1h1w70c1,s1x42,float32,seed=0"),
        ("jax_conv_one_term", "Convolution.gradient_weights:n2h1w1c1,k1x1,co40000,float32,seed=0"),
        ("jax_conv_one_term", "Convolution.forward:n1h1w1c2,k1x1,co40000,float32,seed=0"),
        ("jax_conv_one_term", "Convolution.gradient_data:n1h1w1c40000,k1x1,co2,float32,seed=0"),
        ("jax_conv_transpose_abort", "ConvolutionTranspose.forward:n1h3w1c1,k2x3,s2x1,co1,out6x3,float32,seed=0"),
        ("jax_conv_transpose_abort", "ConvolutionTranspose.forward:n1h2w1c1,k2x3,s2x1,ko1x-1,co1,out2x4,seed=0"),
        ("jax_conv_transpose_abort", "Convolution.gradient_data:n1h4w1c2,k2x3,s2x1,groups2,co2,g3x1,seed=0"),
        ("jax_reduce_window_abort", "PoolingAverage.forward:n1h3w1c1,k2x1,o2x0,float32,seed=0"),
        ("jax_reduce_window_abort", "PoolingAverage.forward:n1h3w1c1,k1x1,o1x0,clamp,out3x1,float32,seed=0"),
        ("jax_max_pool_negative_padding", "PoolingMax.gradient:n1h3w1c1,k2x1,clamp,float32,seed=0"),
    ],
)
def test_a_finding_concerns_few_others(script: str, case: str) -> None:
    (finding,) = (one for one in FINDINGS if one.script == script)
    parsed = Case.parse(case)
    assert not finding.concerns(parsed.problem, parsed.inputs())


@needs_fork
def test_without_defects_an_installed_backend_runs_in_a_new_interpreter() -> None:
    backend = known.without_defects(registry.get_backend("mlx"))
    if not known._live("mlx"):
        pytest.skip("no defect of the installed version of MLX is known")
    (finding,) = (one for one in known._live("mlx") if one.script == "mlx_log_softmax")
    with contextlib.closing(checker.isolated_runner(backend, Limits())) as isolated:
        assert isolated._new
        outcome = isolated(Case.parse(finding.case), True)
        assert outcome.status == "unsupported"
        assert finding.script in outcome.message
        assert isolated(Case.parse("LogSoftMax.forward:n1h1w1c2,float32,seed=0"), True).status == "passed"
    changed = checker.isolated_runner(dataclasses.replace(backend, implementations={}), Limits())
    assert not changed._new, "a copy is another backend"


def test_strided_statistics_are_seen_in_memory() -> None:
    (finding,) = (one for one in FINDINGS if one.script == "torch_batch_norm_strided")
    case = dataclasses.replace(Case.parse(finding.case), layouts=())
    inputs = case.inputs()
    assert not finding.concerns(case.problem, inputs)
    strided = tuple(arranged(one, "nhwc-gap") if one.ndim == 1 else one for one in inputs)
    assert all(np.array_equal(one, other) for one, other in zip(inputs, strided, strict=True))
    assert finding.concerns(case.problem, strided)


def test_the_script_of_ci_names_backends_of_frameworks() -> None:
    script = ROOT / ".ci/frameworks"
    table = script.read_text("utf-8").partition("END'\n")[2].partition("END\n")[0]
    listed = [line.split()[0] for line in table.splitlines()]
    assert listed
    assert {*listed} <= BACKENDS
    unknown = subprocess.run(["bash", str(script), "no-such-framework"], capture_output=True, text=True, check=False)
    assert unknown.returncode != 0
