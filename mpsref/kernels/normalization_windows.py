"""Parameters, windows and problems of spatial and local contrast normalization.

On one axis, output ``i`` has its centre at source pixel ``c = i + o`` and reads ``c - K // 2 ... c + (K - 1) // 2``: an
even window reaches one pixel further to the top left. Pixels outside the image read as 0, and the divisor ``N = KH KW``
counts them too. Source: ``MPSCNNNormalization.h``, which prints the adjoint windows [doc]; the rest [math, obs
windowed-even].
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from anymetal.fork_safe import cached_property
from mpsref import codecs
from mpsref.arguments.arrays import Array, ImageShape
from mpsref.arguments.parameters import Pair, PairLike
from mpsref.backend import BackendLike
from mpsref.codecs import parameter
from mpsref.geometry import Window, by_axis
from mpsref.kernels.normalization import RangedProblem
from mpsref.kernels.windows import default_size
from mpsref.operations import Spec
from mpsref.registry import call


class WindowedNormalization(Spec):
    """Base of both kernels; pairs are (y, x), one integer stands for both."""

    kernel_size: PairLike = parameter(codecs.pair("k", low=1))

    @property
    def offset(self) -> PairLike:
        """The source pixel of the first output."""
        raise NotImplementedError

    @cached_property
    def windows(self) -> tuple[Window, Window]:
        """The window of the y axis and that of the x axis."""
        return by_axis(lambda size, offset: Window(size, offset=offset), self.kernel_size, self.offset)

    @property
    def taps(self) -> int:
        """N: the number of taps of a window, including those outside the image."""
        return prod(window.kernel for window in self.windows)

    def forward(
        self,
        x: ArrayLike,
        output_size: PairLike | None = None,
        *,
        out: Array | None = None,
        backend: BackendLike = None,
    ) -> Array:
        """Normalize an image; output (a, b) belongs to source pixel ``(a, b) + offset``.

        Parameters
        ----------
        x : array_like, shape (N, H, W, C)
            Source image.
        output_size : int or tuple of int, optional
            (OH, OW); default: (H, W) - offset.

        Returns
        -------
        ndarray, shape (N, OH, OW, C)
            In the dtype of ``x``.
        """
        return call(self, "forward", (x,), out=out, backend=backend, output_size=output_size)

    def gradient(self, g: ArrayLike, x: ArrayLike, *, out: Array | None = None, backend: BackendLike = None) -> Array:
        """Compute dL/dx.

        Parameters
        ----------
        g : array_like, shape (N, OH, OW, C)
            Source gradient dL/dy, of any size.
        x : array_like, shape (N, H, W, C)
            Source image of the forward pass.
        """
        return call(self, "gradient", (g, x), out=out, backend=backend)


class Taps(NamedTuple):
    """One window: its output (a, b), and the pixels inside the image that it reads."""

    a: int
    b: int
    rows: slice
    columns: slice

    def of(self, image: Array) -> Array:
        """Return the pixels (N, rows, columns, C)."""
        return image[:, self.rows, self.columns]

    def output(self, image: Array) -> Array:
        """Return the value (N, 1, 1, C) of an image of outputs that belongs to the window."""
        return image[:, self.a : self.a + 1, self.b : self.b + 1]


class WindowedProblem(RangedProblem):
    """A call on a source (N, H, W, C) with outputs (N, OH, OW, C)."""

    spec: WindowedNormalization
    output_size: Pair = parameter(codecs.pair("out", low=1), default=None)

    def _check(self) -> None:
        self._fill(output_size=lambda: default_size(self.spec.windows, self.source_shape))

    @property
    def output_shape(self) -> ImageShape:
        """(N, OH, OW, C)."""
        n, _, _, channels = self.source_shape
        return n, *self.output_size, channels

    def where(self, index: tuple[int, ...]) -> str:
        rows, columns = (
            f"{window.tap(i, 0)}..{window.tap(i, window.kernel - 1)}"
            for window, i in zip(self.spec.windows, index[1:3], strict=True)
        )
        return f"the window of output ({index[1]}, {index[2]}) reads rows {rows}, columns {columns}"

    def windows(self) -> Iterator[Taps]:
        """Yield every window, in raster order of the outputs."""
        rows, columns = (
            [window.inside(i, length) for i in range(outputs)]
            for window, length, outputs in zip(self.spec.windows, self.source_shape[1:3], self.output_size, strict=True)
        )
        for a, b in np.ndindex(*self.output_size):
            yield Taps(a, b, rows[a], columns[b])

    def reads(self) -> tuple[Array, Array]:
        """Return for y and x, of each output, the first source pixel inside that it reads, how many, and its centre.

        Both are int32 (outputs, 3); the centre is -1 where it lies outside the image.
        """
        y, x = (
            _runs(np.arange(count) + w.offset, w.center, w.kernel - 1 - w.center, length)
            for w, count, length in zip(self.spec.windows, self.output_size, self.source_shape[1:3], strict=True)
        )
        return y, x

    def readers(self) -> tuple[Array, Array]:
        """Return for y and x, of each source pixel, the first output that reads it, how many, and that centred there.

        Both are int32 (pixels, 3); the last is -1 where there is none.
        """
        y, x = (
            _runs(np.arange(length) - w.offset, w.kernel - 1 - w.center, w.center, count)
            for w, count, length in zip(self.spec.windows, self.output_size, self.source_shape[1:3], strict=True)
        )
        return y, x

    def centres(self, x: Array) -> Array:
        """Return the source pixel at the centre of each window, 0 outside the image."""
        centres = np.zeros(self.output_shape, x.dtype)
        outputs, pixels = self._centred
        centres[outputs] = x[pixels]
        return centres

    def at_centres(self, values: Array) -> Array:
        """Return an image like the source with the value of each output at its centre: the adjoint of ``centres``."""
        image = np.zeros(self.source_shape, values.dtype)
        outputs, pixels = self._centred
        image[pixels] = values[outputs]
        return image

    @property
    def _centred(self) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Return the outputs whose centres lie in the image, and those centres, as indices."""
        outputs, pixels = [slice(None)], [slice(None)]
        for window, length, count in zip(self.spec.windows, self.source_shape[1:3], self.output_size, strict=True):
            begin = min(count, max(0, -window.offset))
            end = max(begin, min(count, length - window.offset))
            outputs.append(slice(begin, end))
            pixels.append(slice(begin + window.offset, end + window.offset) if begin < end else slice(0, 0))
        return tuple(outputs), tuple(pixels)


def _runs(centres: Array, before: int, after: int, length: int) -> Array:
    """Return first and count of the pixels ``centre - before ... centre + after`` that exist, and the centre or -1."""
    first = np.clip(centres - before, 0, length)
    end = np.clip(centres + after + 1, 0, length)
    inside = (centres >= 0) & (centres < length)
    return np.stack([first, end - first, np.where(inside, centres, -1)], axis=1).astype(np.int32)


class WindowedForward(WindowedProblem, method="forward", inputs={"x": "n h w c"}, results={"y": "n output_size c"}):
    """``forward``: y (N, OH, OW, C) from x (N, H, W, C)."""


class WindowedGradient(
    WindowedProblem, method="gradient", inputs={"g": "n output_size c", "x": "n h w c"}, results={"dx": "n h w c"}
):
    """``gradient``: dx (N, H, W, C) from g (N, OH, OW, C) and x (N, H, W, C)."""
