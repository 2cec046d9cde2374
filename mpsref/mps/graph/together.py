"""Data sources that are updated together.

Apple's graph asks each data source for new parameters by itself, and each answers with a state [doc]. A data source of
a convolution or of a batch normalization may have a method ``update_together`` in place of these callbacks [choice]:

``update_together(gradients)``
    with the gradients of weights and biases, for a convolution
``update_together(gradients, statistics)``
    with those of gamma and beta, and mean and variance of the batch (``None`` with stored statistics)

It gets arrays, which it must not change, and returns a function that the graph calls when the run has ended: that one
returns the new arrays by name, ``{"weights": ..., "biases": ...}``, or some of gamma, beta, mean and variance. So one
optimizer can step the parameters of all data sources at once, when the last gradients have come; a whole state for each
of them costs more than the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.errors import ShapeError
from mpsref.mps.convolution_loading import immutable

__all__ = ["TOGETHER", "fitting"]

TOGETHER = "update_together"


def fitting(source: str, answer: Any, known: Mapping[str, Array]) -> dict[str, Array]:
    """Return the arrays that the data source of ``source`` answered with, closed to changes.

    Raises ``ShapeError`` for one of another shape than that of its name in ``known``, ``TypeError`` for any other dtype
    than float32 (float64 stays, for work in float64) and for what is no such mapping.
    """
    what = f"{TOGETHER} of the data source of {source!r}"
    if not isinstance(answer, Mapping) or not answer.keys() <= known.keys():
        raise TypeError(f"{what} answered {answer!r}; it must be a mapping with some of {', '.join(known)}")
    for name, array in answer.items():
        if not isinstance(array, np.ndarray) or array.dtype not in (np.float32, np.float64):
            raise TypeError(f"{what} answered with {name} = {array!r}; it must be an array of dtype float32")
        if array.shape != known[name].shape:
            raise ShapeError(f"{what} answered with {name} of shape {array.shape}; it must be {known[name].shape}")
    return {name: immutable(array.copy()) if array.flags.writeable else array for name, array in answer.items()}
