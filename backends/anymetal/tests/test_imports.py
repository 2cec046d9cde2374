"""Imports follow the contracts in ``pyproject.toml``."""

import pytest
from importlinter.cli import lint_imports

import shared


def test_contracts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shared.ROOT)
    assert lint_imports(config_filename="pyproject.toml", no_cache=True) == 0
