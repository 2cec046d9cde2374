"""Dropout: elements are kept with a probability and scaled by its reciprocal, the others are 0.

Mask      ``keep = word < T``, ``T = max(1, floor(float32(p) * 2**32))``, a random word for each mask element
Forward   ``y = x * scale`` where the mask is 1, else +0; ``scale = float32(1) / float32(p)``
Gradient  ``dx = g * scale`` where the mask is 1, else +0: the mask of the forward pass, never a new one

A mask is 1 long on each axis whose mask stride is 0, and then holds for the whole axis. Element e of image n, counted
row by row over the mask, is word ``e & 3`` of Philox4x32-10 with counter ``(e >> 2, n, low, high)`` of the sequence
number, and key ``(low, high)`` of the seed. So a mask depends on its shape, p, seed, sequence and n alone.

Source: MPSCNNDropout, MPSCNNDropoutGradient in ``MPSCNNDropout.h``: scale, zeros and mask strides [doc]; the generator
is not documented, so no mask matches Apple's bit for bit [choice].
"""

from __future__ import annotations

import math
from dataclasses import field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from mpsref import codecs, operations, registry
from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array, ImageShape, Shape
from mpsref.arguments.parameters import integer, number, word_of
from mpsref.errors import ShapeError
from mpsref.kernels.philox import halves, philox4x32
from mpsref.kernels.posing import following, posed
from mpsref.kernels.reference import ErrorBound
from mpsref.operations import Declaration, Formula, OperationKey

BLOCK = 4
"""Mask elements that share a counter."""

LARGEST_MASK = 2**34
"""Elements of one image's mask: the counter of a block has 32 bits."""


