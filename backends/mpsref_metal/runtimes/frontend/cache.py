"""Disk cache of compiled files: libraries (``.so``), PTX (``.ptx``) and precompiled headers (``.pch``).

See :mod:`mpsref.disk_cache`. Compilers need a folder: without one for the cache, or on a full or read-only disk, it is
a temporary one, removed at the end of the process.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from pathlib import Path

from mpsref.disk_cache import Build, Entry, key, load, private_folder, store, warn_unwritable

from .. import CompileError

__all__ = ["BuildError", "directory", "fetch", "key"]

NEEDED = 1 << 26
"""Bytes that a compiler may need on the disk."""


class BuildError(CompileError):
    """The compiler failed, for a mistake in the source or because it could not write a file."""


_unwritable: set[Path] = set()


def directory() -> Path:
    """Return the folder of the cache, or a temporary one."""
    folder = private_folder("msl")
    return _temporary() if folder is None or folder in _unwritable else folder


@functools.cache
def _temporary() -> Path:
    folder, process = Path(tempfile.mkdtemp(prefix="mpsref-msl-")), os.getpid()

    def remove() -> None:
        if os.getpid() == process:  # not in a forked child
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def fetch(key: str, build: Build, suffix: str = ".so") -> Entry:
    """Return the entry of a key; build it if it is not cached."""
    folder = directory()
    known = load(folder, key, suffix)
    if known is not None:
        return known
    try:
        return store(folder, key, suffix, build)
    except (OSError, BuildError):
        problem = _problem(folder)
        if problem is None or folder != private_folder("msl"):
            raise
        warn_unwritable(folder, problem)
        _unwritable.add(folder)
    return store(directory(), key, suffix, build)


def _problem(folder: Path) -> OSError | None:
    """Return why a compiler cannot write to a folder, or ``None`` if it can."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(NEEDED))
    except OSError as error:
        return error
    return None
