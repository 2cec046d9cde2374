"""The steps of chains in PyTorch, see :mod:`mpsref.frameworks.chains`."""

from __future__ import annotations

from mpsref.frameworks.adapter import Function, Tensor
from mpsref.frameworks.chains import BORDERS
from mpsref_torch.run import Torch


def steps(torch: Torch) -> dict[str, Function]:
    """Return the functions of tensors (N, C, H, W)."""
    f = torch.functional
    return {
        "conv3": lambda v, weights: f.conv2d(v, weights, padding=1),
        "max3": lambda v: f.max_pool2d(v, 3, 1, 1),
        "max2": lambda v: f.max_pool2d(v, 2),
        "sum3": lambda v: f.avg_pool2d(v, 3, 1, 1, divisor_override=1),
        "sum2x1": lambda v: f.avg_pool2d(v, (2, 1), 2, divisor_override=1),
        "relu": f.relu,
        "abs": torch.torch.abs,
        "gate": lambda mask, v: torch.torch.where(mask, v, 0.0),
        "where": torch.torch.where,
        "rows": lambda v: v + v.sum(3, keepdim=True),
        "modulate": _modulated,
        "pad": lambda v: f.pad(v, _ends("pad")),
        "crop": lambda v: f.pad(v, _ends("crop")),
        "up2": lambda v: f.interpolate(v, scale_factor=2),
    }


def _ends(step: str) -> tuple[int, ...]:
    rows, columns = BORDERS[step]
    return *columns, *rows


def _modulated(v: Tensor, table: Tensor) -> Tensor:
    """On rows of pixels (N, H W, C), as in a transformer."""
    rows = v.permute(0, 2, 3, 1).flatten(1, 2)
    scale, shift = table.chunk(2, 1)
    result = (rows + rows.relu().sum(2, keepdim=True)) * (1 + scale) + shift
    return result.unflatten(1, v.shape[2:]).permute(0, 3, 1, 2)
