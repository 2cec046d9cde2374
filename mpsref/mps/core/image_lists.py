"""Kernels that accept lists of arrays: the arrays are concatenated, and the result is split.

The images of all arrays have one size, and one state covers all arrays.

>>> import numpy as np
>>> array, lengths = joined("source_image", [np.zeros((1, 2, 2, 3)), np.ones((4, 2, 2, 3))])
>>> array.shape, [result.shape[0] for result in split(array, lengths)]
((5, 2, 2, 3), [1, 4])
"""

from __future__ import annotations

import itertools

from mpsref.arguments import arrays
from mpsref.arguments.parameters import PairLike
from mpsref.errors import ShapeError
from mpsref.mps.core.command_buffer import MPSCommandBuffer
from mpsref.mps.core.gradient_kernel import MPSCNNGradientKernel
from mpsref.mps.core.image_arguments import Encoded, ImageLike, ImageResult, batch_form
from mpsref.mps.core.kernel import MPSCNNKernel
from mpsref.mps.core.state import DestinationState, StateLike


def joined(name: str, value: ImageLike) -> tuple[ImageLike, list[int] | None]:
    """Concatenate a list of arrays; return the array, and the number of images of each.

    Anything else is returned unchanged, with ``None``. Raises ``ShapeError`` if the images differ in size, and the
    errors of :func:`~mpsref.arguments.arrays.as_image`.
    """
    if not (isinstance(value, (list, tuple)) and value and all(getattr(image, "ndim", 0) == 4 for image in value)):
        return value, None
    images = [arrays.as_image(f"{name}[{k}]", image) for k, image in enumerate(value)]
    sizes = {image.shape[1:] for image in images}
    if len(sizes) > 1:
        raise ShapeError(f"{name} is a list of images with (H, W, C) of {sorted(sizes)}; all must be equal")
    return arrays.concatenated(images), [image.shape[0] for image in images]


def split(result: Encoded, lengths: list[int] | None) -> Encoded:
    """Split a result into arrays with ``lengths`` images; of a tuple (image, state), the image."""
    if lengths is None:
        return result
    if isinstance(result, tuple):
        image, state = result
        return split(image, lengths), state
    ends = list(itertools.accumulate(lengths))
    return [result[end - length : end] for end, length in zip(ends, lengths, strict=True)]


class ForwardOfLists(MPSCNNKernel):
    """A forward kernel that accepts a list of arrays."""

    def encode(
        self,
        source_image: ImageLike,
        destination_image: ImageLike | None = None,
        *,
        destination_size: PairLike | None = None,
        return_state: bool = False,
        destination_state: DestinationState = None,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> Encoded:
        """Run the kernel on an image or on a list of arrays.

        Parameters
        ----------
        source_image : array_like, MPSImage, batch of images or list of ndarray
            The source (N, H, W, C), or a list of sources whose images have one size.
        destination_image : ndarray, MPSImage or batch of images, optional
            The destination; not allowed with a list.
        destination_size, return_state, destination_state, command_buffer : optional
            As in :meth:`mpsref.mps.MPSCNNKernel.encode`.

        Returns
        -------
        destination : ndarray, MPSImage, MPSImageBatch or list of ndarray
            Of the kind of ``source_image``; with ``return_state=True`` a tuple (destination, state).

        Raises
        ------
        ValueError, TypeError
            If an argument is not legal; see :meth:`mpsref.mps.MPSCNNKernel.encode`.
        """
        source, lengths = joined("source_image", source_image)
        if lengths is not None and destination_image is not None:
            raise ValueError("destination_image is given and source_image is a list; pass one array, or no destination")
        result = super().encode(
            source,
            destination_image,
            destination_size=destination_size,
            return_state=return_state,
            destination_state=destination_state,
            command_buffer=command_buffer,
        )
        return split(result, lengths)

    encode_batch = batch_form(encode)


class GradientOfLists(MPSCNNGradientKernel):
    """A gradient kernel that accepts lists of arrays."""

    def encode(  # type: ignore[override]  # as in the parent class
        self,
        source_gradient: ImageLike,
        source_image: ImageLike,
        gradient_state: StateLike | None = None,
        destination_gradient: ImageLike | None = None,
        *,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> ImageResult:
        """Return the gradient for the source image or for a list of arrays.

        Parameters
        ----------
        source_gradient, source_image : array_like, MPSImage, batch of images or list of ndarray
            Images as in :meth:`mpsref.mps.MPSCNNGradientKernel.encode`, or two lists of arrays that match pairwise.
        gradient_state : MPSNNGradientState or sequence of them, optional
            The state of the forward pass.
        destination_gradient : ndarray, MPSImage or batch of images, optional
            The destination; not allowed with a list.
        command_buffer : MPSCommandBuffer, optional
            The command buffer to encode on.

        Returns
        -------
        destination : ndarray, MPSImage, MPSImageBatch or list of ndarray
            Of the kind of ``source_gradient``.

        Raises
        ------
        ValueError, TypeError
            If an argument is not legal; see :meth:`mpsref.mps.MPSCNNGradientKernel.encode`.
        """
        (g, lengths), (x, others) = joined("source_gradient", source_gradient), joined("source_image", source_image)
        if lengths != others:
            raise ShapeError(
                f"source_gradient has {lengths or 'no'} parts and source_image {others or 'no'} parts; "
                "both must be arrays, or lists with equal numbers of images"
            )
        if lengths is not None and destination_gradient is not None:
            raise ValueError(
                "destination_gradient is given and source_image is a list; pass one array, or no destination"
            )
        result = super().encode(g, x, gradient_state, destination_gradient, command_buffer=command_buffer)
        return split(result, lengths)

    encode_batch = batch_form(encode)
