"""Development tasks: ``nox -l`` lists them, ``nox -s lint`` runs one.

The tasks run in the current environment (``python -m pip install -e ".[dev,docs]"``). Arguments after ``--`` are passed
on: ``nox -s test -- tests/kernels/test_softmax.py -n0``.
"""

from __future__ import annotations

import sys

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types", "test-quick"]

QUICK = [
    "mpsref/geometry.py",
    "mpsref/padding.py",
    "mpsref/viz",
    "tests/kernels/test_geometry.py",
    "tests/kernels/test_tables.py",
    "tests/kernels/test_padding.py",
    "tests/arguments/test_parameters.py",
    "tests/backends/test_registry.py",
    "tests/mps/test_names.py",
    "tests/contracts/test_states.py",
    "tests/conformance/test_common_mode.py",
    "tests/kernels/test_pooling_average.py",
    "tests/kernels/test_softmax.py",
    "tests/tools/test_explain.py",
    "tests/tools/test_readme.py",
    "tests/tools/test_imports.py",
    "tests/tools/test_cli.py::test_the_module_is_the_command",
    "tests/backends/test_cpu_threads.py::test_many_threads_at_once",
]
"""A cross-section of the layers that runs in less than a minute on two cores."""

ANYMETAL = "backends/anymetal"
ANYMETAL_QUICK = [
    "tests/test_disk_cache.py",
    "tests/test_environment.py",
    "tests/test_imports.py",
    "tests/test_readme.py",
]
PAGES = (("docs", "docs/_build/html"), (f"{ANYMETAL}/docs", "docs/_build/html/anymetal"))
"""Sources of documentation, and where their pages are: those of mpsref link to those of anymetal, and the reverse."""


def python(session: nox.Session, *arguments: str) -> None:
    """Run a module of the current environment."""
    session.run(sys.executable, "-m", *arguments, external=True)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format (ruff)."""
    python(session, "ruff", "check", ".", *session.posargs)
    python(session, "ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check types (mypy, strict)."""
    python(session, "mypy", *session.posargs)


@nox.session(name="test-quick")
def test_quick(session: nox.Session) -> None:
    """Run a cross-section of the tests, in less than a minute."""
    python(session, "pytest", "-q", *QUICK, *session.posargs)
    session.chdir(ANYMETAL)
    python(session, "pytest", "-q", *ANYMETAL_QUICK, *session.posargs)


@nox.session(name="test-kernel")
def test_kernel(session: nox.Session) -> None:
    """Write what is generated for a kernel and run its tests: ``nox -s test-kernel -- SoftMax``."""
    python(session, "tests.tools.kernel", *session.posargs)


@nox.session
def test(session: nox.Session) -> None:
    """Run all tests of mpsref on all cores, those marked slow included."""
    python(session, "pytest", "-m", "", *session.posargs)


@nox.session(name="test-anymetal")
def test_anymetal(session: nox.Session) -> None:
    """Run all tests of anymetal, in its folder."""
    session.chdir(ANYMETAL)
    python(session, "pytest", "-m", "", *session.posargs)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Call mpsref with random input for a minute: ``nox -s fuzz -- --seconds 600 --seed 7``."""
    session.run(sys.executable, "scripts/fuzz.py", "run", *session.posargs, external=True)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation of mpsref and of anymetal, and execute the pages; a warning is an error."""
    for source, built in PAGES:
        python(session, "sphinx", "-q", "-W", "--keep-going", "-j", "auto", source, built, *session.posargs)


@nox.session
def links(session: nox.Session) -> None:
    """Look for dead links in the documentation; needs the network."""
    for source, _ in PAGES:
        built = f"{source}/_build/links"
        python(session, "sphinx", "-q", "-b", "linkcheck", "-D", "nb_execution_mode=off", source, built)


@nox.session(name="bench-quick")
def bench_quick(session: nox.Session) -> None:
    """Time one layer of four families on the cpu backend."""
    layers = ["alexnet.pool1", "alexnet.conv1", "resnet50.bn1", "alexnet.relu1"]
    named = [word for layer in layers for word in ("--layer", layer)]
    command = [sys.executable, "-c", "from mpsref.cli import main; main()", "bench", "--rounds", "3"]
    session.run(*command, *named, *session.posargs, external=True)