class MaskProblem(operations.ImageProblem):
    """``mask``: no inputs; a uint8 mask (N, Hm, Wm, Cm)."""

    method: ClassVar[str] = "mask"
    spec: Dropout
    sequence: int = field(default=0, metadata={"codec": codecs.integer("seq")._replace(convert=None)})
    first_image_index: int = field(default=0, metadata={"codec": codecs.integer("first")._replace(convert=None)})

    def __post_init__(self) -> None:
        """Check the numbers that go into the counter."""
        super().__post_init__()
        object.__setattr__(self, "sequence", word_of("sequence", self.sequence, 64))
        object.__setattr__(self, "first_image_index", word_of("first_image_index", self.first_image_index, 32))
        n, *size = self.result_shapes[0]
        if self.first_image_index + n > 2**32:
            raise ValueError(
                f"first_image_index is {self.first_image_index} and the batch has {n} images; "
                "the index of each image must be < 2**32"
            )
        if math.prod(size) > LARGEST_MASK:
            raise ShapeError(f"the mask of an image has shape {tuple(size)}; it must have at most 2**34 elements")

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """Nothing is read."""
        return {}

    @property
    def result_shapes(self) -> tuple[ImageShape]:
        """The mask."""
        return (self.spec.mask_shape(self.source_shape),)

    def result_dtypes(self, *inputs: np.dtype[Any]) -> tuple[np.dtype[Any], ...]:
        """Bytes."""
        return (np.dtype(np.uint8),)

    @cached_property
    def elements(self) -> int:
        """Mask elements of one image."""
        return math.prod(self.result_shapes[0][1:])

    @cached_property
    def blocks(self) -> int:
        """Counters of one image."""
        return -(-self.elements // BLOCK)

    @property
    def words(self) -> tuple[int, int, int, int]:
        """The words of counter and key that are the same everywhere: sequence, then seed, each low and high."""
        return (*halves(self.sequence), *halves(self.spec.seed))


class DropoutProblem(operations.ImageProblem):
    """``forward`` or ``gradient``: an image (N, H, W, C) and a mask to an image of the same shape."""

    spec: Dropout
    image: ClassVar[str]
    """What the image is called."""

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The image and the mask."""
        return {self.image: self.source_shape, "mask": self.spec.mask_shape(self.source_shape)}

    @property
    def result_shapes(self) -> tuple[ImageShape]:
        """An image like the first."""
        return (self.source_shape,)

    def input_dtypes(self, image: np.dtype[Any]) -> dict[str, np.dtype[Any]]:
        """The mask is of bytes."""
        return {self.image: image, "mask": np.dtype(np.uint8)}

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Make a mask of 0 and 1 of arbitrary numbers."""
        return drawn | {"mask": (drawn["mask"].astype(np.int64) & 1).astype(np.uint8)}


class DropoutForward(DropoutProblem):
    """``forward``: y from x."""

    method: ClassVar[str] = "forward"
    image: ClassVar[str] = "x"


class DropoutGradient(DropoutProblem):
    """``gradient``: dx from g."""

    method: ClassVar[str] = "gradient"
    image: ClassVar[str] = "g"


class Dropout(operations.Spec):
    """Dropout.

    ``keep_probability`` is rounded to float32 and then lies in (0, 1); ``seed`` in [0, 2**64). ``mask_strides`` are
    for (y, x, c): 1 is a mask value of its own at each position of the axis, 0 is one for the whole axis.

    >>> drop = Dropout(keep_probability=0.5, seed=1)
    >>> x = np.ones((1, 2, 3, 2), np.float32)
    >>> mask = drop.mask(x.shape)
    >>> mask.ravel().tolist()
    [0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0]
    >>> drop.forward(x, mask).ravel().tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0, 2.0, 0.0, 0.0, 0.0]
    """

    keep_probability: float = field(default=0.5, metadata={"codec": codecs.number("keep")})
    seed: int = field(default=0, metadata={"codec": codecs.integer("key")._replace(convert=None)})
    mask_strides: tuple[int, int, int] = field(default=(1, 1, 1), metadata={"codec": codecs.triple("ms")})

    problems: ClassVar = {"mask": MaskProblem, "forward": DropoutForward, "gradient": DropoutGradient}

    def __post_init__(self) -> None:
        """Check every parameter."""
        object.__setattr__(self, "keep_probability", probability("keep_probability", self.keep_probability))
        object.__setattr__(self, "seed", word_of("seed", self.seed, 64))
        object.__setattr__(self, "mask_strides", _strides(self.mask_strides))

    @cached_property
    def threshold(self) -> int:
        """T: a mask element is 1 if its random word is smaller."""
        return max(1, math.floor(self.keep_probability * 2.0**32))

    @cached_property
    def scale(self) -> np.float32:
        """What kept elements are multiplied by."""
        return np.float32(1) / np.float32(self.keep_probability)

    def mask_shape(self, shape: Shape) -> ImageShape:
        """Return the shape (N, Hm, Wm, Cm) of the mask of images of ``shape``."""
        (n, height, width, channels), (y, x, c) = shape, self.mask_strides
        return n, height if y else 1, width if x else 1, channels if c else 1

    def mask(
        self, shape: Any, sequence: Any = 0, first_image_index: Any = 0, *, out: Any = None, backend: Any = None
    ) -> Array:
        """Return the mask, uint8 (N, Hm, Wm, Cm) of 0 and 1, for images of ``shape`` (N, H, W, C).

        Another ``sequence``, in [0, 2**64), gives another mask. Image n of the batch is image
        ``first_image_index + n``, < 2**32, of the whole: parts of a batch get the masks that the whole would.
        """
        first = word_of("first_image_index", first_image_index, 32)
        problem = posed(MaskProblem, self, arrays.as_shape("shape", shape), 0, first)
        problem = following(problem, sequence=word_of("sequence", sequence, 64))
        return registry.run_one(problem, out=out, backend=backend)

    def forward(self, x: Any, mask: Any, *, out: Any = None, backend: Any = None) -> Array:
        """Return ``x`` (N, H, W, C), scaled where ``mask`` is 1 and 0 where it is 0, in the dtype of ``x``."""
        return self._apply(DropoutForward, "x", x, mask, out, backend)

    def gradient(self, g: Any, mask: Any, *, out: Any = None, backend: Any = None) -> Array:
        """Return dL/dx from ``g`` = dL/dy, (N, H, W, C), and the mask of the forward pass, in the dtype of ``g``."""
        return self._apply(DropoutGradient, "g", g, mask, out, backend)

    def _apply(self, kind: type[DropoutProblem], name: str, image: Any, mask: Any, out: Any, backend: Any) -> Array:
        image = arrays.as_image(name, image)
        problem = posed(kind, self, image.shape)
        return registry.run_one(problem, image, self.checked_mask(mask, image.shape), out=out, backend=backend)

    def checked_mask(self, mask: Any, shape: Shape) -> Array:
        """Return ``mask`` as an array if it is a mask for images of ``shape``.

        Raises ``TypeError`` unless it is uint8, ``ShapeError`` for another shape, ``ValueError`` for other values than
        0 and 1.
        """
        array = arrays.as_array("mask", mask)
        expected = self.mask_shape(shape)
        if array.dtype != np.uint8:
            raise TypeError(f"mask has dtype {array.dtype}; it must be uint8, 1 where an element is kept, else 0")
        if array.shape != expected:
            raise ShapeError(
                f"mask has shape {array.shape}; with mask_strides {self.mask_strides} it must be {expected} for images "
                f"of shape {tuple(shape)}"
            )
        if array.max(initial=0) > 1:
            raise ValueError(f"mask contains {array.max()}; its values must be 0 or 1")
        return array


def probability(name: str, value: Any) -> float:
    """Return ``value`` rounded to float32 if it is then in (0, 1), and not so small that the scale is infinite."""
    # Rounding may lead to 1 or 0; below 2**-126 the scale would not be finite.
    with np.errstate(over="ignore", under="ignore"):
        rounded = float(np.float32(number(name, value)))
    if not 2.0**-126 <= rounded < 1:
        raise ValueError(
            f"{name} is {value!r}, {rounded!r} as a float32; it must be > 0, at least 2**-126, and < 1: "
            "to keep everything, leave dropout out"
        )
    return rounded


def _strides(value: Any) -> tuple[int, int, int]:
    if not isinstance(value, (tuple, list)) or len(value) != 3:
        raise ValueError(f"mask_strides is {value!r}; it must be three numbers (y, x, c), each 0 or 1")
    strides = tuple(integer(f"mask_strides[{axis}]", stride, low=0) for axis, stride in enumerate(value))
    for axis, stride in enumerate(strides):
        if stride > 1:
            raise ValueError(f"mask_strides[{axis}] is {stride}; it must be 0 (one value for the axis) or 1")
    y, x, c = strides
    return y, x, c


def random_words(problem: MaskProblem) -> Array:
    """Return the random word of every mask element, (N, elements)."""
    n = problem.source_shape[0]
    image = (problem.first_image_index + np.arange(n, dtype=np.uint64))[:, None]
    block = np.arange(problem.blocks, dtype=np.uint64)[None]
    low, high, *key = problem.words
    sequence_low, sequence_high = np.array([[[low]], [[high]]], np.uint64)
    words = philox4x32((block, image, sequence_low, sequence_high), (key[0], key[1]))
    return np.stack(np.broadcast_arrays(*words), axis=-1).reshape(n, BLOCK * problem.blocks)[:, : problem.elements]


def mask(problem: MaskProblem) -> Array:
    """keep = word < T."""
    keep: Array = random_words(problem) < problem.spec.threshold
    return keep.astype(np.uint8).reshape(problem.result_shapes[0])


def apply(problem: DropoutProblem, image: Array, mask: Array) -> Array:
    """y = x * scale where the mask is 1, else 0 whatever x is: forward and gradient are the same."""
    return np.where(mask != 0, image * image.dtype.type(problem.spec.scale), 0)


def mask_terms(problem: MaskProblem) -> ErrorBound:
    """Nothing may differ."""
    return ErrorBound(np.zeros(problem.result_shapes[0]), np.float64(0), exact=True)


def terms(problem: DropoutProblem, image: Array, mask: Array) -> ErrorBound:
    """One rounding to float32 where an element is kept, then that to its storage; equal where scale is a power of 2."""
    dyadic = math.frexp(problem.spec.scale)[0] == 0.5
    kept = np.broadcast_to(mask != 0, image.shape)
    return ErrorBound.of_error(np.abs(apply(problem, image, mask)) * 2.0**-24, ~kept | dyadic)


SPECS: tuple[type[operations.Spec], ...] = (Dropout,)
REFERENCE: dict[OperationKey, Formula] = {
    (Dropout, "mask"): mask,
    (Dropout, "forward"): apply,
    (Dropout, "gradient"): apply,
}
TERMS: dict[OperationKey, Formula] = {
    (Dropout, "mask"): mask_terms,
    (Dropout, "forward"): terms,
    (Dropout, "gradient"): terms,
}

for _spec_type, _method in REFERENCE:
    _spec_type.declared[_method] = Declaration(REFERENCE[_spec_type, _method], TERMS[_spec_type, _method])
