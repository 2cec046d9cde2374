"""What was compiled, on disk, for the next process.

A library is ``<key>.so``, PTX ``<key>.ptx``, parsed headers ``<key>.pch``, with ``<key>.json`` next to it: its SHA-256
and what Python must know about it. Both are written to a temporary name and moved into place, the description last; a
pair that does not fit together (two writers at once, a full disk, damage) counts as absent and is made again.
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
"""Makes the file at the given path and returns its description, which must survive JSON."""


def directory() -> Path:
    """Where the files are kept: ``MPSREF_CACHE_DIR``, else the user's cache, else a temporary folder.

    A folder that cannot be written to is passed over.
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
    """The name of what these texts determine."""
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def fetch(key: str, build: Build, suffix: str = ".so") -> tuple[Path, Any]:
    """The file of this key and its description, from the disk or from ``build``."""
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
