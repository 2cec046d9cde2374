"""Compiled code on disk, in folders that only the user can write.

``ANYMETAL_CACHE_DIR``, else the user's cache folder, contains a folder for each kind of code; code of another product
is in a folder of its name. An entry is a file and its
*note* ``<key>.json``: the SHA-256 of the file, which is part of its name, and metadata. Both are written under
temporary names and moved into place, the note last; concurrent writers of an entry do not disturb each other. A file is
used only if it has the checksum of its note.

Only files with names that the cache gives are written or removed, and nothing is written to a folder that holds others.
A folder is listed before the first write of a process, not before it is read.

The cache is optional: each problem is a warning, once in a process, and code is compiled again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import platformdirs

from .environment import variable

ABANDONED = 3600
"""Age in seconds of a temporary file or folder whose writer was killed."""

UNUSED = 30 * 86400
"""Age in seconds of an entry that is removed."""

USED = 86400
"""Seconds after which the use of an entry is recorded again, in its time of modification."""

OWN = re.compile(r"[0-9a-f]{64}\.(?:json|so|bc|ptx|pch|txt|code|zig)|\.build-[a-z0-9_]{8}")
"""Names that the cache gives. Those that end with ``zig`` are folders of a compiler, see :func:`kept_by_compiler`."""

FOREIGN = re.compile(r"zig|\.nfs[0-9a-f]+|\.DS_Store")
"""Other names that a folder of the cache may contain: of a former version, network file systems, and the Finder."""

OWN_VARIABLE = "ANYMETAL_CACHE_DIR"

_variables: dict[Path, str] = {}
"""The variable that names another place for a folder."""

Build = Callable[[Path], Any]
"""Writes a file at a path and returns its metadata, which must be representable in JSON."""


class OccupiedError(OSError):
    """A folder contains files that are not of the cache."""


class Entry(NamedTuple):
    """A verified file, its bytes, and its metadata."""

    file: Path
    data: bytes
    about: Any


def private_folder(kind: str, product: str = "anymetal") -> Path | None:
    """Return the folder for a kind of code, or ``None`` if there is none that only the user can write."""
    name = f"{product.upper()}_CACHE_DIR"
    named = variable(name) if name == OWN_VARIABLE else os.environ.get(name)
    return _checked(Path(named or platformdirs.user_cache_dir(product), kind), name)


def key(*parts: object) -> str:
    """Return the key of an entry that the texts of these parts determine: their hash."""
    return hashlib.sha256("\0".join(map(str, parts)).encode("utf-8", "surrogatepass")).hexdigest()


def load(folder: Path, key: str, suffix: str) -> Entry | None:
    """Return an entry, or ``None`` if it is absent or damaged; a damaged one is removed."""
    note = folder / f"{key}.json"
    try:
        known = json.loads(note.read_bytes())
        file = folder / f"{known['sha256']}{suffix}"
        data, about = file.read_bytes(), known["about"]
        if hashlib.sha256(data).hexdigest() != known["sha256"]:
            raise ValueError("the checksum differs")
    except OSError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        drop(folder, key, error)
        return None
    _record_use(note, file)
    return Entry(file, data, about)


def drop(folder: Path, key: str, reason: Exception) -> None:
    """Remove a damaged entry, with a warning."""
    with contextlib.suppress(OSError):
        (folder / f"{key}.json").unlink()
    _warn(folder, f"a compiled kernel in {str(folder)!r} is damaged ({str(reason)[:200]}); it is compiled again")


def store(folder: Path, key: str, suffix: str, build: Build) -> Entry:
    """Build an entry and write it; raise OSError if that is impossible."""
    if not OWN.fullmatch(key + suffix):
        raise ValueError(f"the name {key + suffix!r} of an entry does not match {OWN.pattern!r}: add its suffix there")
    if other := _occupied(folder):
        raise OccupiedError(
            f"the folder {str(folder)!r} contains {other!r}, which is not a file of this cache; move it elsewhere, or "
            f"set {_variables.get(folder, OWN_VARIABLE)} to an empty folder"
        )
    _remove_old(folder)
    with scratch(folder) as temporary:
        made, note = Path(temporary, f"made{suffix}"), Path(temporary, "note.json")
        about = build(made)
        data = made.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        note.write_text(json.dumps({"sha256": digest, "about": about}))
        file = folder / f"{digest}{suffix}"
        os.replace(made, file)
        os.replace(note, folder / f"{key}.json")
    return Entry(file, data, about)


def scratch(folder: Path) -> tempfile.TemporaryDirectory[str]:
    """Return a context manager that makes a temporary folder in a folder of the cache."""
    return tempfile.TemporaryDirectory(dir=folder, prefix=".build-")


def kept_by_compiler(folder: Path) -> Path:
    """Return the folder for what a compiler itself keeps from call to call; its content is not verified."""
    return folder / f"{key('compiler')}.zig"


def warn_unwritable(folder: Path, error: Exception) -> None:
    """Warn that compiled code is not kept in a folder."""
    message = (
        f"compiled kernels are not kept in {str(folder)!r} ({error}): each process compiles them again; free space on "
        f"this disk, or set {_variables.get(folder, OWN_VARIABLE)} to a folder of your own on another"
    )
    _warn(folder, NOT_KEPT + str(error) if isinstance(error, OccupiedError) else message)


NOT_KEPT = "compiled kernels are not kept, each process compiles them again: "


@functools.cache
def _checked(folder: Path, name: str) -> Path | None:
    """Return the real path of a folder if only the user can write it; create the folder if it does not exist."""
    try:
        real = folder.resolve()
        for place in reversed((real, *real.parents)):
            with contextlib.suppress(FileExistsError):
                if not place.exists():
                    place.mkdir(mode=0o700)
        risk = _risk(real, name)
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links
        risk = str(error)
    if risk is None:
        _variables[real] = name
        return real
    _warn(folder, NOT_KEPT + risk)
    return None


def _risk(folder: Path, name: str) -> str | None:
    """Return why a folder cannot be used, as a sentence: other users could replace files in it; else ``None``."""
    if re.search(r"[\0-\x1f\x7f]", str(folder)):
        what = "has a control character in its name, which compilers do not read"
        return f"the folder {str(folder)!r} {what}; set {name} to another"
    if not hasattr(os, "geteuid"):
        return None
    for place in (folder, *folder.parents):
        status = place.stat()
        remedy = f"set {name} to a folder of your own"
        if status.st_uid not in (0, os.geteuid()):
            return f"the folder {str(place)!r} belongs to another user (uid {status.st_uid}); {remedy}"
        # Others cannot replace what lies in a folder with the sticky bit, such as /tmp, unless it is theirs.
        is_sticky = place != folder and status.st_mode & stat.S_ISVTX
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not is_sticky:
            mode = stat.S_IMODE(status.st_mode)
            return f"other users can write to the folder {str(place)!r} (mode {mode:04o}); `chmod go-w` it, or {remedy}"
    return None


@functools.cache
def _occupied(folder: Path) -> str | None:
    """Return the name of a file in a folder that is not of the cache, or ``None`` if there is none."""
    with os.scandir(folder) as entries:
        others = [entry.name for entry in entries if not (_is_own(entry) or FOREIGN.fullmatch(entry.name))]
    others = [name for name in others if os.path.lexists(folder / name)]  # another process may have removed it
    return min(others, default=None)


def _is_own(entry: os.DirEntry[str]) -> bool:
    """Return whether the cache gave this name, and to a file or folder as this one; it makes no links."""
    if not OWN.fullmatch(entry.name):
        return False
    is_folder = entry.name.startswith(".build-") or entry.name.endswith(".zig")
    return entry.is_dir(follow_symlinks=False) if is_folder else entry.is_file(follow_symlinks=False)


def _record_use(*files: Path) -> None:
    with contextlib.suppress(OSError):
        for file in files:
            if time.time() - file.stat().st_mtime > USED:
                os.utime(file)


@functools.cache
def _remove_old(folder: Path) -> None:
    """Remove what killed processes left behind, and entries that have not been used for long."""
    now = time.time()
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in filter(_is_own, entries):
            with contextlib.suppress(FileNotFoundError):  # another process has removed it
                age = now - entry.stat(follow_symlinks=False).st_mtime
                if age < (ABANDONED if entry.name.startswith(".build-") else UNUSED):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry, ignore_errors=True)
                else:
                    os.unlink(entry)


_warned: set[Path] = set()
"""Folders of which a warning has been given."""


def _warn(folder: Path, message: str) -> None:
    if folder not in _warned:
        _warned.add(folder)
        warnings.warn(message, RuntimeWarning, stacklevel=2)
