"""Imports follow the layers of the project, without cycles: the contracts are in ``pyproject.toml``."""

from __future__ import annotations

import re
from pathlib import Path

from importlinter.cli import lint_imports

ROOT = Path(__file__).parents[2]
BACKENDS = sorted(file.parent.name for file in (ROOT / "backends").glob("*/__init__.py"))


def contracts() -> str:
    """The contracts, with the names of all packages in the place of "backends"."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    text = text[text.index("[tool.importlinter]") :]
    text = text.replace('"backends"', ", ".join(f'"{name}"' for name in BACKENDS))
    return re.sub(r'"backends \|', f'"{" | ".join(BACKENDS)} |', text)


def test_contracts(tmp_path: Path) -> None:
    assert len(BACKENDS) >= 9
    (tmp_path / "pyproject.toml").write_text(contracts(), "utf-8")
    assert lint_imports(config_filename=str(tmp_path / "pyproject.toml"), cache_dir=None, no_cache=True) == 0
