"""Disk cache of compiled files: libraries (``.so``), bitcode (``.bc``), PTX (``.ptx``), headers (``.pch``).

See :mod:`anymetal.disk_cache`. Compilers need a folder: without one for the cache, or on a full or read-only disk,
it is a temporary one, removed at the end of the process.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from ..disk_cache import (
    Build,
    Entry,
    OccupiedError,
    kept_by_compiler,
    key,
    load,
    private_folder,
    scratch,
    store,
    warn_unwritable,
)
from ..interface import CompileError

__all__ = ["BuildError", "directory", "fetch", "key", "with_scratch"]

NEEDED = 1 << 26
"""Bytes that a compiler may need on the disk."""

DIAGNOSTIC = re.compile(r":\d+:\d+: (?:fatal )?error: ")
"""What a compiler prints of a mistake in a source."""


class BuildError(CompileError):
    """The compiler failed, for a mistake in the source or because it could not write a file."""


_unwritable: set[Path] = set()


def directory() -> Path:
    """Return the folder of the cache, or a temporary one."""
    folder = private_folder("msl")
    return _temporary() if folder is None or folder in _unwritable else folder


@functools.cache
def _temporary() -> Path:
    folder, process = Path(tempfile.mkdtemp(prefix="anymetal-")), os.getpid()

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
    except (OSError, BuildError) as error:
        problem = error if isinstance(error, OccupiedError) else _problem(folder)
        if problem is None or folder != private_folder("msl"):
            raise
        warn_unwritable(folder, problem)
        _unwritable.add(folder)
    return store(directory(), key, suffix, build)


def with_scratch(run: Callable[[dict[str, str]], tuple[int, str]]) -> tuple[int, str]:
    """Return the status and the output of a compiler; ``run`` calls it with variables of its environment.

    The objects that zig makes of a source lie in a folder that is removed at the end. The libraries that it builds, for
    seconds, are kept, unverified. After a failure that is not of the source, they are built again.
    """
    folder = directory()
    kept = kept_by_compiler(folder)
    with scratch(folder) as objects:
        named = os.environ.get("ZIG_GLOBAL_CACHE_DIR") or str(kept)
        status, text = run({"ZIG_GLOBAL_CACHE_DIR": named, "ZIG_LOCAL_CACHE_DIR": objects})
        if status == 0 or DIAGNOSTIC.search(text):
            return status, text
    with scratch(folder) as libraries:
        status, text = run({"ZIG_GLOBAL_CACHE_DIR": libraries, "ZIG_LOCAL_CACHE_DIR": libraries})
    if status == 0 and named == str(kept):
        shutil.rmtree(kept, ignore_errors=True)
    return status, text


def _problem(folder: Path) -> OSError | None:
    """Return why a compiler cannot write to a folder, or ``None`` if it can."""
    try:
        with scratch(folder) as temporary:
            Path(temporary, "large").write_bytes(bytes(NEEDED))
    except OSError as error:
        return error
    return None
