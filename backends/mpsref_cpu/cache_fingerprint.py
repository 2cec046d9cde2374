"""A fingerprint of the source that compiled code depends on: its own file, and all files compiled into it.

numba's disk cache looks at the file of a kernel alone, and would keep its code when a function or constant that it uses
from another file has changed.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import mpsref

FOLDERS = {"mpsref_cpu": Path(__file__).parent, "mpsref": Path(mpsref.__file__).parent}

IMPORT = re.compile(r"^(?:from mpsref[\w.]* import (?:\([^)]*\)|.*)|import mpsref_cpu.*)$", re.MULTILINE)
"""A statement that may name such a file; to parse all of a module takes two milliseconds."""

CONSTANT = re.compile(r"\b[A-Z][A-Z0-9_]+\b")

NEVER_COMPILED_IN = {"mpsref_cpu.threads"}
"""Python that runs kernels; every family imports it."""


def fingerprint(module: str) -> str:
    """Return a text that changes with the source of the compiled functions of ``module``."""
    digest = hashlib.sha256()
    for name in sorted(_sources(module)):
        digest.update(f"{name}\n{_text(name)}\n".encode())
    return digest.hexdigest()


@cache
def _text(module: str) -> str:
    package, *path = module.split(".")
    file = FOLDERS[package].joinpath(*path)
    return (file / "__init__.py" if file.is_dir() else file.with_suffix(".py")).read_text("utf-8")


@cache
def _imports(module: str) -> frozenset[str]:
    return _named(ast.parse("\n".join(IMPORT.findall(_text(module)))).body)


def _named(statements: Iterable[ast.AST]) -> frozenset[str]:
    """Return the modules of this backend that are imported, and those of mpsref from which constants are taken."""
    found = set()
    for node in statements:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("mpsref_cpu.")}
        elif isinstance(node, ast.ImportFrom) and node.module == "mpsref_cpu":
            found |= {f"mpsref_cpu.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None and "." in node.module:
            package = node.module.split(".")[0]
            takes_constants = any(CONSTANT.fullmatch(alias.name) for alias in node.names)
            if package == "mpsref_cpu" or (package == "mpsref" and takes_constants):
                found.add(node.module)
    return frozenset(found) - NEVER_COMPILED_IN


@cache
def _sources(module: str) -> frozenset[str]:
    sources, left = {module}, [module]
    while left:
        for name in _imports(left.pop()) - sources:
            sources.add(name)
            if name.startswith("mpsref_cpu."):
                left.append(name)
    return frozenset(sources)
