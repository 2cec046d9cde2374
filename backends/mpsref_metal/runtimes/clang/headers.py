"""The shim's headers in the form in which clang has parsed them: a source itself takes a tenth of that time.

Each pass has its own, kept on disk beside the libraries. Clang looks for the headers where it found them at first, so
another installation parses its own.
"""

from __future__ import annotations

from pathlib import Path

from . import cache
from .toolchain import SHIM, Pass, Toolchain

__all__ = ["parsed"]


def parsed(toolchain: Toolchain, for_pass: Pass) -> Path:
    """The headers for a pass, from the disk or from clang."""

    def build(output: Path) -> None:
        toolchain.precompile(for_pass, SHIM / "mpsref" / "library.h", output, cache.directory() / "zig")

    return cache.fetch(cache.key("headers", for_pass, str(SHIM), toolchain.fingerprint), build, ".pch")[0]
