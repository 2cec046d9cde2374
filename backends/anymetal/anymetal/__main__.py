#!/usr/bin/env python
"""``python -m anymetal FILE``: the command ``anymetal``, of which this is also the script in an editable install."""

from __future__ import annotations

from anymetal.command import app

if __name__ == "__main__":
    app()
