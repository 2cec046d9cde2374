"""matplotlib, which is imported on first use."""

from __future__ import annotations

import io
from functools import cache
from typing import TYPE_CHECKING

from mpsref.errors import needs

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure_type() -> type[Figure]:
    """Return a ``Figure`` of matplotlib that notebooks draw, or raise ``UnsupportedError`` if it is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise needs("pictures", "matplotlib", "plot", error) from error
    return _drawn(Figure)


@cache
def _drawn(base: type[Figure]) -> type[Figure]:
    class Picture(base):  # type: ignore[misc, valid-type]
        def _repr_svg_(self) -> str:
            """The picture; a notebook that has not imported pyplot has no other, and shows its size in words."""
            text = io.StringIO()
            self.savefig(text, format="svg")
            return text.getvalue()

    return Picture
