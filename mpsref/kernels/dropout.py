"""Dropout: elements are kept with a probability and scaled by its reciprocal, the others are 0.

Mask      ``keep = word < T``, ``T = max(1, floor(float32(p) * 2**32))``, a random word for each mask element
Forward   ``y = x * scale`` where the mask is 1, else +0; ``scale = float32(1) / float32(p)``
Gradient  ``dx = g * scale`` where the mask is 1, else +0: the mask of the forward pass, never a new one

A mask is 1 long on each axis whose mask stride is 0, and then holds for the whole axis. Element e of image n, counted
row by row over the mask, is word ``e & 3`` of Philox4x32-10 with counter ``(low, high, n, e >> 2)`` of the sequence
number, and key ``(low, high)`` of the seed. A mask depends only on its shape, p, seed, sequence and n.

Source: MPSCNNDropout, MPSCNNDropoutGradient in ``MPSCNNDropout.h``: scale, zeros and mask strides [doc]; the generator
is not documented. The first mask is a guess: the words are those of MPSGraph's generator, whose counter is
``(0, 0, 0, block)`` and whose key is the seed [choice dropout-generator].
The generator: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from anymetal.fork_safe import cached_property
from mpsref import codecs
from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array, ImageShape, Shape
from mpsref.arguments.device import is_on_device
from mpsref.arguments.parameters import Triple, number, triple
from mpsref.arguments.text import shown
from mpsref.backend import BackendLike
from mpsref.codecs import parameter
from mpsref.errors import ShapeError
from mpsref.kernels.reference import ErrorBound, selected
from mpsref.operations import Argument, ImageProblem, Spec, operation
from mpsref.registry import call

BLOCK = 4
"""Mask elements that share a counter."""

LARGEST_MASK = 2**34
"""Elements of one image's mask: the counter of a block has 32 bits."""

Bits: TypeAlias = npt.NDArray[np.uint64]
"""32-bit words; 64 bits wide, so that products fit."""

MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
WEYL = 0x9E3779B9, 0xBB67AE85
"""What is added to the two words of the key after each round."""
ROUNDS = 10

LOW = np.uint64(0xFFFFFFFF)
SHIFT = np.uint64(32)


def halves(number: int) -> tuple[int, int]:
    """Return the low and the high 32 bits of a 64-bit number."""
    return number & 0xFFFFFFFF, number >> 32


def philox4x32(counter: tuple[Bits, Bits, Bits, Bits], key: tuple[int, int]) -> tuple[Bits, Bits, Bits, Bits]:
    """Return four random words of each counter; the arrays broadcast against each other.

    Philox4x32-10 has no state: any word of the stream is computed alone, so a mask does not depend on how the work is
    divided. Ten rounds of 32-bit multiplications and exclusive ors.

    >>> zero = np.zeros(1, np.uint64)
    >>> [f"{int(word[0]):08x}" for word in philox4x32((zero, zero, zero, zero), (0, 0))]
    ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
    """
    c0, c1, c2, c3 = counter
    k0, k1 = (np.uint64(word) for word in key)
    for _ in range(ROUNDS):
        product0, product1 = np.uint64(MULTIPLIERS[0]) * c0, np.uint64(MULTIPLIERS[1]) * c2
        c0, c1 = (product1 >> SHIFT) ^ c1 ^ k0, product1 & LOW
        c2, c3 = (product0 >> SHIFT) ^ c3 ^ k1, product0 & LOW
        k0, k1 = (k0 + np.uint64(WEYL[0])) & LOW, (k1 + np.uint64(WEYL[1])) & LOW
    return c0, c1, c2, c3


def probability(name: str, value: object) -> float:
    """Return ``value`` rounded to float32 if it is then in (0, 1), and not so small that the scale is infinite."""
    # Rounding may lead to 1 or 0; below 2**-126 the scale would not be finite.
    with np.errstate(over="ignore", under="ignore"):
        rounded = float(np.float32(number(name, value)))
    if not 2.0**-126 <= rounded < 1:
        raise ValueError(
            f"{name} is {shown(value)}, {rounded!r} as a float32; it must be > 0, at least 2**-126, and < 1: "
            "to keep everything, leave dropout out"
        )
    return rounded


