"""The families of kernels, which the packages of the suite have a module each for."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["modules_of"]

FAMILIES = (
    "arithmetic",
    "batch_normalization",
    "convolution",
    "dropout",
    "loss",
    "movement",
    "neuron",
    "normalization",
    "optimizers",
    "pooling",
    "reduce",
    "softmax",
    "upsampling",
)


def modules_of(package: str) -> tuple[Any, ...]:
    """Import and return the modules of all families in ``package``.

    >>> [module.__name__ for module in modules_of("mpsref.conformance.zoo")][:2]
    ['mpsref.conformance.zoo.arithmetic', 'mpsref.conformance.zoo.batch_normalization']
    """
    return tuple(importlib.import_module(f"{package}.{family}") for family in FAMILIES)
