"""Padding through ``msl/movement.metal``."""

from __future__ import annotations

from mpsref.arguments.arrays import Array
from mpsref.kernels.pad import Pad, PadForward, PadGradient
from mpsref.registry import Implementation, OperationKey
from mpsref_metal.launch import Launcher
from mpsref_metal.movement import gather, gather_sums


def forward(launch: Launcher, problem: PadForward, x: Array, out: Array) -> None:
    """Fill ``out`` with the padded image."""
    gather(launch, problem.gather(), problem.fills(x.dtype), x, out)


def gradient(launch: Launcher, problem: PadGradient, g: Array, out: Array) -> None:
    """Fill ``out`` with dx."""
    gather_sums(launch, problem.readers(), g, out)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {(Pad, "forward"): forward, (Pad, "gradient"): gradient}
