"""The former name of :mod:`anymetal`, for code that imports it."""

from __future__ import annotations

import sys

import anymetal
from anymetal import clang, cuda, metalcompute

sys.modules[__name__] = anymetal
sys.modules.update(
    {f"{__name__}.{module.__name__.rpartition('.')[2]}": module for module in (clang, cuda, metalcompute)}
)
