"""A fingerprint of the source that compiled code depends on: its own file, and all files compiled into it.

numba's disk cache looks at the file of a kernel alone, and would keep its code when a function or constant that it uses
from another file has changed.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

import mpsref

FOLDERS = {"mpsref_cpu": Path(__file__).parent, "mpsref": Path(mpsref.__file__).parent}

IMPORT = re.compile(r"^from ((mpsref_cpu|mpsref)\.[\w.]+) import (\([^)]*\)|.*)", re.MULTILINE)
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
    """Return the modules of this backend that a module imports, and those of mpsref from which it takes constants."""
    found = IMPORT.findall(_text(module))
    own = (name for name, package, names in found if package == "mpsref_cpu" or CONSTANT.search(names))
    return frozenset(own) - NEVER_COMPILED_IN


@cache
def _sources(module: str) -> frozenset[str]:
    sources, left = {module}, [module]
    while left:
        for name in _imports(left.pop()) - sources:
            sources.add(name)
            if name.startswith("mpsref_cpu."):
                left.append(name)
    return frozenset(sources)
