"""The lists in CONTRIBUTING.md are those of the source: the files of an operator, and the tables with a row for it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import mpsref

ROOT = Path(mpsref.__file__).parents[1]
GUIDE = ROOT / "CONTRIBUTING.md"

pytestmark = pytest.mark.skipif(not GUIDE.is_file(), reason="CONTRIBUTING.md is not beside an installed package")

PLAIN = ("backends/mpsref_metal/simple.py", "backends/mpsref_metal/msl/simple/")
USES = (
    "backends/anymetal/", "backends/mpsref_metal/published.py", "backends/mpsref_torch/metal_kernels.py",
    "mpsref/bugs/", "mpsref/lessons/", "mpsref/mps/matrix_kernels.py", "mpsref/mpsgraph/",
    *PLAIN,
)  # fmt: skip
"""Uses of an operator, not tables of operators; a few operators also have a plain kernel."""


def listed(head: str) -> list[str]:
    """The paths in the first column of the table that begins with a head."""
    table = GUIDE.read_text("utf-8").split(f"| {head} |")[1].split("\n\n")[0]
    return re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)


def names(module: ast.AST) -> Iterator[str]:
    """The kernels and functions that a module names, also in the keys of its tables."""
    for node in ast.walk(module):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield f".{node.attr}"
        elif isinstance(node, ast.Dict):
            texts = (key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str))
            yield from (re.split("[.:]", text)[0] for text in texts)


def test_files_of_softmax() -> None:
    found = {
        name
        for folder in ("mpsref", "backends", "tests", "docs")
        for path in (ROOT / folder).rglob("*softmax.*")
        if path.stem.removeprefix("test_") == "softmax" and path.suffix in (".py", ".metal", ".toml", ".md")
        if not (name := path.relative_to(ROOT).as_posix()).startswith(PLAIN)
    }
    assert sorted(listed("softmax")) == sorted(found)
    assert len(found) == 9


def test_rows_of_softmax() -> None:
    found = set()
    for folder in ("mpsref", "backends", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            if path.name.startswith("test_"):  # it has examples, not tables of all kernels
                continue
            text = path.read_text("utf-8")
            named = set(names(ast.parse(text))) if "softmax" in text.lower() else set()
            if path.stem != "softmax" and named & {"SoftMax", ".SoftMax", ".softmax"}:
                found.add(path.relative_to(ROOT).as_posix())
    assert sorted(listed("a row for softmax in")) == sorted(one for one in found if not one.startswith(USES))
