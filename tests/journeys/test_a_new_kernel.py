"""A newcomer adds a kernel that does not exist, by the page: no other file is written by hand, and its tests pass.

The kernel is ``y = ln(cosh(x))``, in a copy of the checkout.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.kernel import GENERATED

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "adding_a_kernel.md"

pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the files of the checkout are not known here")

FILES = {
    "mpsref/kernels/log_cosh.py": '''
"""The logarithm of the hyperbolic cosine, ``y = ln(cosh(x))``, and its gradient, ``dx = g tanh(x)`` [math]."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.one_image import ReadsPixels
from mpsref.kernels.reference import ErrorBound, functions, gamma
from mpsref.operations import ImageProblem, operation


class LogCosh(ReadsPixels):
    """The logarithm of the hyperbolic cosine of each element.

    Examples
    --------
    >>> LogCosh().forward(np.array([[[[0.0, 100.0]]]])).round(3).ravel().tolist()
    [0.0, 99.307]
    """


def bound(problem: ImageProblem, x: Array) -> ErrorBound:
    """gamma(E + L + 4) * (|x| + 1): an exponential, a logarithm and sums of |x| and ln 2."""
    return ErrorBound(gamma(functions().exp + functions().log + 4) * (abs(x) + 1))


@operation(LogCosh, method="forward", inputs={"x": "n h w c"}, results={"y": "n h w c"}, bound=bound)
def forward(problem: ImageProblem, x: Array) -> Array:
    """y = ln(e**x + e**-x) - ln 2."""
    return np.asarray(np.logaddexp(x, -x) - np.log(2))


def gradient_bound(problem: ImageProblem, g: Array, x: Array) -> ErrorBound:
    """gamma(T + 1) * |dx|, T that of the hyperbolic tangent."""
    return ErrorBound(gamma(functions().tanh + 1) * abs(gradient(problem, g, x)))


@operation(
    LogCosh,
    method="gradient",
    inputs={"g": "n h w c", "x": "n h w c"},
    results={"dx": "n h w c"},
    bound=gradient_bound,
)
def gradient(problem: ImageProblem, g: Array, x: Array) -> Array:
    """dx = g tanh(x)."""
    return np.asarray(g * np.tanh(x))
''',
    "backends/mpsref_cpu/activation/log_cosh.py": '''
"""The logarithm of the hyperbolic cosine."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.log_cosh import LogCosh
from mpsref.operations import ImageProblem
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.compiling import compiled
from mpsref_cpu.threads import for_rows

LN2 = np.float32(np.log(2))


def forward(problem: ImageProblem, x: Array, out: Array) -> None:
    """Fill y from x."""
    for_rows(_forward, x.size, x, out)


def gradient(problem: ImageProblem, g: Array, x: Array, out: Array) -> None:
    """Fill dx from g and x."""
    for_rows(_gradient, x.size, g, x, out)


@compiled
def _forward(begin, end, x, y):
    for i in range(begin, end):
        size = np.abs(x[i])
        y[i] = size + np.log1p(np.exp(-2 * size)) - LN2


@compiled
def _gradient(begin, end, g, x, dx):
    for i in range(begin, end):
        dx[i] = g[i] * np.tanh(x[i])


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {(LogCosh, "forward"): forward, (LogCosh, "gradient"): gradient}
''',
    "backends/mpsref_metal/log_cosh.py": '''
"""The logarithm of the hyperbolic cosine through ``msl/log_cosh.metal``."""

from __future__ import annotations

from mpsref.arguments.arrays import Array
from mpsref.kernels.log_cosh import LogCosh
from mpsref.operations import ImageProblem
from mpsref_metal.launch import Launcher


def run(launch: Launcher, problem: ImageProblem, *images: Array, out: Array) -> None:
    """Run the function of the method."""
    launch(("log_cosh",), problem.method, images, [], out, 1)


IMPLEMENTATIONS = {(LogCosh, "forward"): run, (LogCosh, "gradient"): run}
''',
    "backends/mpsref_metal/msl/log_cosh.metal": """
// The logarithm of the hyperbolic cosine, and its gradient.

kernel void forward(device const Storage* x [[buffer(0)]],
                    constant Shapes& shapes [[buffer(1)]],
                    device Values* y [[buffer(2)]],
                    uint id [[thread_position_in_grid]]) {
    if (id < shapes.count) {
        Values size = abs(Values(x[id]));
        y[id] = size + log(1.0f + exp(-2.0f * size)) - 0.693147181f;
    }
}

kernel void gradient(device const Gradient* g [[buffer(0)]],
                     device const Storage* x [[buffer(1)]],
                     constant Shapes& shapes [[buffer(2)]],
                     device Values* dx [[buffer(3)]],
                     uint id [[thread_position_in_grid]]) {
    if (id < shapes.count) {
        dx[id] = Values(g[id]) * tanh(Values(x[id]));
    }
}
""",
    "mpsref/conformance/families/log_cosh.py": '''
"""Tests of the logarithm of the hyperbolic cosine."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from mpsref.conformance.family import Family, KernelTests
from mpsref.conformance.mutants import MutantTable, of_result
from mpsref.conformance.properties import one_image_at_a_time, repeatable
from mpsref.kernels import LogCosh
from mpsref.registry import Operation, OperationKey, Problem


