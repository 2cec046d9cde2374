"""Slice through ``msl/movement.metal``."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.slice_ import Slice, SliceForward, SliceGradient
from mpsref.registry import OperationKey
from mpsref_metal.launch import Launcher
from mpsref_metal.movement import gather


def slice_(launch: Launcher, problem: SliceForward | SliceGradient, source: Array, out: Array) -> None:
    """Fill ``out`` with the box that is cut out of ``source``, or with ``source`` at its place."""
    gather(launch, problem.gather(), np.zeros(out.shape[3]), source, out)


IMPLEMENTATIONS: dict[OperationKey, Any] = {(Slice, "forward"): slice_, (Slice, "gradient"): slice_}
