"""Dropout: random words in blocks of four, and images scaled or zeroed by a mask.

An image is cut into lines along which the mask is contiguous or constant: chunks of the whole image where each element
has a value of its own, else its rows, else its pixels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.dropout import BLOCK, MULTIPLIERS, ROUNDS, WEYL, Dropout, DropoutProblem, MaskProblem
from mpsref.registry import Implementation, OperationKey
from mpsref_cpu.compiling import compiled, inlined
from mpsref_cpu.threads import for_rows

word, product, real = np.uint32, np.uint64, np.float32

FIRST, SECOND = map(product, MULTIPLIERS)
FIRST_WEYL, SECOND_WEYL = map(word, WEYL)
SHIFT, LOW = product(32), product(0xFFFFFFFF)

GROUP = 1024
"""Number of blocks of a chunk."""

LONG = 1 << 14
"""Number of elements of a line if the whole image could be one line."""


class Lines(NamedTuple):
    """An image in rows of ``pixels`` lines of ``length`` elements, and where in the mask they are.

    The other numbers are the distances, in the mask, of images, of their ``height`` rows, of the lines of a row and of
    the elements of a line; the last is 0 or 1.
    """

    length: int
    pixels: int
    height: int
    of_image: int
    of_row: int
    of_pixel: int
    of_element: int


def mask(problem: MaskProblem, out: Array) -> None:
    """Fill ``out`` with 1 where the random word is below the threshold, else 0."""
    images, groups = problem.source_shape[0], -(-problem.blocks // GROUP)
    words = np.array([*problem.words, problem.spec.threshold], np.uint32)
    bits = out.reshape(images, problem.elements)
    nbytes = 8 * out.nbytes  # a byte costs about as much as eight that are copied
    for_rows(_mask, images * groups, groups, problem.first_image_index, words, bits, nbytes=nbytes)


def apply(problem: DropoutProblem, image: Array, mask: Array, out: Array) -> None:
    """Fill ``out`` with the image, scaled where the mask is 1 and 0 elsewhere."""
    lines, rows = _lines(mask, image)
    for_rows(_apply, rows, lines, image, mask, problem.spec.scale, out)


def _lines(mask: Array, image: Array) -> tuple[Lines, int]:
    """Cut an image into lines; return them, and how many rows they come in."""
    n, height, width, channels = image.shape
    if mask.size == image.size:
        return Lines(LONG, 1, 1, LONG, 0, 0, 1), -(-image.size // LONG)
    of_image, of_row, of_pixel, of_channel = np.broadcast_to(mask, image.shape).strides
    if channels == 1:
        of_channel = of_pixel
    if width == 1:
        of_pixel = of_channel * channels
    length, pixels = (width * channels, 1) if of_pixel == of_channel * channels else (channels, width)
    return Lines(length, pixels, height, of_image, of_row, of_pixel, of_channel), n * height


@compiled
def _mask(begin, end, groups, first, words, bits):
    """Compute groups of blocks from ``begin`` to ``end``, counted through all images."""
    size = bits.shape[1]
    low, high, k0, k1, threshold = words[0], words[1], words[2], words[3], words[4]
    first_word, second_word, third_word, fourth_word = (
        np.empty(GROUP, word),
        np.empty(GROUP, word),
        np.empty(GROUP, word),
        np.empty(GROUP, word),
    )
    for group in range(begin, end):
        image, chunk = divmod(group, groups)
        block, number = word(chunk * GROUP), word(first + image)
        line, at = bits[image], chunk * GROUP * BLOCK
        for i in range(np.uintp(min(GROUP, -(-(size - at) // BLOCK)))):
            c0, c1, c2, c3 = _philox(low, high, number, word(block + word(i)), k0, k1)
            first_word[i], second_word[i], third_word[i], fourth_word[i] = c0, c1, c2, c3
        whole = min(GROUP, (size - at) // BLOCK)
        for i in range(np.uintp(whole)):
            q = np.uintp(at) + np.uintp(BLOCK) * i
            line[q] = first_word[i] < threshold
            line[q + np.uintp(1)] = second_word[i] < threshold
            line[q + np.uintp(2)] = third_word[i] < threshold
            line[q + np.uintp(3)] = fourth_word[i] < threshold
        if whole < GROUP:
            last = (first_word[whole], second_word[whole], third_word[whole])
            for k in range(size - at - whole * BLOCK):
                line[at + whole * BLOCK + k] = last[k] < threshold


@inlined
def _philox(c0, c1, c2, c3, k0, k1):
    """Return the four words of a counter, as :func:`mpsref.kernels.dropout.philox4x32` does.

    Words are the low halves of 64 bits, so that no product needs a conversion; high halves of results are not used.
    """
    c0, c1, c2, c3 = product(c0), product(c1), product(c2), product(c3)
    for _ in range(ROUNDS):
        p0, p1 = product(FIRST * (c0 & LOW)), product(SECOND * (c2 & LOW))
        c0, c1 = product((p1 >> SHIFT) ^ c1 ^ k0), p1
        c2, c3 = product((p0 >> SHIFT) ^ c3 ^ k1), p0
        k0, k1 = product(word(word(k0) + FIRST_WEYL)), product(word(word(k1) + SECOND_WEYL))
    return word(c0), word(c1), word(c2), word(c3)


@compiled
def _apply(begin, end, lines, source, mask, scale, target):
    """Compute rows of lines from ``begin`` to ``end``."""
    for row in range(begin, end):
        image, y = divmod(row, lines.height)
        at, kept = row * lines.pixels * lines.length, image * lines.of_image + y * lines.of_row
        for _ in range(lines.pixels):
            n = np.uintp(min(lines.length, source.size - at))
            q, m = np.uintp(at), np.uintp(kept)
            if lines.of_element == 1:
                for i in range(n):
                    scaled = real(source[q + i] * scale)
                    target[q + i] = scaled if mask[m + i] else real(0)
            elif mask[m]:
                for i in range(n):
                    target[q + i] = real(source[q + i] * scale)
            else:
                for i in range(n):
                    target[q + i] = real(0)
            at += lines.length
            kept += lines.of_pixel


IMPLEMENTATIONS: dict[OperationKey, Implementation] = {
    (Dropout, "mask"): mask,
    (Dropout, "forward"): apply,
    (Dropout, "gradient"): apply,
}
