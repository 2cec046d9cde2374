"""PyTorch as a backend: every operation agrees with the reference, but for defects of PyTorch that the check finds."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import mpsref
import mpsref_torch
from mpsref import Backend, registry
from mpsref.arguments.layouts import arranged
from mpsref.conformance import check, checker
from mpsref.conformance.case import Case, operation_named
from mpsref.conformance.checker import check_operation
from mpsref.conformance.runner import run_case
from mpsref.errors import UnsupportedError
from mpsref.operations import Operation

torch = pytest.importorskip("torch", reason="PyTorch is not installed (the extra `torch`)")

VERSION = str(torch.__version__).partition("+")[0]

INSTANCE = "InstanceNormalization.gradient"
BATCH = ("BatchNormalization.gradient", "BatchNormalization.statistics_gradient")


@pytest.mark.parametrize("operation", [*mpsref_torch.backend.implementations], ids=str)
def test_operation(operation: Operation) -> None:
    """On contiguous tensors every operation agrees, with parameters as users of PyTorch write them."""
    backend = replace(mpsref_torch.backend, layouts=("nchw",))
    cases = checker.random_cases(operation, ("float32",), 10, 0, backend.layouts, compiles_each_problem=True)
    outcomes = [run_case(case, backend) for case in cases]
    assert not [outcome.message for outcome in outcomes if outcome.status == "failed"]
    refused = operation.spec_type is mpsref.Dropout and operation.method != "gradient"  # PyTorch has other random bits
    assert refused or sum(outcome.status == "passed" for outcome in outcomes) > 3


@pytest.mark.parametrize(
    "name", ["InstanceNormalization.forward", "PoolingAverage.gradient", "Convolution.gradient_data"]
)
def test_channels_last_operation(name: str) -> None:
    (row,) = check_operation(operation_named(name), [replace(mpsref_torch.channels_last, distinct_problems=6)], 12)
    assert row.status == "passed", row.failures


@pytest.mark.parametrize("method", ["forward", "gradient_data", "gradient_weights"])
def test_a_convolution_that_may_end_the_process_is_refused_with_the_reason(method: str) -> None:
    case = Case.parse(f"Convolution.{method}:n1h32770w1c1,k3x1,s4096x1,co1,float32,seed=8")
    for backend in (mpsref_torch.backend, mpsref_torch.channels_last):
        outcome = run_case(case, backend)
        assert outcome.status == "unsupported"
        assert "may end the process" in outcome.message


HALF = """
    BatchNormalization.statistics Convolution.forward FullyConnected.gradient_weights GroupNormalization.gradient
    Neuron.gradient PoolingMax.gradient SoftMax.forward UpsamplingBilinear.forward
