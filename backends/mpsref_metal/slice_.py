"""Slice through ``msl/movement.metal``."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.slice_ import Slice, SliceForward, SliceGradient
from mpsref.registry import Implementation, OperationKey
from mpsref_metal.launch import Launcher
from mpsref_metal.movement import gather


def slice_(launch: Launcher, problem: SliceForward | SliceGradient, source: Array, out: Array) -> None:
    """Fill ``out`` with a region of ``source``, or a region of ``out`` with ``source`` and the rest with zeros."""
    gather(launch, problem.gather(), np.zeros(out.shape[3]), source, out)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {(Slice, "forward"): slice_, (Slice, "gradient"): slice_}
