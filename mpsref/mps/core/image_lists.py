"""Kernels that take lists of arrays: the arrays are concatenated, and the result is split again.

All arrays have images of one size, and one state is that of all.

>>> import numpy as np
>>> array, lengths = joined("source_image", [np.zeros((1, 2, 2, 3)), np.ones((4, 2, 2, 3))])
>>> array.shape, [part.shape[0] for part in split(array, lengths)]
((5, 2, 2, 3), [1, 4])
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpsref.arguments import arrays
from mpsref.errors import ShapeError
from mpsref.mps.core.gradient_kernel import MPSCNNGradientKernel
from mpsref.mps.core.image_arguments import ImageLike
from mpsref.mps.core.kernel import MPSCNNKernel


def joined(name: str, value: Any) -> tuple[Any, list[int] | None]:
    """Return the images of a list of arrays as one array, and how many each has; anything else as it is, and ``None``.

    Raises ``ShapeError`` for images of several sizes, and errors as for a single array.
    """
    is_list = isinstance(value, (list, tuple)) and value and all(getattr(one, "ndim", 0) == 4 for one in value)
    if not is_list:
        return value, None
    parts = [arrays.as_image(f"{name}[{k}]", one) for k, one in enumerate(value)]
    sizes = {part.shape[1:] for part in parts}
    if len(sizes) > 1:
        raise ShapeError(f"{name} is a list of images with (H, W, C) of {sorted(sizes)}; all must be equal")
    return np.concatenate(parts), [part.shape[0] for part in parts]


def split(result: Any, lengths: list[int] | None) -> Any:
    """Split a result at the lengths of its source; of a result and a state, the result."""
    if lengths is None:
        return result
    if isinstance(result, tuple):
        image, state = result
        return split(image, lengths), state
    return np.split(result, np.cumsum(lengths)[:-1])


class ForwardOfLists(MPSCNNKernel):
    """A forward kernel that takes a list of arrays, and returns one for it."""

    def encode(self, source_image: ImageLike, destination_image: ImageLike | None = None, **options: Any) -> Any:
        """Run the kernel as :meth:`mpsref.mps.MPSCNNKernel.encode` says; for a list of arrays, on their images in turn.

        A list comes back for a list, one array for each; it cannot be combined with a ``destination_image``.
        """
        source, lengths = joined("source_image", source_image)
        if lengths is not None and destination_image is not None:
            raise ValueError("destination_image is given and source_image is a list; pass one array, or no destination")
        return split(super().encode(source, destination_image, **options), lengths)

    encode_batch = encode


class GradientOfLists(MPSCNNGradientKernel):
    """A gradient kernel that takes lists of arrays, and returns one for them."""

    def encode(  # type: ignore[override]  # as in the parent class
        self,
        source_gradient: ImageLike,
        source_image: ImageLike,
        gradient_state: Any = None,
        destination_gradient: ImageLike | None = None,
        **options: Any,
    ) -> Any:
        """Run the kernel as :meth:`mpsref.mps.MPSCNNGradientKernel.encode` says; lists of arrays must match pairwise.

        A list comes back for a list, one array for each; it cannot be combined with a ``destination_gradient``.
        """
        (g, lengths), (x, others) = joined("source_gradient", source_gradient), joined("source_image", source_image)
        if lengths != others:
            raise ShapeError(
                f"source_gradient has {lengths or 'no'} parts and source_image {others or 'no'} parts; "
                "both must be lists of as many images, or arrays"
            )
        if lengths is not None and destination_gradient is not None:
            raise ValueError(
                "destination_gradient is given and source_image is a list; pass one array, or no destination"
            )
        return split(super().encode(g, x, gradient_state, destination_gradient, **options), lengths)

    encode_batch = encode
