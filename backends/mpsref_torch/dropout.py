"""Dropout of PyTorch draws its mask itself; its gradient takes one."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpsref import Dropout
from mpsref.arguments.arrays import Array
from mpsref.errors import UnsupportedError
from mpsref_torch.run import Torch


def drawn_inside(torch: Torch, problem: Any, *inputs: Array, out: Array) -> None:
    raise UnsupportedError("dropout of PyTorch draws its mask itself, from a generator of its own")


def gradient(torch: Torch, problem: Any, g: Array, mask: Array, out: Array) -> None:
    backward, scale = torch.torch.ops.aten.native_dropout_backward, float(problem.spec.scale)
    whole = np.broadcast_to(mask, g.shape).astype(bool)
    out[...] = torch(lambda g, mask: backward(g, mask, scale), g, whole)


IMPLEMENTATIONS = {
    (Dropout, "mask"): drawn_inside,
    (Dropout, "forward"): drawn_inside,
    (Dropout, "gradient"): gradient,
}
