"""What the compiled code of a file depends on: its text, and that of all files whose functions may be compiled into it.

numba's disk cache looks at the file of a function alone. A change of a function that is compiled into another file's
kernels, or of a constant, would leave these as they were.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

import mpsref

__all__ = ["fingerprint"]

FOLDERS = {"mpsref_cpu": Path(__file__).parent, "mpsref": Path(mpsref.__file__).parent}

IMPORT = re.compile(r"^from ((mpsref_cpu|mpsref)\.[\w.]+) import (\([^)]*\)|.*)", re.MULTILINE)
CONSTANT = re.compile(r"\b[A-Z][A-Z0-9_]+\b")

NEVER_COMPILED_IN = {"mpsref_cpu.threads"}
"""Python that runs kernels; every family imports it."""


def fingerprint(module: str) -> str:
    """Return a text that changes with the code that the compiled functions of ``module`` are made of."""
    digest = hashlib.sha256()
    for name in sorted(_parts(module)):
        digest.update(f"{name}\n{_text(name)}\n".encode())
    return digest.hexdigest()


@cache
def _text(module: str) -> str:
    package, *path = module.split(".")
    file = FOLDERS[package].joinpath(*path)
    return (file / "__init__.py" if file.is_dir() else file.with_suffix(".py")).read_text("utf-8")


@cache
def _imports(module: str) -> frozenset[str]:
    """Return the files of this backend that a file imports, and those of mpsref that it takes constants from."""
    found = IMPORT.findall(_text(module))
    own = (name for name, package, names in found if package == "mpsref_cpu" or CONSTANT.search(names))
    return frozenset(own) - NEVER_COMPILED_IN


@cache
def _parts(module: str) -> frozenset[str]:
    parts, left = {module}, [module]
    while left:
        for name in _imports(left.pop()) - parts:
            parts.add(name)
            if name.startswith("mpsref_cpu."):
                left.append(name)
    return frozenset(parts)
