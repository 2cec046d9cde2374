"""Options of a compilation: the version of MSL, folders of included files, and fast math."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as shorten
from typing import Any, TypeVar

from ..environment import variable
from ..interface import CompileError

VERSIONS = ("2.3", "2.4", "3.0", "3.1", "3.2", "4.0")
"""Versions of MSL. 2.4 adds ``atomic<T>`` and ``simd_shuffle_and_fill_*``, 3.0 atomic floats in device memory, 3.1
``bfloat`` and parameters that are functions, 3.2 lambda expressions, 4.0
tensors."""

Item = TypeVar("Item")

LIMITS = {"ANYMETAL_COMPILE_SECONDS": 30, "ANYMETAL_COMPILE_MEMORY": 2048}
"""Environment variables with the processor time in seconds and the memory in MiB of a pass; the defaults."""

INCLUDE = re.compile(r"""^[ \t]*\#[ \t]*(?:include|import)[ \t]*(?P<mark>[<"])(?P<name>[^>"\n]+)[>"]""", re.MULTILINE)


def limit(name: str) -> int:
    """Return a limit of a compilation."""
    text = variable(name) or str(LIMITS[name])
    if not re.fullmatch("[1-9][0-9]{0,8}", text):
        raise CompileError(f"{name}={text!r} is not a number from 1 to 999999999; the default is {LIMITS[name]}")
    return int(text)


class Clock:
    """The processor time of a pass in Python, which has the limit of one in the compiler."""

    def __init__(self) -> None:
        """Start it."""
        self._seconds = limit("ANYMETAL_COMPILE_SECONDS")
        self._end = time.thread_time() + self._seconds

    def counted(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield items; raise CompileError once the limit is exceeded."""
        for number, item in enumerate(items):
            if not number % 256 and time.thread_time() > self._end:
                raise CompileError(
                    f"the front end took more than {self._seconds} seconds of processor time (ANYMETAL_COMPILE_SECONDS)"
                    ": simplify the source, or set this variable to a larger number"
                )
            yield item


@dataclass(frozen=True)
class Options:
    """How a source is compiled; the defaults are those of metalcompute."""

    version: str = VERSIONS[0]
    include: tuple[Path, ...] = ()
    """Folders of files that the source includes."""
    fast_math: bool = True
    macros: tuple[str, ...] = ()
    """Flags that define the macros of the caller."""
    checks: bool = False
    """Whether kernels are compiled with checks of their accesses."""
    keeps_spaces: bool = False
    """Whether a source has members for an address space, see :mod:`.members`; their form is C++23."""
    has_images: bool = False
    """Whether a source has textures or samplers: the headers have them."""

    @classmethod
    def of(cls, version: Any, include: Any, fast_math: Any, define: Any = None, checks: bool = False) -> Options:
        """Check and convert the arguments of ``Device.kernel``."""
        if version not in VERSIONS:
            raise CompileError(f"version={shorten(version)}: the versions of MSL are {', '.join(VERSIONS)}")
        if not isinstance(fast_math, bool):
            raise TypeError(f"fast_math is of type {type(fast_math).__name__}; it is True or False")
        if isinstance(include, (str, bytes)) or not isinstance(include, Iterable):
            raise TypeError(f"include={shorten(include)} is a sequence of folders")
        folders = tuple(Path(os.fspath(folder)).resolve() for folder in include)
        for folder in folders:
            if not folder.is_dir():
                raise CompileError(f"include={str(folder)!r} is not a folder")
        return cls(version, folders, fast_math, tuple(_macros(define)), checks)

    @property
    def number(self) -> int:
        """The value of ``__METAL_VERSION__``."""
        return int(self.version.replace(".", "")) * 10

    @property
    def definitions(self) -> tuple[str, ...]:
        """Flags that define the macros of this version, and choose that of C++."""
        known = ["__METAL__=1", f"__METAL_VERSION__={self.number}", "__METAL_MACOS__=1", "__HAVE_SIMDGROUP_MATRIX__=1"]
        known += ["__HAVE_BFLOAT__=1"] if self.number >= 310 else []
        known += ["__HAVE_TENSOR__=1"] if self.number >= 400 else []
        known += ["ANYMETAL_IMAGES=1"] if self.has_images else []
        return *(f"-D{macro}" for macro in known), *(("-std=c++23", "-fno-char8_t") if self.keeps_spaces else ())

    @property
    def folders(self) -> tuple[str, ...]:
        """Flags that name the folders."""
        return tuple(part for folder in self.include for part in ("-isystem", str(folder)))

    def files(self, source: str) -> dict[Path, str]:
        """Return the files in the folders that a source includes, directly or indirectly, with their texts.

        A name that is computed by a macro, is absolute, or leaves the folders is not found.
        """
        found: dict[Path, str] = {}
        waiting = list(self._named(source, None)) if self.include else []
        while waiting:
            path = waiting.pop()
            if path not in found:
                found[path] = path.read_text(errors="replace")  # a file may change without its time stamp
                waiting += self._named(found[path], path.parent)
        return dict(sorted(found.items()))

    def missing(self, name: str) -> str:
        """Return which folder lacks, if a relative name leads from one of the folders to a file outside of them."""
        for folder in self.include if not os.path.isabs(name) else ():
            path = Path(os.path.normpath(folder / name))
            if path.is_file():
                return f". It is in {path.parent}: add {os.path.commonpath((folder, path))!r} to `include`"
        return ""

    def texts(self, source: str) -> tuple[str, ...]:
        """Return all that the preprocessor reads: macros, a source, and the files that it includes."""
        return source, *self.macros, *(part for path, text in self.files(source).items() for part in (str(path), text))

    def _named(self, text: str, place: Path | None) -> Iterator[Path]:
        """Yield the files that the directives of a text name; ``place`` is its folder."""
        for match in INCLUDE.finditer(text):
            near = [place] if place is not None and match["mark"] == '"' else []
            for folder in (*near, *self.include):
                path = Path(os.path.normpath(folder / match["name"]))
                if path.is_file() and any(path.resolve().is_relative_to(root) for root in self.include):
                    yield path
                    break


DEFAULTS = Options()


def _macros(define: Any) -> Iterator[str]:
    """Yield flags that define macros."""
    if not isinstance(define, Mapping | None):
        raise TypeError(
            f"define is of type {type(define).__name__}; it is a mapping from the names of macros to values"
        )
    for name, value in (define or {}).items():
        text = str(int(value) if isinstance(value, bool) else "" if value is None else value)
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise CompileError(f"define={{{shorten(name)}: ...}}: the name of a macro is an identifier")
        if not re.fullmatch(r"[ -\[\]-~]*", text):
            raise CompileError(f"define={{{name!r}: {shorten(value)}}}: a value is ASCII text in one line without \\")
        yield f"-D{name}={text}"