def problems(method: str) -> st.SearchStrategy[Problem]:
    """Draw images."""
    shapes = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 5), st.integers(1, 9))
    return st.builds(LogCosh.problems[method], st.just(LogCosh()), shapes)


MUTANTS: dict[OperationKey, MutantTable] = {
    Operation(LogCosh, "forward"): {"ln 2 is left out": of_result(lambda y, *_: y + np.log(2))},
    Operation(LogCosh, "gradient"): {"the slope is 1": of_result(lambda dx, problem, g, x: g)},
}

FAMILY = Family(
    "log_cosh",
    kernels={LogCosh: KernelTests(problems, dict.fromkeys(LogCosh.problems, (repeatable, one_image_at_a_time)))},
    mutants=MUTANTS,
)
''',
    "mpsref/conformance/layers/log_cosh.toml": """
layers = [
  {name = "robust_net.loss", kernel = "LogCosh", source_shape = [8, 64, 64, 8]},
]

[networks]
robust_net = "A network with a robust loss (no published network)"
""",
    "tests/kernels/test_log_cosh.py": '''
"""The logarithm of the hyperbolic cosine: numbers."""

import numpy as np
from mpsref import LogCosh


def test_large_and_small_numbers(backend: str) -> None:
    x = np.array([0, 0.5, -1, 50], np.float32).reshape(1, 1, 1, 4)
    y = LogCosh().forward(x, backend=backend)
    np.testing.assert_allclose(y, np.log(np.cosh(x.astype(float))), rtol=1e-5, atol=1e-6)
''',
    "docs/log_cosh.md": """
# Logarithm of the hyperbolic cosine

`mpsref.LogCosh().forward(x)` is `ln(cosh(x))`, its gradient `g tanh(x)`.

## API reference

```{reference}
mpsref.kernels.log_cosh
```
""",
}
"""What the newcomer writes; MPS has no class for it, and no framework one function."""

ROWS = {
    "mpsref/conformance/worked.py": (
        "    # --- windows ---",
        '    "LogCosh.forward:n1h1w2c1": _of([log((exp(y) + exp(-y)) / 2) for y in (1, 2)]),\n'
        '    "LogCosh.gradient:n1h1w2c1": _of([g * (exp(g) - exp(-g)) / (exp(g) + exp(-g)) for g in (1, 2)]),\n',
    ),
    "docs/index.md": ("softmax\n", "log_cosh\n"),
}
"""By the file, a line of it, and what is put before that line."""


def paths(text: str, begin: str, end: str) -> set[str]:
    """Return the first columns of the tables between two texts."""
    return set(re.findall(r"^\| `([^`]+)` \|", text.split(begin, 1)[1].split(end, 1)[0], re.MULTILINE))


def test_the_page_names_the_files() -> None:
    text = PAGE.read_text("utf-8")
    named = {path.replace("softmax", "log_cosh") for path in paths(text, "# Adding", "## The definition")}
    assert named == {*FILES, "mpsref/mps/log_cosh.py", "mpsref/conformance/worked.py"}
    assert paths(text, "## What is generated", "## A new type") == {*GENERATED}
    of_type = paths(text, "## A new type", "git")
    assert of_type
    assert all("softsign" in (ROOT / path).read_text("utf-8").lower() for path in of_type)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    """Return the contents of all files of a checkout."""
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    made = re.compile(r"(^|/)(__pycache__|\.pytest_cache|\.hypothesis)/")
    return {name: path.read_bytes() for name, path in found.items() if not made.search(name)}


@pytest.mark.slow
def test_a_kernel_from_nothing(checkout: Path) -> None:
    before = contents(checkout)
    for name, text in FILES.items():
        (checkout / name).write_text(text.lstrip("\n"), "utf-8")
    for name, (line, row) in ROWS.items():
        text = (checkout / name).read_text("utf-8")
        (checkout / name).write_text(text.replace(line, row + line, 1), "utf-8")
    path = os.pathsep.join(str(checkout / part) for part in ("", "backends", "backends/anymetal"))
    command = [sys.executable, "-m", "tests.tools.kernel", "LogCosh", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        command, cwd=checkout, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, timeout=1200
    )
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    assert int(re.findall(r"(\d+) passed", ran.stdout)[-1]) > 100
    after = contents(checkout)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed - {*GENERATED} == {*FILES, *ROWS}
    assert changed & {*GENERATED} >= {"mpsref/__init__.pyi", "tests/kernels/test_error_bounds.json"}
    assert before.keys() <= after.keys()
