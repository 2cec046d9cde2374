"""Imports follow the layers of the project, without cycles: the contracts are in ``pyproject.toml``."""

from importlinter.cli import lint_imports


def test_contracts() -> None:
    assert lint_imports(cache_dir=None) == 0
