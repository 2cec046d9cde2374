"""Batch normalization in training, as the instance normalization of a batch whose images lie below each other.

Mean and variance over a batch are those of one large image. So the operations of instance normalization, with their
bounds and layers, test what ``batch_norm`` computes in training: its result, and the gradients for image, scale and
shift.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpsref import InstanceNormalization
from mpsref.arguments.arrays import Array
from mpsref.frameworks.adapter import Function, Table
from mpsref_torch.run import Torch

IMAGES = 4
"""At most so many images of a batch."""


def batch_of(image: Array) -> Array:
    """Return an image (H, W, C) as a batch (N, H / N, W, C): a view, or a copy if it is contiguous in PyTorch's order.

    >>> batch_of(np.zeros((6, 2, 5))).shape
    (3, 2, 2, 5)
    """
    height, width, channels = image.shape
    count = next(n for n in range(IMAGES, 0, -1) if height % n == 0)
    batch = image.reshape(count, height // count, width, channels)
    if image.transpose(2, 0, 1).flags.c_contiguous:
        return np.ascontiguousarray(batch.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    return batch


def table(torch: Torch) -> Table:
    """Return the implementations of PyTorch on a device."""

    def layer(problem: Any) -> Function:
        batch_norm, epsilon = torch.functional.batch_norm, problem.spec.epsilon
        return lambda x, gamma, beta: batch_norm(x, None, None, gamma, beta, training=True, eps=epsilon)

    def forward(problem: Any, x: Array, *vectors: Array, out: Array) -> None:
        parameters = [one.astype(x.dtype, copy=False) for one in problem.parameters(vectors, x.dtype)]
        for image, result in zip(x, out, strict=True):
            result[...] = torch.run(layer(problem), batch_of(image), *parameters).reshape(result.shape)

    def gradient(problem: Any, g: Array, x: Array, *vectors: Array, out: tuple[Array, Array, Array]) -> None:
        gamma = problem.parameters(vectors, x.dtype).astype(x.dtype, copy=False)
        for k, (image, upstream) in enumerate(zip(x, g, strict=True)):
            arrays = [batch_of(image), gamma, np.zeros_like(gamma)]
            found = torch.gradients(layer(problem), arrays, batch_of(upstream), count=3)
            for result, array in zip(out, found, strict=True):
                result[k] = array.reshape(result[k].shape)

    return {(InstanceNormalization, "forward"): forward, (InstanceNormalization, "gradient"): gradient}