""".split()  # noqa: SIM905


@pytest.mark.usefixtures("unshrunk")
@pytest.mark.parametrize("name", HALF)
def test_float16_operation(name: str) -> None:
    """It agrees, but for a factor of 1.01 in each result."""

    def wrong(problem: Any, *inputs: Any, out: Any) -> None:
        mpsref_torch.half.implementations[operation_named(name)](problem, *inputs, out=out)
        for result in out if isinstance(out, tuple) else (out,):
            result *= result.dtype.type(1.01)

    backend = replace(mpsref_torch.half, layouts=("nchw",), distinct_problems=6)
    planted = replace(backend, implementations={operation_named(name): wrong})
    row, failed = check_operation(operation_named(name), [backend, planted], 12)
    assert row.status == "passed", row.failures[-1:] or row.reason
    assert failed.status == "failed"


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("PoolingL2Norm.forward:n1h2w2c1,k2x2,float16,seed=0", "squares of pixels"),
        ("Loss.forward:n1h1w1c1,meansquarederror,float16,seed=0", "cancel"),
        ("Reduce.forward:n1h1w1000c1,sum,row,float16,seed=0", None),
        ("Reduce.forward:n1h1w2000c1,sum,row,float16,exact,seed=0", "65504"),
        ("PoolingMax.gradient:n1h40w40c1,k33x33,float16,seed=0", "1093 roundings"),
    ],
)
def test_what_has_no_bound_in_float16_is_not_compared(case: str, reason: str | None) -> None:
    outcome = run_case(Case.parse(case), mpsref_torch.half)
    assert outcome.status == ("unsupported" if reason else "passed"), outcome.message
    assert (reason or "") in outcome.message


def test_training_of_batch_normalization_is_refused_and_the_row_says_how_much_ran() -> None:
    (row,) = check_operation(operation_named(BATCH[0]), [replace(mpsref_torch.backend, layouts=("nchw",))], 20)
    assert row.status in ("partial", "passed")
    assert "computes mean, variance and both sums itself" in row.reason
    assert row.shown_cases == f"{row.cases} of {row.cases + row.refused}"
    assert row.cases
    assert row.refused


# --- defects of PyTorch that a check finds ----------------------------------------------------------------------------


@pytest.mark.skipif(VERSION != "2.13.0", reason="seen in PyTorch 2.13.0")
def test_instance_norm_of_one_channels_last_image_is_wrong() -> None:
    """The default check tries a case that shows it."""
    backend = mpsref_torch.backend
    drawn = checker.random_cases(operation_named(INSTANCE), backend.dtypes, checker.CASES, 0, backend.layouts)
    wrong = next(case for case in drawn if run_case(case, backend).status == "failed")
    assert not wrong.layouts or wrong.layouts[0] != "nchw"
    assert run_case(replace(wrong, layouts=("nchw",) * len(wrong.problem.input_shapes)), backend).status == "passed"


@pytest.mark.skipif(VERSION != "2.13.0", reason="seen in PyTorch 2.13.0")
@pytest.mark.parametrize("name", BATCH)
def test_batch_norm_reads_strided_statistics_as_if_they_were_contiguous(name: str) -> None:
    """In evaluation mode, backward of a channels-last image, where mean and variance are every second element."""
    case = Case.parse(f"{name}:n2h3w3c4,eps0.001,float32,memory=nhwc+nhwc+nhwc-gap+nhwc-gap,seed=3")
    assert run_case(case, mpsref_torch.channels_last).status == "failed"
    for other in ((), ("nchw", "nchw", *case.layouts[2:])):
        assert run_case(replace(case, layouts=other), mpsref_torch.channels_last).status == "passed"


def test_channels_last_tensors_are_channels_last() -> None:
    seen: list[Any] = []

    def look(torch: Any, problem: Any, x: Any, out: Any) -> None:
        seen.append(torch.tensor(x))
        out[...] = x

    key = operation_named("Reshape.forward")
    for backend, is_channels_last in ((mpsref_torch.backend, False), (mpsref_torch.channels_last, True)):
        run = mpsref_torch.run.Torch()
        spec = mpsref.Reshape((4, 3, 5))
        problem = spec.problems["forward"](spec, (2, 4, 3, 5))
        looking = replace(backend, implementations={key: lambda *a, out, run=run: look(run, *a, out=out)})
        run_case(Case(problem, layouts=backend.layouts[:1]), looking)
        tensor = seen.pop()
        assert tensor.shape == (2, 5, 4, 3)
        assert tensor.is_contiguous(memory_format=torch.channels_last) == is_channels_last
        assert tensor.is_contiguous() != is_channels_last


@pytest.mark.parametrize("layout", ["nchw", "nhwc", "nchw-gap", "nchw-offset", "nchw-expanded", "nchw-odd"])
def test_a_device_gets_the_memory_of_an_array(layout: str) -> None:
    """A slice has an offset in it, as in PyTorch, and no copy packs gaps and repeated elements."""
    array = arranged(np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4), layout)
    tensor = mpsref_torch.run.Torch().tensor(array)
    assert np.array_equal(tensor.permute(0, 2, 3, 1).numpy(), array)
    assert tensor.storage_offset() == (layout == "nchw-offset")
    there = mpsref_torch.run.Torch("meta").tensor(array)
    assert (there.stride(), there.storage_offset()) == (tensor.stride(), tensor.storage_offset())
    assert [4 * stride for stride in there.permute(0, 2, 3, 1).stride()] == [*array.strides]


# --- as a backend -----------------------------------------------------------------------------------------------------


def test_arrays_of_any_memory_may_be_passed() -> None:
    x = np.arange(96, dtype=np.float32).reshape(2, 4, 4, 3)
    pool = mpsref.PoolingAverage(3, 2, edge_mode="clamp")
    expected = pool.forward(x)
    read_only = x.copy()
    read_only.flags.writeable = False
    for given in (x, read_only, x.astype(">f4"), np.flip(np.flip(x, 1).copy(), 1), np.asfortranarray(x)):
        np.testing.assert_allclose(pool.forward(given, backend=mpsref_torch.backend), expected, rtol=1e-6)


def test_refusals_of_pytorch_are_unsupported() -> None:
    x = np.ones((2, 1, 1, 3), np.float32)
    with pytest.raises(UnsupportedError, match="Expected more than 1 spatial element"):
        mpsref.InstanceNormalization().forward(x, backend=mpsref_torch.backend)


def test_errors_of_pytorch_are_failures() -> None:
    def broken(torch: Any, problem: Any, x: Any, out: Any) -> None:
        out[...] = torch.run(lambda x: x.reshape(7, 7), x)

    key, run = operation_named("SoftMax.forward"), mpsref_torch.run.Torch("cpu")
    backend = Backend("broken", {key: lambda *inputs, out: broken(run, *inputs, out=out)})
    outcome = run_case(Case.parse("SoftMax.forward:n1h2w2c3,float32,seed=1"), backend)
    assert outcome.status == "failed"
    assert "invalid for input of size" in outcome.message


def test_a_check_of_all_backends_leaves_frameworks_out(monkeypatch: pytest.MonkeyPatch) -> None:
    named = replace(mpsref_torch.backend, name="torch under test")
    monkeypatch.setitem(registry._registered, named.name, named)
    report = check(operations=[operation_named("Reshape.forward")], number=1)
    assert named.name not in {row.backend for row in report.rows}
    assert named.name in registry.named_only()
    (row,) = check(named.name, [operation_named("Reshape.forward")], number=1).rows
    assert row.status == "passed"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is an NVIDIA GPU")
def test_a_missing_device_is_named() -> None:
    assert "no device 'cuda' on this machine" in str(mpsref_torch.cuda.unavailable())


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, ("g++", "clang++", "c++"))), reason="there is no C++ compiler")
@pytest.mark.filterwarnings("ignore")  # of PyTorch about itself
def test_compiled_functions_agree_on_few_problems_with_many_data() -> None:
    few = replace(mpsref_torch.compiled, distinct_problems=1)
    (row,) = check_operation(operation_named("SoftMax.forward"), [few], 6)
    assert row.status == "passed", row.failures
    assert row.cases == 1 + 6


def test_equal_closures_are_compiled_once() -> None:
    def scaled(factor: float) -> Any:
        return lambda x: x * factor

    identity = mpsref_torch.run.identity
    assert identity(scaled(2.0)) == identity(scaled(2.0))
    assert identity(scaled(2.0)) != identity(scaled(3.0))
    assert identity(lambda x: scaled(2.0)(x)) != identity(scaled(2.0))
    by_default = [lambda x, k=k: k * x for k in (0, 1)]
    assert identity(by_default[0]) != identity(by_default[1])


def test_slopes_of_relu_at_0_differ() -> None:
    """PyTorch's slope is that of the negative side; Apple's is 1."""
    zero, x = torch.zeros(1, dtype=torch.float64, requires_grad=True), np.zeros((1, 1, 1, 1))
    torch.nn.functional.leaky_relu(zero, 0.25).backward()
    assert zero.grad.item() == 0.25
    assert mpsref.Neuron("relu", a=0.25).gradient(np.ones_like(x), x).item() == 1.0
