"""What pages of the documentation take from the code: entries of the API reference, and whole sections.

A block with one module a line,

    ```{reference}
    mpsref.kernels.softmax
    mpsref.mps.softmax
    ```

stands for an autodoc directive for each of their public names, with a heading for each package if there are several.
A block ``{generated}`` with ``MODULE:FUNCTION`` stands for the Markdown text that the function returns, and a block
``{classes}`` for links to all classes of a package by their names.
"""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from importlib import import_module
from importlib.util import resolve_name
from pathlib import Path

from mpsref.operations import operations

BLOCK = re.compile(r"^```\{(reference|generated|classes)\}\n(.*?)^```", re.DOTALL | re.MULTILINE)
PACKAGES = {
    "mpsref": "Functional kernels",
    "mpsref.mps": "MPS classes",
    "mpsref.mps.graph": "Graph nodes",
    "mpsref.mpsgraph": "MPSGraph",
}


@cache
def _names(package: str) -> dict[str, list[str]]:
    """Return the public names of a package by the modules that define them, in the order of the source."""
    found: dict[str, list[str]] = {}
    stub = ast.parse(Path(str(import_module(package).__file__)).with_suffix(".pyi").read_text("utf-8"))
    for line in stub.body:
        if isinstance(line, ast.ImportFrom) and line.module:
            module = resolve_name("." * line.level + line.module, package)
            found.setdefault(module, []).extend(alias.name for alias in line.names)
    for module, names in found.items():
        names.sort(key=list(vars(import_module(module))).index)
    return found


def _entry(package: str, name: str) -> str:
    value = getattr(import_module(package), name)
    kind = "class" if inspect.isclass(value) else "function" if inspect.isroutine(value) else "data"
    methods = [one.method for one in operations() if one.spec_type is value]
    if methods:
        members = [":members: " + ", ".join([*methods, *(["windows"] if hasattr(value, "windows") else [])])]
    else:
        members = [":members:"] if kind == "class" else []
        members += [":show-inheritance:"] if kind == "class" and package != "mpsref" else []
    return "\n   ".join([f".. auto{kind}:: {name}", *members])


def _directives(block: re.Match[str]) -> str:
    modules = block[2].split()
    packages = [package for package in PACKAGES if any(module in _names(package) for module in modules)]
    unknown = [module for module in modules if not any(module in _names(package) for package in packages)]
    if unknown:
        raise ValueError(f"{', '.join(unknown)}: no public name of {', '.join(PACKAGES)} is defined in this module")
    above = re.findall(r"^(#+) ", block.string[: block.start()], re.MULTILINE)[-1]
    parts = []
    for package in packages:
        parts += [f"{above}# {PACKAGES[package]}"] if len(packages) > 1 else []
        entries = [_entry(package, name) for module in modules for name in _names(package).get(module, [])]
        parts.append("\n".join(["```{eval-rst}", f".. currentmodule:: {package}\n", *entries, "```"]))
    return "\n\n".join(parts)


def _classes(package: str) -> str:
    """Return a list with the classes of each module."""
    lines = []
    for module, names in sorted(_names(package).items()):
        links = [
            f"{{py:class}}`~{package}.{name}`"
            for name in names
            if inspect.isclass(getattr(import_module(package), name))
        ]
        lines += [f"- {module.rpartition('.')[2].replace('_', ' ')}: {', '.join(links)}"] if links else []
    return "\n".join(lines)


def _text(block: re.Match[str]) -> str:
    if block[1] == "reference":
        return _directives(block)
    if block[1] == "classes":
        return _classes(block[2].strip())
    module, _, function = block[2].strip().partition(":")
    text: str = getattr(import_module(module), function)()
    return text


def expanded(text: str) -> str:
    """Return the text of a page with its blocks filled in."""
    return BLOCK.sub(_text, text)
