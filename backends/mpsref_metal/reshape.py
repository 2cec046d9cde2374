"""Reshape: a copy for the order HWC; the order CHW through ``msl/reshape.metal``."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.reshape import Reshape, ReshapeProblem
from mpsref.registry import Implementation, OperationKey
from mpsref_metal.launch import Launcher, typedef


def reshape(launch: Launcher, problem: ReshapeProblem, source: Array, out: Array) -> None:
    """Fill ``out`` with the elements of ``source`` in the element order of the spec."""
    if problem.spec.element_order == "HWC":
        out[...] = source.reshape(out.shape)
        return
    _, height, width, channels = source.shape
    sizes = np.array([out.size, *out.shape[1:], height * width, channels], np.uint32)
    known = typedef("Storage", source), typedef("Gradient", source)
    launch.into(("reshape",), "reshape", [source, sizes], out, known)


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {(Reshape, "forward"): reshape, (Reshape, "gradient"): reshape}
