"""matplotlib, which is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpsref.errors import needs

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure_type() -> type[Figure]:
    """Return matplotlib's ``Figure``, or raise ``UnsupportedError`` if it is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise needs("pictures", "matplotlib", "plot", error) from error
    return Figure
