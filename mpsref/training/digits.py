"""1,797 handwritten digits, 8 x 8 pixels, which come with scikit-learn."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.errors import needs

__all__ = ["CLASSES", "Digits", "load"]

CLASSES = 10
SPLIT_SEED = 0
"""The held-out third is the same for everyone."""


class Digits(NamedTuple):
    """Images (N, 8, 8, 1), float32 from 0 to 1, and which digit each is."""

    images: Array
    digits: Array

    def one_hot(self) -> Array:
        """Return the labels as images (N, 1, 1, 10)."""
        return np.eye(CLASSES, dtype=np.float32)[self.digits][:, None, None]


def load() -> tuple[Digits, Digits]:
    """Return the digits to learn from, and a third that is held out.

    Raises ``UnsupportedError`` where scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise needs("the digits", "scikit-learn", "examples", error) from error
    data = load_digits()
    images = (data.images[..., None] / 16).astype(np.float32)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(images))
    held_out, rest = np.split(order, [len(order) // 3])
    learn, test = (Digits(images[part], data.target[part]) for part in (rest, held_out))
    return learn, test
