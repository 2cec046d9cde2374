"""A kernel alone: what is generated for it is written, then its tests run.

``python -m tests.tools.kernel SoftMax`` writes the stubs, error bounds, legal values, and the rows of planted mistakes
on their page, then runs the tests of the kernel: those of its own file, and those that all kernels share. Words after
the name are arguments of pytest.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from mpsref.arguments.text import near
from mpsref.operations import operations

ROOT = Path(__file__).parents[2]

SHARED = (
    "tests/contracts/test_operations.py",
    "tests/contracts/test_derivatives.py",
    "tests/contracts/test_legal_values.py::test_kernels",
    "tests/kernels/test_error_bounds.py",
    "tests/kernels/test_bounds_are_reached.py",
    "tests/conformance/test_mutants.py",
    "tests/conformance/test_common_mode.py",
    "tests/tools/test_stubs.py",
    "tests/tools/test_docs.py",
)
"""The tests that every kernel has."""

ALWAYS = ("test_kernels", "test_the_page", "test_every", "stub", "test_docs")
"""Words of tests that are about all kernels at once, a new one among them."""

GENERATORS = (
    ("tests.tools.stubs",),
    ("tests.kernels.test_error_bounds", "{}"),
    ("tests.subjects.operations",),
    ("tests.contracts.test_legal_values",),
    ("tests.conformance.test_common_mode", "write"),
)
"""The modules that write what is generated; {} stands for the name of the kernel."""

GENERATED = (
    "mpsref/__init__.pyi",
    "mpsref/kernels/__init__.pyi",
    "tests/kernels/test_error_bounds.json",
    "tests/subjects/typical.txt",
    "tests/subjects/legal_values.txt",
    "docs/planted_defects.md",
)
"""The files that they write."""


def generate(name: str) -> None:
    """Write what is generated, each in a process of its own, which reads the stubs that were written before."""
    for module, *arguments in GENERATORS:
        words = [argument.format(name) for argument in arguments]
        subprocess.run([sys.executable, "-m", module, *words], cwd=ROOT, check=True)


def tests_of(name: str) -> list[str]:
    """Return the arguments of pytest that select the tests of a kernel."""
    module = {one.spec_type.__name__: one.spec_type.__module__ for one in operations()}
    if name not in module:
        raise SystemExit(f"no kernel is called {name!r}{near(name, module)}; `mpsref kernels` lists all")
    family = module[name].rpartition(".")[2]
    own = f"tests/kernels/test_{family}.py"
    words = " or ".join((name, f"test_{family}.py", *ALWAYS))  # also of kernels whose names contain this one
    return [*([own] if (ROOT / own).exists() else []), *SHARED, "-k", words]


if __name__ == "__main__":
    kernel, *others = sys.argv[1:] or [""]
    selected = tests_of(kernel)
    generate(kernel)
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-n0", "-q", *selected, *others], cwd=ROOT))
