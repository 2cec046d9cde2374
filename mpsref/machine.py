"""Properties of this machine, and of the sources that run on it."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path


def cores() -> int:
    """Return how many cores this process may use: in a container often fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def name() -> str:
    """Return the system, the architecture and the version of Python."""
    return f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"


def commit() -> str:
    """Return the git commit of the sources, with "-dirty" where they were changed; "unknown" outside a checkout."""
    command = ("git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--exclude=*")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"
