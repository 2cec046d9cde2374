"""An MSL source as kernels in C++: preprocessed, checked, and rewritten for one kernel at a time."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from reprlib import repr as shorten
from typing import Any, TypeAlias

import numpy as np

from ..interface import CompileError
from . import cache, kernels
from .kernels import Constant, Kernel
from .lexer import NAME, Places, unified
from .options import Options
from .rewrites import Edit, Source, rewritten
from .strict import check, check_instantiation, diagnostics, with_sources
from .syntax import Syntax
from .toolchain import Toolchain

Constants: TypeAlias = Mapping[int | str, Any]
"""Values of function constants, by index or by name."""


class Program:
    """A checked source.

    Attributes
    ----------
    text : str
        The preprocessed source.
    kernels : dict of str to Kernel
        Its kernels, by their names in a library.
    constants : tuple of Constant
        Its function constants.
    files : mapping of str to str
        The texts of the source, which has the name ``NAME``, and of what it includes.
    """

    def __init__(
        self, text: str, about: Mapping[str, Any], files: Mapping[str, str], source: Source | None = None
    ) -> None:
        """Read what :func:`checked` found; ``source`` is what it read the text as."""
        self.text, self.files = text, files
        self.kernels = {row["name"]: Kernel.described(row) for row in about["kernels"]}
        self.constants = tuple(Constant(**row) for row in about["constants"])
        self._checked, self._keeps_spaces = about["checked"], about["spaces"]
        self._has_images = about["images"]
        if source:
            self._source = source

    @functools.cached_property
    def _source(self) -> Source:
        return Source(Syntax(self.text))

    @functools.cached_property
    def places(self) -> Places:
        """The lines of the files of the text."""
        return Places(self.text)

    def options(self, options: Options) -> Options:
        """Return the options with which the C++ of this source is compiled."""
        return replace(options, keeps_spaces=self._keeps_spaces, has_images=self._has_images)

    def values(self, given: Constants) -> dict[str, str]:
        """Return the values of function constants in C++, by name; raise CompileError for unknown ones."""
        known: dict[int | str, Constant] = {one.name: one for one in self.constants}
        known |= {_index(one): one for one in self.constants}
        values = {}
        for key, value in given.items():
            if key not in known:
                names = ", ".join(f"{one.name} ({one.index})" for one in self.constants) or "none"
                raise CompileError(f"constants: no function constant {shorten(key)}; the source has {names}")
            one = known[key]
            values[one.name] = _literal(one, value)
        return values

    def cpp(self, toolchain: Toolchain, options: Options, kernel: Kernel, values: Mapping[str, str]) -> str:
        """Return C++ to compile after the headers of the shim, with the entry point of one kernel.

        Raises CompileError for a kernel that is not legal.
        """
        kernels.supported(kernel)
        if kernel.at != self._checked:
            strict = replace(options, has_images=self._has_images)
            check_instantiation(toolchain, self._source, strict, self.files, kernel.at)
        return self.with_calls({kernel: kernel.entry()}, values)

    def with_calls(self, calls: Mapping[Kernel, str], values: Mapping[str, str]) -> str:
        """Return C++ with text behind the definitions of kernels."""
        if self._source.constants != values or self._source.kept >= 0:
            self._source = self._source.varied(values)
        more = (Edit(kernel.at, kernel.at, f" {call}", is_behind=True) for kernel, call in calls.items())
        return rewritten(self._source, *more)

    def compile(self, toolchain: Toolchain, command: Sequence[str], values: Mapping[str, str]) -> str:
        """Run a command that compiles the C++ of a kernel, and return its warnings.

        Raises CompileError with lines of the source.
        """
        missing = [one.name for one in self.constants if one.name not in values]
        try:
            return toolchain.make(command)
        except cache.BuildError as error:
            found = diagnostics(str(error))
            if missing and any("not known to the compiler" in one for one in found):
                raise _without_values(missing) from None
            raise CompileError("\n".join(with_sources(found, self.files))) if found else error from None

    def undefined(self, symbol: str, values: Mapping[str, str]) -> CompileError:
        """Return the error for a function, a variable or a function constant without a definition, from its symbol."""
        name, rest = "", re.sub(r"^_Z(N[KVrRO]*)?", "", symbol)
        while length := re.match(r"(?:I[^E]*E)?L?(\d+)", rest):
            name, rest = rest[length.end() :][: int(length[1])], rest[length.end() + int(length[1]) :]
        name = name or symbol
        if name in {one.name for one in self.constants} - values.keys():
            return _without_values([name])
        kind = "function" if symbol.startswith("_Z") and not symbol.endswith("E") else "variable"
        message, syntax = f"the {kind} `{name}` is declared and used, and not defined", self._source.syntax
        at = next((i for i in range(syntax.size) if syntax[i] == name), None)
        found = f"{NAME}: error: {message}" if at is None else str(syntax.error(at, message))
        return CompileError("\n".join(with_sources([found], self.files)))


def checked(toolchain: Toolchain, source: str, options: Options, *, is_compiled: bool = False) -> Program:
    """Preprocess and check a source; raise :class:`CompileError` with line numbers of the source.

    The result is cached on disk. With ``is_compiled`` the caller compiles the kernels next: if there is one kernel
    and no function constant, errors that the strict pass cannot judge are left to that compilation.
    """
    files = {NAME: source, **{str(path): text for path, text in options.files(source).items()}}
    read = list[Source]()

    def build(output: Path) -> dict[str, Any]:
        status, text, errors = toolchain.preprocess(f'#line 1 "{NAME}"\n{source}', options)
        if status:
            message = "\n".join(with_sources(diagnostics(errors), files)) or errors
            raise CompileError(NOT_FOUND.sub(lambda line: line[0] + options.missing(line[1]), message))
        text = unified(text)
        syntax = Syntax(text)
        found = kernels.kernels(syntax)
        if not found:
            raise _without_kernels(syntax, files)
        if all(one.problem for one in found.values()):
            kernels.supported(next(iter(found.values())))
        constants = [asdict(one) for one in kernels.constants(syntax)]
        only = next(iter(found.values())).at if len(found) == 1 else -1
        known, is_last = replace(options, has_images=bool(kernels.images_of(syntax))), is_compiled and only >= 0
        read.append(check(toolchain, syntax, known, files, only, is_last=is_last and not constants))
        output.write_text(text)
        about = {"kernels": [kernel.describe() for kernel in found.values()], "constants": constants}
        return about | {"checked": only, "spaces": read[-1].keeps_spaces, "images": known.has_images}

    key = cache.key("source", toolchain.fingerprint(), is_compiled, *options.definitions, *options.texts(source))
    found = cache.fetch(key, build, ".txt")
    return Program(found.data.decode(), found.about, files, *read)


NOT_FOUND = re.compile(r"'([^'\n]+)' file not found: [^\n]*")
KERNEL_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+kernel\b", re.MULTILINE)


def _without_kernels(syntax: Syntax, files: Mapping[str, str]) -> CompileError:
    for file, text in files.items():
        if macro := KERNEL_MACRO.search(text):
            number = text.count("\n", 0, macro.start()) + 1
            row = f"{number:5} | {text.splitlines()[number - 1]}"
            message = "the macro replaces the word `kernel`, and no kernel function is left"
            return CompileError(f"{file}:{number}:1: error: {message}\n{row}")
    for one in syntax.declarations:
        if stage := kernels.render_stage(syntax, one, (*kernels.RENDER, *kernels.LINKED)):
            name = syntax[one.parameters - 1]
            return syntax.error(
                one.parameters - 1, f"the {stage} function `{name}` is not run, and the source has no kernel function"
            )
    what = "no kernel function (`kernel void name(...) {...}`: a template of one needs an instantiation)"
    return CompileError(f"{NAME}: error: the source has {what}")


def _index(one: Constant) -> int | str:
    terms = one.index.split("+")  # as in `BASE + 1`, after the preprocessor
    return sum(map(int, terms)) if all(term.strip().isdecimal() for term in terms) else one.name


BITS = {"char": 8, "short": 16, "int": 32, "long": 64} | {f"int{bits}_t": bits for bits in (8, 16, 32, 64)}
RANGES = (
    {"bool": (0, 1)}
    | {name: (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for name, bits in BITS.items()}
    | {f"u{name}": (0, 2**bits - 1) for name, bits in BITS.items()}
)
"""The least and the largest number of each integer type."""


def _literal(one: Constant, value: Any) -> str:
    """Return a value of a function constant in C++."""
    where = f"constants: {one.name} of type {one.type}"
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return ", ".join(_literal(one, part) for part in value)
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    limits = RANGES.get(re.sub(r"[234]$", "", one.type))
    is_integer, is_number = isinstance(value, (int, np.integer)), isinstance(value, (int, float, np.number))
    if limits and is_number and not (is_integer and limits[0] <= value <= limits[1]):
        raise CompileError(f"{where} is {shorten(value)}; it is an integer from {limits[0]} to {limits[1]}")
    if is_integer:
        if not -(2**63) <= value < 2**64:  # of a type with another name
            raise CompileError(f"{where} is {shorten(int(value))}; an integer has at most 64 bits")
        return f"{int(value)}{'u' if value >= 2**31 else ''}{'l' if not -(2**31) < value < 2**32 else ''}"
    if isinstance(value, (float, np.floating)):
        number = float(value)
        if math.isnan(number):
            return "NAN"
        return f"{'-' if number < 0 else ''}INFINITY" if math.isinf(number) else f"{number.hex()}f"
    raise TypeError(f"{where} is {shorten(value)}; it is a bool, a number, or a sequence of numbers for a vector")


def _without_values(names: Sequence[str]) -> CompileError:
    given = ", ".join(f"{name!r}: ..." for name in names)
    what = f"constant{'s' if len(names) > 1 else ''} {' '.join(f'`{name}`' for name in names)}"
    return CompileError(f"{NAME}: error: no value for the function {what}: pass constants={{{given}}}")
