"""Variables of the environment: their former names, and the list of them."""

from __future__ import annotations

import re
import warnings

import pytest

import shared
from anymetal import environment
from anymetal.clang.device import launch_workers


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable is set, and no former name has been reported."""
    monkeypatch.setattr(environment, "_told", set())
    for name in ("ANYMETAL_LAUNCH_WORKERS", "MPSREF_LAUNCH_WORKERS"):
        monkeypatch.delenv(name, raising=False)


def test_a_former_name_is_read_and_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPSREF_LAUNCH_WORKERS", "3")
    with pytest.warns(FutureWarning, match="^MPSREF_LAUNCH_WORKERS is read in this version only: set ANYMETAL_LAUNCH_"):
        assert launch_workers() == (3, True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert launch_workers() == (3, True)


def test_the_name_of_today_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPSREF_LAUNCH_WORKERS", "3")
    monkeypatch.setenv("ANYMETAL_LAUNCH_WORKERS", "2")
    assert launch_workers() == (2, True)


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYMETAL_LAUNCH_WORKERS", "")
    assert environment.variable("ANYMETAL_LAUNCH_WORKERS") is None


def test_the_readme_has_all() -> None:
    """Those of the package and of the published kernels, not macros of the headers."""
    files = [path for folder in ("anymetal", "published") for path in (shared.ROOT / folder).rglob("*.py")]
    used = r"ANYMETAL_(?:[A-Z]+_(?:DIR|SECONDS|MEMORY|WORKERS)|CLANG|LIBDEVICE|COLLECTIONS)\b"
    named = {name for path in files for name in re.findall(used, path.read_text("utf-8"))}
    read = {name for path in files for name in re.findall(r'variable\("(\w+)"\)', path.read_text("utf-8"))}
    listed = set(re.findall(r"`(ANYMETAL_\w+)`", (shared.ROOT / "README.md").read_text("utf-8")))
    assert read <= named == listed
