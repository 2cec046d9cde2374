#!/usr/bin/env python
"""``python -m anymetal FILE``: the command ``anymetal``; an editable install of mpsref has it as a script."""

from __future__ import annotations

from anymetal.command import app

if __name__ == "__main__":
    app()
