"""Where the windows of a forward node lie: what its padding policy decides about a kernel of the same parameters."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Shape
from mpsref.mps.core.image_arguments import ImageArgument
from mpsref.mps.core.kernel import ImageKernel

__all__ = ["placed"]


def placed(kernel: ImageKernel, *shapes: Shape) -> Shape:
    """Let the padding policy of ``kernel`` set its offsets for sources of these shapes; return the result's shape.

    A policy of the application sees images of the right size whose pixels are 0.
    """
    images = (np.broadcast_to(np.float32(0), shape) for shape in shapes)
    sources = [ImageArgument(f"source_images[{k}]", image, image) for k, image in enumerate(images)]
    return kernel._place(sources)[0]
