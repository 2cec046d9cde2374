"""Imports follow the contracts in ``pyproject.toml``, and nothing is named after another project."""

import pytest
from importlinter.cli import lint_imports

import shared


def test_contracts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shared.ROOT)
    assert lint_imports(config_filename="pyproject.toml", no_cache=True) == 0


def test_nothing_names_mpsref() -> None:
    """Except the former names of variables, which this version still reads."""
    files = [path for path in (shared.ROOT / "anymetal").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    named = {path.name for path in files if "mpsref" in path.read_text("utf-8").lower()}
    assert len(files) > 100
    assert named <= {"environment.py"}
