"""The 1,797 handwritten digits of scikit-learn, 8 x 8 pixels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.errors import needs

CLASSES = 10
SPLIT_SEED = 0
"""Seed of the split; the held-out third is always the same."""


class Digits(NamedTuple):
    """Images and labels."""

    images: Array
    """Shape (N, 8, 8, 1), float32 from 0 to 1."""
    digits: Array
    """Shape (N,), integers from 0 to 9."""

    def one_hot(self) -> Array:
        """Return the labels as one-hot images (N, 1, 1, 10)."""
        return np.eye(CLASSES, dtype=np.float32)[self.digits][:, None, None]


def load() -> tuple[Digits, Digits]:
    """Load the digits.

    Returns
    -------
    learn, held_out : Digits
        1,198 digits to train on and 599 to test with.

    Raises
    ------
    UnsupportedError
        If scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise needs("the digits", "scikit-learn", "examples", error) from error
    data = load_digits()
    images = (data.images[..., None] / 16).astype(np.float32)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(images))
    held_out, rest = np.split(order, [len(order) // 3])
    learn, test = (Digits(images[indices], data.target[indices]) for indices in (rest, held_out))
    return learn, test
