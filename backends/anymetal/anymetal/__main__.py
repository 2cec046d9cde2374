"""``python -m anymetal FILE``: the command ``mpsref msl``."""

from __future__ import annotations

from .command import app

app(prog_name="python -m anymetal")
