"""What there is of this machine."""

from __future__ import annotations

import os

__all__ = ["cores"]


def cores() -> int:
    """Return how many cores this process may use: in a container often fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
