"""The script that measures how many small mistakes the tests notice."""

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "mutation_score.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("mutation_score", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutation_score"] = module  # dataclasses look up their module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["mutation_score"]


PYTHON = '''
def f(x: int | None = 3) -> float:
    """1 + 1 in a docstring."""
    if not x or x <= 2:  # 1 + 1 in a comment
        raise ValueError(f"{x + 1} is 2 + 2")
    total = max(x - 1, 0.5) * 2
    total += 1 if x is not None else -x
    return total
'''

MSL = """
#include <metal_stdlib>
// a + b
kernel void f(device const float* x [[buffer(0)]], device float* y, constant uint& n [[buffer(3)]]) {
    /* 1 < 2
       3 */ float4 z = as_type<float4>(x[0] + 1.5f);
    if (i < n && true) y[i] = min(x[i] * 2.0f, 1e-3f) - z.x;
}
"""


def texts(mutations):
    return [(one.line, one.before, one.after) for one in mutations]


def test_mutations_of_python(script):
    found = sorted(texts(script.python_mutations("f.py", PYTHON)))
    assert found == [
        (2, "3", "4"),
        (4, "2", "3"), (4, "<=", "<"), (4, "not", ""), (4, "or", "and"), (5, "raise", "if 0: raise"),
        (6, "*", "+"), (6, "-", "+"), (6, "0.5", "0.25"), (6, "1", "2"), (6, "2", "3"), (6, "max", "min"),
        (7, "+=", "-="), (7, "1", "2"), (7, "is not", "is"),
    ]  # fmt: skip


def test_mutations_of_msl(script):
    found = sorted(texts(script.msl_mutations("f.metal", MSL)))
    assert found == [
        (6, "+", "-"), (6, "0", "1"), (6, "1.5f", "0.75f"),
        (7, "&&", "||"), (7, "*", "+"), (7, "-", "+"), (7, "1e-3f", "0.0005f"), (7, "2.0f", "3.0f"), (7, "<", "<="),
        (7, "min", "max"), (7, "true", "false"),
    ]  # fmt: skip


@pytest.mark.parametrize(("kind", "source"), [("python_mutations", PYTHON), ("msl_mutations", MSL)])
def test_a_mutation_changes_one_place(script, kind, source):
    for one in getattr(script, kind)("f", source):
        changed = one.apply(source)
        lines = list(zip(source.splitlines(), changed.splitlines(), strict=True))
        ((before, after),) = [pair for pair in lines if pair[0] != pair[1]]
        assert before.strip() == one.text
        assert after == before[: one.column] + one.after + before[one.column + len(one.before) :]


@pytest.mark.slow
def test_every_mutant_of_python_is_a_program(script):
    for one in script.sample(60, 3):
        if one.file.endswith(".py"):
            compile(one.apply((script.ROOT / one.file).read_text("utf-8")), one.file, "exec")


@pytest.mark.slow
def test_the_sample_has_equal_shares_and_depends_on_the_seed_alone(script):
    first, again, other = script.sample(80, 7), script.sample(80, 7), script.sample(80, 8)
    assert first == again != other
    assert {name: sum(one.group == name for one in first) for name in script.GROUPS} == dict.fromkeys(script.GROUPS, 10)


@pytest.mark.parametrize(
    ("file", "operation", "backend", "test"),
    [
        ("mpsref/kernels/softmax.py", "SoftMax.gradient", "cpu", "tests/kernels/test_softmax.py"),
        ("mpsref/tables.py", None, "cpu", "tests/kernels/test_tables.py"),
        ("backends/mpsref_cpu/training/dropout.py", "Dropout.mask", "cpu", "tests/kernels/test_dropout.py"),
        ("backends/mpsref_metal/softmax.py", "SoftMax.forward", "metal:clang", "tests/kernels/test_softmax.py"),
        ("backends/mpsref_metal/msl/loss.metal", "Loss.gradient", "metal:clang", "tests/kernels/test_loss.py"),
        ("mpsref/arguments/arrays.py", None, "cpu", "tests/arguments/test_arrays.py"),
        ("mpsref/mps/pooling.py", None, "cpu", "tests/mps/test_pooling.py"),
    ],
)
def test_the_tests_of_a_file(script, file, operation, backend, test):
    operations, backends = script.targets(script.ROOT / file)
    assert backends == [backend]
    assert test in script.test_files(script.ROOT / file)
    if operation is not None:
        assert operation in map(str, operations)
        assert 0 < len(operations) <= 2 * script.OPERATIONS


@pytest.mark.slow
def test_every_file_has_tests(script):
    for file in sorted({one.file for one in script.sample(10_000, 1)}):
        assert script.targets(script.ROOT / file)[0] or script.test_files(script.ROOT / file), file


def test_equivalent_mutants_have_reasons(script):
    for (file, text, before, after), reason in script._reasons().items():
        assert reason
        assert text in (script.ROOT / file).read_text("utf-8")
        assert before in text != after
