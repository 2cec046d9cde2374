"""Fixtures of several files: the backends that can run here, an empty cache, short checks. Profiles of hypothesis."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator

import pytest
from hypothesis import settings

import mpsref
import tests
from anymetal_fixtures import empty_cache, interruptible, rare_collections
from mpsref.conformance import checker
from mpsref.conformance.case import Case

__all__ = ["empty_cache", "interruptible", "rare_collections"]

settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")

os.environ.pop("COLUMNS", None)  # the width of the tables of commands

AVAILABLE = [
    info.name for info in mpsref.backends() if info.available and info.name not in mpsref.registry.named_only()
]


def pytest_configure(config: pytest.Config) -> None:
    """See :func:`tests.examples`."""
    tests.SLOW[0] = config.option.markexpr != "not slow"


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for examples of docstrings in packages alone, not in tests."""
    return [one for one in (yield) if type(one) is pytest.Module]


@pytest.fixture(scope="session", autouse=True)
def known_failures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep failures of this run out of the folder of the user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MPSREF_KNOWN", str(tmp_path_factory.mktemp("known")))
        yield


@pytest.fixture(scope="session", params=AVAILABLE)
def backend(request: pytest.FixtureRequest) -> str:
    """The name of each backend that can run here, the reference among them."""
    name: str = request.param
    return name


SLOW_WHERE_COMPILED = [
    pytest.param(name, marks=[] if name.startswith("reference") else [pytest.mark.slow]) for name in AVAILABLE
]


@pytest.fixture(scope="session", params=SLOW_WHERE_COMPILED)
def seldom_compiled(request: pytest.FixtureRequest) -> str:
    """As ``backend``, where other tests compare the same operations, or most of them: slow where each is compiled."""
    name: str = request.param
    return name


@pytest.fixture(scope="session", params=[name for name in AVAILABLE if not name.startswith("metal")])
def ieee_backend(request: pytest.FixtureRequest) -> str:
    """The name of each backend whose NaN and infinities follow IEEE 754; fast math of Metal leaves them open."""
    name: str = request.param
    return name


def few_of(layers: Iterable[tuple[str, Case]]) -> list[tuple[str, Case]]:
    """Return two layers of an operation and a worked example; a third layer where there is none."""
    found = list(layers)
    examples = [one for one in found if one[0].startswith(checker.WORKED)]
    return [*found[:2], *(examples[:1] or found[2:3])]


@pytest.fixture
def few_layers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check two layers and a worked example of each operation, except in tests with processes, which do not see it."""
    if "all_layers" not in request.fixturenames:
        layers = checker.layer_cases
        monkeypatch.setattr(checker, "layer_cases", lambda operation: few_of(layers(operation)))


@pytest.fixture
def all_layers() -> None:
    """Check all layers, in tests with processes."""


@pytest.fixture
def unshrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report failures as they were found, without a search for smaller ones, except in tests with processes."""
    monkeypatch.setattr(checker, "SHRINK_SECONDS", -1.0)
