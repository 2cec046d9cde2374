"""Kernels of one's own in a graph: Python functions, or Metal kernels that the package anymetal runs.

MPS has no node for them: on a device a graph ends before such a kernel, which is encoded by itself, and a second graph
begins behind it; the pixels are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import Pair
from mpsref.arguments.text import shown
from mpsref.errors import ShapeError
from mpsref.geometry import ceil_div
from mpsref.mps.core.call import Computation
from mpsref.mps.core.image import CHANNELS_PER_SLICE, MPSImage
from mpsref.mps.core.image_kernels import MPSCNNMultiaryKernel
from mpsref.mps.core.properties import Property, backend_like, optional
from mpsref.mps.core.whole_image import WholeImage
from mpsref.mps.graph.nodes import (
    MPSNNFilterNode,
    MPSNNGradientFilterNode,
    MPSNNImageNode,
    MPSNNStateNode,
    StepCall,
)
from mpsref.registry import Backend

GROUP = 8, 8, 1
"""The threads of a threadgroup of a Metal kernel."""

CustomKernel: TypeAlias = Callable[..., object]
"""``kernel(*sources, result)`` on :class:`~mpsref.mps.MPSImage` objects, or a kernel of ``anymetal.compile``."""


def _launched(name: str, kernel: object, sources: int) -> CustomKernel:
    """Return a function of images from an argument of a node."""
    images: Any = getattr(kernel, "images", None)
    if not isinstance(images, Mapping) or "texture" not in images:
        if callable(kernel):
            return kernel
        raise TypeError(
            f"{name} is of type {type(kernel).__name__}; it must be a function of images, kernel(*sources, result), or "
            "a kernel of anymetal.compile"
        )
    launch, textures = kernel, [images["texture"][index] for index in sorted(images["texture"])]
    writes = [one.is_written for one in textures]
    others = [*getattr(kernel, "parameters", ()), *images["sampler"]]
    if writes != [False] * sources + [True] or others:
        declared = ", ".join(f"`{one.text}`" for one in textures)
        raise ValueError(
            f"{name} has the textures {declared}{' and other arguments' * bool(others)}; it must have {sources} that "
            "it reads and, last, one that it writes: for others pass a function of images that launches it"
        )

    def run(*given: MPSImage) -> None:
        result = given[-1]
        slices = result.number_of_images * ceil_div(result.feature_channels, CHANNELS_PER_SLICE)
        launch((result.width, result.height, slices), GROUP, textures=given)  # type: ignore[operator]

    return run


def _image(array: Array) -> MPSImage:
    """Return a new image; of float64, too, in which gradients of functions are checked."""
    if array.dtype != np.float64:
        return MPSImage(array)
    image = MPSImage.__new__(MPSImage)
    image._array = array.copy()
    return image


def _run(node: MPSNNFilterNode, kernel: CustomKernel, images: Sequence[Array], shape: Shape) -> Array:
    """Return what a kernel writes into an image that starts as NaN."""
    result = _image(np.full(shape, np.nan, images[0].dtype.newbyteorder("=")))
    try:
        kernel(*map(_image, images), result)
    except Exception as error:
        error.add_note(f"in the kernel of {type(node).__name__} {node.name!r}")
        raise
    return result.array


class _Own(WholeImage, MPSCNNMultiaryKernel):
    """The kernel of a :class:`CustomKernelNode`."""

    fixed, recorded = (), ()
    _function: Any = None
    _node: CustomKernelNode

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        node, shape = self._node, shapes[0]
        if node._shape is not None:
            shape = arrays.as_shape("the result of shape", tuple(node._shape(*shapes)))
            if shape[0] != shapes[0][0]:
                raise ShapeError(f"shape returned {shape}; the number of images must be {shapes[0][0]}")
        return Computation(compute=lambda images, backend: _run(node, node._kernel_of_own, images, shape), shape=shape)


class CustomKernelGradientNode(MPSNNGradientFilterNode):
    """The gradient of a :class:`CustomKernelNode` for one source; not a class of MPS."""

    _of_each = True
    backend: Property[str | Backend | None] = Property(
        optional(backend_like), "reference", "Its kernel runs where it was compiled for.", read_only=True
    )

    def __init__(
        self,
        source_gradient: MPSNNImageNode,
        source_image: MPSNNImageNode,
        gradient_state: MPSNNStateNode,
        source_index: int = 0,
        **properties: object,
    ) -> None:
        forward = getattr(gradient_state, "producer", None)
        images = forward.source_images if isinstance(forward, CustomKernelNode) else ()
        others = [image for number, image in enumerate(images) if number != source_index]
        super().__init__(
            source_gradient, source_image, gradient_state, *others, source_index=source_index, **properties
        )

    def _compute(self, step: StepCall, *images: Array) -> Array:
        forward = self.forward
        assert isinstance(forward, CustomKernelNode)
        gradient, own, *sources = images
        sources.insert(self.source_index, own)
        kernel = forward._gradients[self.source_index]
        assert kernel is not None
        return _run(self, kernel, [gradient, *sources], step.call.shape)


class CustomKernelNode(MPSNNFilterNode):
    """A kernel of one's own; not a class of MPS.

    Parameters
    ----------
    sources : MPSNNImageNode or sequence of MPSNNImageNode
        The images that it reads.
    kernel : callable
        ``kernel(*sources, result)`` writes into the last of its arguments, which are :class:`~mpsref.mps.MPSImage`
        objects; the pixels of the result are NaN before. Or a kernel of ``anymetal.compile`` that has textures alone,
        the sources and then the result, and computes one texel in a thread. It is launched by one thread for each texel
        of the result, in threadgroups of 8 x 8.
    gradient : callable or sequence, optional
        ``gradient(source_gradient, *sources, result)``, or a kernel as above, writes the gradient of the source; of
        several sources one for each, ``None`` for a source without gradient.
    shape : callable, optional
        ``shape(*source shapes)`` returns the shape (N, H, W, C) of the result. By default it is that of the first
        source.
    **properties : object
        ``label`` and the other properties.

    Raises
    ------
    TypeError
        If ``kernel`` or ``gradient`` cannot be called.
    ValueError
        For a Metal kernel with other textures, or with buffers, and for another number of gradients than of sources.

    Notes
    -----
    The kernel has no parameters that are trained. It runs on the host, or on the runtime that it was compiled for,
    whatever the backend of the graph, whose images and results are then on the host.

    Examples
    --------
    >>> import numpy as np
    >>> from mpsref.mps import graph
    >>> def square(x, y):
    ...     y.array[...] = x.array**2
    >>> def gradient(g, x, dx):
    ...     dx.array[...] = 2 * x.array * g.array
    >>> x = graph.MPSNNImageNode("x")
    >>> node = graph.CustomKernelNode(x, square, gradient)
    >>> made = graph.training_graph(graph.MPSNNInitialGradientNode(node.result_image))
    >>> result = graph.MPSNNGraph([node.result_image, made.gradient_image(x)]).run([np.array([[[[2.0, 3.0]]]])])
    >>> [image.ravel().tolist() for image in result.images]
    [[4.0, 9.0], [4.0, 6.0]]
    """

    kind = "custom"
    gradient_class = CustomKernelGradientNode
    why_no_gradient = (
        "no gradient was given: make it with gradient=..., a kernel that writes the gradient of the source"
    )
    backend: Property[str | Backend | None] = Property(
        optional(backend_like), "reference", "Its kernel runs where it was compiled for.", read_only=True
    )

    def __init__(
        self,
        sources: MPSNNImageNode | Sequence[MPSNNImageNode],
        kernel: CustomKernel,
        gradient: CustomKernel | Sequence[CustomKernel | None] | None = None,
        shape: Callable[..., Sequence[int]] | None = None,
        **properties: object,
    ) -> None:
        given: Any = sources if isinstance(sources, (list, tuple)) else [sources]
        if not given:
            raise ValueError("sources is empty; a kernel reads one image or more")
        super().__init__(given, (), **properties)
        count = len(given)
        alone = [gradient] * (count if gradient is None else 1)
        gradients = gradient if isinstance(gradient, (list, tuple)) else alone
        if len(gradients) != count:
            raise ValueError(f"gradient has {len(gradients)} kernels; it must have one for each of {count} sources")
        self._kernel_of_own = _launched("kernel", kernel, count)
        self._gradients = [one if one is None else _launched("gradient", one, count + 1) for one in gradients]
        if shape is not None and not callable(shape):
            raise TypeError(f"shape is {shown(shape)}; it must be a function of the shapes of the sources")
        self._shape = shape

    @property
    def differentiable_sources(self) -> Sequence[int]:
        """The numbers of the sources with a gradient kernel."""
        return [number for number, one in enumerate(self._gradients) if one is not None]

    def _kernel(self) -> _Own:
        kernel = _Own(len(self.source_images))
        kernel._node = self
        return kernel
