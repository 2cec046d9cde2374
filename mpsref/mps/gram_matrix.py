"""The Gram matrix of the channels of an image, of the loss of style transfer: kernel, gradient, and nodes of graphs.

>>> import numpy as np
>>> x = np.array([1, 2, 3, 4], np.float32).reshape(1, 2, 1, 2)
>>> gram = MPSNNGramMatrixCalculation(alpha=0.5)
>>> y, state = gram.encode(x, return_state=True)
>>> y[0, 0].tolist()
[[5.0, 7.0], [7.0, 10.0]]
>>> g = np.array([[1, 2], [0, 3]], np.float32).reshape(y.shape)
>>> MPSNNGramMatrixCalculationGradient(alpha=0.5).encode(g, x, state)[0, :, 0].tolist()
[[3.0, 7.0], [7.0, 15.0]]

``y[n, 0, f, c] = alpha * sum_p x[n, p, f] * x[n, p, c]`` [doc] is the gradient for the weights of a convolution of one
pixel whose source and source gradient both are x, times alpha. Its derivative ``dx[n, p, f] = alpha * sum_c (g[n, 0, f,
c] + g[n, 0, c, f]) * x[n, p, c]`` [math] is such a convolution, with the symmetric part of g as weights.

Source: ``MPSCNNConvolution.h``, ``MPSNNGraphNodes.h`` [doc].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array, Shape, concatenated
from mpsref.arguments.parameters import Pair, number
from mpsref.errors import ShapeError
from mpsref.kernels import Convolution
from mpsref.mps.core.call import Computation, problem_of
from mpsref.mps.core.kernel import saved
from mpsref.mps.core.properties import Argument, constructed
from mpsref.mps.core.whole_image import WholeImageGradient, WholeImageKernel
from mpsref.mps.graph.nodes import ForwardKernelNode, GradientKernelNode
from mpsref.registry import Backend

PIXEL = Convolution((1, 1))
"""A convolution of one pixel."""


def gram(x: Array, alpha: float, backend: str | Backend | None) -> Array:
    """Return the Gram matrices (N, 1, C, C) of images (N, H, W, C)."""
    sides = x.shape[3]
    if not x.shape[0]:
        return np.empty((0, 1, sides, sides), x.dtype)
    matrices = [PIXEL.gradient_weights(image[None], image[None], backend=backend)[0] for image in x]
    made: Array = concatenated([matrix.reshape(1, 1, sides, sides) for matrix in matrices]) * x.dtype.type(alpha)
    return made


def gram_gradient(g: Array, x: Array, alpha: float, backend: str | Backend | None) -> Array:
    """Return the gradient for images (N, H, W, C), from that for their Gram matrices."""
    weights = (g[:, 0] + g[:, 0].swapaxes(1, 2)) * g.dtype.type(alpha)
    sides = x.shape[3]
    if not x.shape[0]:
        return np.empty(x.shape, x.dtype)
    images = zip(x, weights.astype(x.dtype, copy=False), strict=True)
    results = [PIXEL.forward(image[None], w.reshape(sides, 1, 1, sides), backend=backend) for image, w in images]
    return concatenated(results)


@constructed(init=False)
class _Alpha:
    alpha: Argument[float] = Argument(number, "The factor of the result.", default=1.0, read_only=False)


@saved("alpha")
@constructed()
class MPSNNGramMatrixCalculation(_Alpha, WholeImageKernel):
    """The Gram matrix of the channels of each image, (N, H, W, C) to (N, 1, C, C)."""

    recorded = ("alpha",)
    _function: Any = None  # it has no functional form of its own

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        (_, height, width, channels), alpha = shapes[0], self.alpha
        problem = problem_of(PIXEL, "gradient_weights", (1, height, width, channels), channels, (height, width))
        return Computation(
            problem,
            compute=lambda images, backend: gram(images[0], alpha, backend),
            shape=(shapes[0][0], 1, channels, channels),
        )


@saved("alpha")
@constructed()
class MPSNNGramMatrixCalculationGradient(_Alpha, WholeImageGradient):
    """The gradient of :class:`MPSNNGramMatrixCalculation`; a state sets ``alpha``."""

    forward_class = MPSNNGramMatrixCalculation

    _from_record = ("alpha",)

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        (n, height, width, channels), alpha = shapes[1], self.alpha
        if shapes[0] != (expected := (n, 1, channels, channels)):
            raise ShapeError(f"source_gradient has shape {shapes[0]}; the result of the forward pass has {expected}")
        problem = problem_of(PIXEL, "forward", (1, height, width, channels), channels, (height, width), False)
        return Computation(
            problem,
            compute=lambda images, backend: gram_gradient(images[0], images[1], alpha, backend),
            shape=shapes[1],
        )


# --- nodes ------------------------------------------------------------------------------------------------------------


@constructed()
class MPSNNGramMatrixCalculationGradientNode(_Alpha, GradientKernelNode):
    """The gradient of the Gram matrix."""

    kernel_class, _called = MPSNNGramMatrixCalculationGradient, ("forward",)


@constructed()
class MPSNNGramMatrixCalculationNode(_Alpha, ForwardKernelNode):
    """The Gram matrix of the channels of an image, (N, 1, C, C)."""

    kind, spec_class, kernel_class, custom_policy = "gram", Convolution, MPSNNGramMatrixCalculation, "ignored"
    gradient_class, _called = MPSNNGramMatrixCalculationGradientNode, ("gradient_weights",)
