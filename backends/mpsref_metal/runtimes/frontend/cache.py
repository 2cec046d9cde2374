"""Disk cache of compiled files.

An entry consists of a file (``<key>.so`` for a library, ``<key>.ptx`` for PTX, ``<key>.pch`` for precompiled headers)
and its description ``<key>.json``: the SHA-256 of the file, and metadata. Both are written under temporary names and
moved into place, the description last. An entry whose checksum does not match (concurrent writers, a full disk,
corruption) is treated as absent and rebuilt.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

Build = Callable[[Path], Any]
"""Writes a file at a path and returns its description, which must be representable in JSON."""


def directory() -> Path:
    """Return the folder of the cache: ``MPSREF_CACHE_DIR``, else the user's cache folder.

    If it is not writable, a temporary folder is used.
    """
    named = os.environ.get("MPSREF_CACHE_DIR")
    if named:
        folder = Path(named)
    else:
        import platformdirs

        folder = Path(platformdirs.user_cache_dir("mpsref"))
    return _writable(folder / "msl")


@functools.cache
def _writable(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        temporary = Path(tempfile.mkdtemp(prefix="mpsref-msl-"))
        atexit.register(shutil.rmtree, temporary, ignore_errors=True)
        return temporary


def key(*parts: str) -> str:
    """Return the key of an entry that these texts determine: their hash."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def fetch(key: str, build: Build, suffix: str = ".so") -> tuple[Path, Any]:
    """Return the file of a key and its description; call ``build`` if they are not cached."""
    folder = directory()
    file, description = folder / f"{key}{suffix}", folder / f"{key}.json"
    try:
        known = json.loads(description.read_text())
        if known["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest():
            return file, known["about"]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # absent or damaged: build it
    with tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as scratch:
        made = Path(scratch) / f"kernel{suffix}"
        about = build(made)
        text = json.dumps({"sha256": hashlib.sha256(made.read_bytes()).hexdigest(), "about": about})
        note = Path(scratch) / "kernel.json"
        note.write_text(text)
        os.replace(made, file)
        os.replace(note, description)
    return file, about