def _strides(name: str, value: object) -> Triple:
    if not isinstance(value, (tuple, list)) or len(value) != 3:
        raise ValueError(f"{name} is {shown(value)}; it must be three numbers (y, x, c), each 0 or 1")
    strides = triple(name, value, low=0)
    for axis, stride in enumerate(strides):
        if stride > 1:
            raise ValueError(f"{name}[{axis}] is {stride}; it must be 0 (one value for the axis) or 1")
    return strides


class Dropout(Spec):
    """Dropout.

    Parameters
    ----------
    keep_probability : float, optional
        Rounded to float32, and then in (0, 1).
    seed : int, optional
        In [0, 2**64).
    mask_strides : tuple of int, optional
        For (y, x, c): 1 is a mask value of its own at each position of the axis, 0 is one for the whole axis.

    Examples
    --------
    >>> drop = Dropout(keep_probability=0.5, seed=1)
    >>> x = np.ones((1, 2, 3, 2), np.float32)
    >>> mask = drop.mask(x.shape)
    >>> mask.ravel().tolist()
    [0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]
    >>> drop.forward(x, mask).ravel().tolist()
    [0.0, 0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]
    """

    keep_probability: float = parameter(codecs.number("keep")._replace(convert=probability), default=0.5)
    seed: int = parameter(codecs.unsigned("key", 64), default=0)
    mask_strides: Triple = parameter(codecs.triple("ms")._replace(convert=_strides), default=(1, 1, 1))

    @cached_property
    def threshold(self) -> int:
        """T: a mask element is 1 if its random word is smaller."""
        return max(1, math.floor(self.keep_probability * 2.0**32))

    @cached_property
    def scale(self) -> np.float32:
        """The factor of kept elements."""
        return np.float32(1) / np.float32(self.keep_probability)

    def mask_shape(self, shape: Shape) -> ImageShape:
        """Return the shape (N, Hm, Wm, Cm) of the mask of images of ``shape``."""
        (n, height, width, channels), (y, x, c) = shape, self.mask_strides
        return n, height if y else 1, width if x else 1, channels if c else 1

    def mask(
        self,
        shape: Shape,
        sequence: int = 0,
        first_image_index: int = 0,
        *,
        out: Array | None = None,
        backend: BackendLike = None,
    ) -> Array:
        """Draw a mask.

        Parameters
        ----------
        shape : tuple of int
            (N, H, W, C) of the images.
        sequence : int, optional
            In [0, 2**64); another one gives another mask.
        first_image_index : int, optional
            Index, < 2**32, of the first image within a larger batch: the masks of a part of a batch equal those of
            the whole batch.

        Returns
        -------
        ndarray, shape (N, Hm, Wm, Cm)
            uint8, of 0 and 1.
        """
        fields = {"source_shape": arrays.as_shape("shape", shape), "first_image_index": first_image_index}
        return call(self, "mask", (), out=out, backend=backend, varying={"sequence": sequence}, **fields)

    def forward(self, x: ArrayLike, mask: ArrayLike, *, out: Array | None = None, backend: BackendLike = None) -> Array:
        """Scale ``x`` where the mask is 1, and return 0 where it is 0.

        Parameters
        ----------
        x : array_like, shape (N, H, W, C)
            Source image.
        mask : array_like, shape (N, Hm, Wm, Cm)
            uint8, of 0 and 1.

        Raises
        ------
        ShapeError, TypeError, ValueError
            If ``mask`` has a wrong shape, dtype or value.
        """
        x = arrays.as_image("x", x)
        return call(self, "forward", (x, self.checked_mask(mask, x.shape)), out=out, backend=backend)

    def gradient(
        self, g: ArrayLike, mask: ArrayLike, *, out: Array | None = None, backend: BackendLike = None
    ) -> Array:
        """Compute dL/dx from ``g`` = dL/dy and the mask of the forward pass; otherwise as :meth:`forward`."""
        g = arrays.as_image("g", g)
        return call(self, "gradient", (g, self.checked_mask(mask, g.shape)), out=out, backend=backend)

    def checked_mask(self, mask: Any, shape: Shape) -> Array:
        """Return ``mask`` as an array if it is a mask for images of ``shape``.

        Raises ``TypeError`` unless it is uint8, ``ShapeError`` for another shape, ``ValueError`` for other values than
        0 and 1; the values of an array on a device are not read.
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
        if not is_on_device(array) and array.max(initial=0) > 1:
            raise ValueError(f"mask contains {array.max()}; its values must be 0 or 1")
        return array


MASK = Argument("mask_shape", "uint8")


class MaskedProblem(ImageProblem):
    """Base of the three problems: the shape of the mask."""

    spec: Dropout

    @property
    def mask_shape(self) -> ImageShape:
        """(N, Hm, Wm, Cm)."""
        return self.spec.mask_shape(self.source_shape)


class MaskProblem(MaskedProblem, method="mask", inputs={}, results={"mask": MASK}):
    """``mask``: no inputs; a uint8 mask (N, Hm, Wm, Cm)."""

    sequence: int = parameter(codecs.unsigned("seq", 64), default=0)
    first_image_index: int = parameter(codecs.unsigned("first", 32), default=0)

    def _check(self) -> None:
        n, *size = self.mask_shape
        if self.first_image_index + n > 2**32:
            raise ValueError(
                f"first_image_index is {self.first_image_index} and the batch has {n} images; "
                "the index of each image must be < 2**32"
            )
        if math.prod(size) > LARGEST_MASK:
            raise ShapeError(f"the mask of an image has shape {tuple(size)}; it must have at most 2**34 elements")

    @cached_property
    def elements(self) -> int:
        """Mask elements of one image."""
        return math.prod(self.mask_shape[1:])

    @cached_property
    def blocks(self) -> int:
        """Counters of one image."""
        return -(-self.elements // BLOCK)

    @property
    def words(self) -> tuple[int, int, int, int]:
        """The words of counter and key that are the same everywhere: sequence, then seed, each low and high."""
        return (*halves(self.sequence), *halves(self.spec.seed))


class DropoutProblem(MaskedProblem):
    """Base of ``forward`` and ``gradient``: an image (N, H, W, C) and a mask to an image of the same shape."""

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Convert arbitrary numbers into a mask of 0 and 1."""
        return drawn | {"mask": (drawn["mask"].astype(np.int64) & 1).astype(np.uint8)}


