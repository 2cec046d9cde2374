"""Calls of the kernels that compute one image from another: what they share."""

from __future__ import annotations

from numpy.typing import ArrayLike

from mpsref.arguments.arrays import Array, Shape
from mpsref.backend import BackendLike
from mpsref.operations import Spec
from mpsref.registry import call


class OneImage(Spec):
    """Base of the kernels of one image without further arguments."""

    def forward(self, x: ArrayLike, *, out: Array | None = None, backend: BackendLike = None) -> Array:
        """Compute the kernel of each image of a batch.

        Parameters
        ----------
        x : array_like, shape (N, H, W, C)
            Source image.

        Returns
        -------
        ndarray
            In the dtype of ``x``; the class states its shape, by default that of ``x``.

        Raises
        ------
        ShapeError
            If the parameters of the kernel do not fit to an image of this shape.
        """
        return call(self, "forward", (x,), out=out, backend=backend)


class ReadsPixels(OneImage):
    """Base of those whose gradient depends on the source image."""

    def gradient(self, g: ArrayLike, x: ArrayLike, *, out: Array | None = None, backend: BackendLike = None) -> Array:
        """Compute dL/dx from the source gradient dL/dy.

        Parameters
        ----------
        g, x : array_like, shape (N, H, W, C)
            Source gradient, in the shape of the result, and the source image of the forward pass.

        Raises
        ------
        ShapeError
            If the shapes of ``g`` and ``x`` differ, and as in :meth:`forward`.
        """
        return call(self, "gradient", (g, x), out=out, backend=backend)


class ReadsShape(OneImage):
    """Base of those whose gradient depends on the shape of the source image alone."""

    def gradient(
        self, g: ArrayLike, x_or_shape: ArrayLike | Shape, *, out: Array | None = None, backend: BackendLike = None
    ) -> Array:
        """Compute dL/dx from the source gradient dL/dy.

        Parameters
        ----------
        g : array_like, shape (N, H', W', C')
            Source gradient, in the shape of the result.
        x_or_shape : array_like, shape (N, H, W, C), or its shape
            Source image of the forward pass, of which only the shape counts.

        Raises
        ------
        ShapeError
            If ``g`` does not have the shape of the result, and as in :meth:`forward`.
        """
        return call(self, "gradient", (g, x_or_shape), out=out, backend=backend)
