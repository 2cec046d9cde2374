"""Checkpoints: one file with arrays and a header, replaced atomically."""

from __future__ import annotations

import contextlib
import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array

FORMAT = "mpsref digits 2"


def write(path: Path, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Write a checkpoint to a temporary file next to ``path``, then rename it."""
    text = json.dumps({"format": FORMAT, **header})
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
    try:
        with unfinished.open("wb") as file:
            np.savez(file, header=np.array(text), **arrays)  # type: ignore[arg-type]  # names of arrays, not parameters
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn every exception that a damaged file may cause into a ``ValueError`` with its path."""
    try:
        yield
    except FileNotFoundError:
        raise ValueError(f"checkpoint {str(path)!r} does not exist; name a file that --checkpoint wrote") from None
    except (OSError, EOFError, ValueError, TypeError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(
            f"checkpoint {str(path)!r} cannot be used ({type(error).__name__}: {error}); name another, or start anew "
            "without it"
        ) from error


def read(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return header and arrays; raise ``ValueError`` if the file is damaged or not a checkpoint."""
    with reading(path), path.open("rb") as file:
        with np.load(file, allow_pickle=False) as archive:
            arrays = {name: np.array(archive[name]) for name in archive.files}
        header = json.loads(str(arrays.pop("header")))
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise ValueError(f"it is not of the format {FORMAT!r}")
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                raise ValueError(f"{name} has values that are not finite")
        return header, arrays