class DropoutForward(DropoutProblem, method="forward", inputs={"x": "n h w c", "mask": MASK}, results={"y": "n h w c"}):
    """``forward``: y from x."""


class DropoutGradient(
    DropoutProblem, method="gradient", inputs={"g": "n h w c", "mask": MASK}, results={"dx": "n h w c"}
):
    """``gradient``: dx from g."""


def random_words(problem: MaskProblem) -> Array:
    """Return the random word of every mask element, (N, elements)."""
    n = problem.source_shape[0]
    image = (problem.first_image_index + np.arange(n, dtype=np.uint64))[:, None]
    block = np.arange(problem.blocks, dtype=np.uint64)[None]
    low, high, *key = problem.words
    sequence_low, sequence_high = np.array([[[low]], [[high]]], np.uint64)
    words = philox4x32((sequence_low, sequence_high, image, block), (key[0], key[1]))
    return np.stack(np.broadcast_arrays(*words), axis=-1).reshape(n, BLOCK * problem.blocks)[:, : problem.elements]


@operation(Dropout, problem=MaskProblem, bound=selected)
def mask(problem: MaskProblem) -> Array:
    """keep = word < T."""
    keep: Array = random_words(problem) < problem.spec.threshold
    return keep.astype(np.uint8).reshape(problem.mask_shape)


def apply_bound(problem: DropoutProblem, image: Array, mask: Array) -> ErrorBound:
    """One rounding to float32 where an element is kept, then that to its storage; equal where scale is a power of 2."""
    dyadic = math.frexp(problem.spec.scale)[0] == 0.5
    kept = np.broadcast_to(mask != 0, image.shape)
    return ErrorBound(np.abs(apply(problem, image, mask)) * 2.0**-24, ~kept | dyadic)


@operation(Dropout, problem=DropoutGradient, bound=apply_bound)
@operation(Dropout, problem=DropoutForward, bound=apply_bound)
def apply(problem: DropoutProblem, image: Array, mask: Array) -> Array:
    """y = x * scale where the mask is 1, else 0, also for NaN and infinity; forward and gradient are the same."""
    return np.where(mask != 0, image * image.dtype.type(problem.spec.scale), 0)
