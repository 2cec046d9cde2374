"""What the packages of this repository share: compiled code on disk, first use under fork, and the hint for extras."""

from __future__ import annotations


def install(extra: str) -> str:
    """Return the command that installs an extra in the folder of mpsref, which is on no package index.

    >>> install("torch")
    'pip install -e ".[torch]"'
    """
    return f'pip install -e ".[{extra}]"'
