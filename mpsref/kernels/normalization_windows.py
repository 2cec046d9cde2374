"""What spatial and local contrast normalization share: windows around each pixel, and problems.

On one axis, output ``i`` has its centre at source pixel ``c = i + o`` and reads ``c - K // 2 ... c + (K - 1) // 2``: an
even window reaches one pixel further to the top left. Pixels outside the image read as 0, and the divisor ``N = KH KW``
counts them too. Source: ``MPSCNNNormalization.h``, which prints the adjoint windows [doc]; the rest [math, obs].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from functools import cached_property
from math import prod
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np

from mpsref import codecs, operations, registry
from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import Pair, PairLike, optional_pair, pair
from mpsref.errors import ShapeError
from mpsref.geometry import Window

LARGEST = 8.0
"""Random values are scaled to at most this, so that no power of a sum of squares leaves the range of float32."""


class WindowedNormalization(operations.Spec):
    """The parameters and operations that both kernels have; pairs are (y, x), one integer stands for both."""

    kernel_size: PairLike = field(metadata={"codec": codecs.pair("k", low=1)})

    @property
    def offset(self) -> PairLike:
        """The source pixel of the first output."""
        raise NotImplementedError

    def _check_windows(self) -> None:
        """Check kernel size and offset, and store them as tuples."""
        object.__setattr__(self, "kernel_size", pair("kernel_size", self.kernel_size, low=1))
        object.__setattr__(self, "offset", pair("offset", self.offset))

    @cached_property
    def windows(self) -> tuple[Window, Window]:
        """The window of the y axis and that of the x axis."""
        sizes, offsets = pair("kernel_size", self.kernel_size), pair("offset", self.offset)
        y, x = (Window(size, offset=offset) for size, offset in zip(sizes, offsets, strict=True))
        return y, x

    @property
    def taps(self) -> int:
        """N: how many taps a window has, outside ones included."""
        return prod(window.kernel for window in self.windows)

    def forward(self, x: Any, output_size: Any = None, *, out: Any = None, backend: Any = None) -> Array:
        """Normalize the image ``x`` (N, H, W, C) to (N, OH, OW, C), in the dtype of ``x``.

        Output (a, b) belongs to source pixel ``(a, b) + offset``. ``output_size`` (OH, OW) is (H, W) - offset by
        default. Raises ``ValueError`` or ``TypeError`` for what does not fit.
        """
        x = arrays.as_image("x", x)
        problem = self.problems["forward"](self, x.shape, output_size)
        return registry.run_one(problem, x, out=out, backend=backend)

    def gradient(self, g: Any, x: Any, *, out: Any = None, backend: Any = None) -> Array:
        """Return dL/dx, in the shape of the source image ``x`` and the dtype of the source gradient ``g`` = dL/dy.

        ``g`` is (N, OH, OW, C), of any size. Raises ``ValueError`` or ``TypeError`` for what does not fit.
        """
        g, x = arrays.as_image("g", g), arrays.as_image("x", x)
        if (g.shape[0], g.shape[3]) != (x.shape[0], x.shape[3]):
            raise ShapeError(f"g has shape {g.shape} and x {x.shape}; both must have the same N and C (axes 0 and 3)")
        problem = self.problems["gradient"](self, x.shape, g.shape[1:3])
        return registry.run_one(problem, g, x, out=out, backend=backend)


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


class WindowedProblem(operations.ImageProblem):
    """A call on a source (N, H, W, C) with outputs (N, OH, OW, C)."""

    spec: WindowedNormalization
    output_size: Pair = field(default=cast(Pair, None), metadata={"codec": codecs.pair("out")})

    def __post_init__(self) -> None:
        """Check the shapes; an output size of ``None`` becomes the source size less the offset."""
        super().__post_init__()
        size = optional_pair("output_size", self.output_size, low=1)
        object.__setattr__(self, "output_size", size or self._default_outputs())

    def _default_outputs(self) -> Pair:
        height, width = (
            window.default_outputs(length)
            for window, length in zip(self.spec.windows, self.source_shape[1:3], strict=True)
        )
        if min(height, width) < 1:
            raise ShapeError(
                f"offset is {self.spec.offset} on an image of shape {self.source_shape}: the default output size would "
                f"be {height, width}; name one (each >= 1), or use a smaller offset"
            )
        return height, width

    @property
    def output_shape(self) -> Shape:
        """(N, OH, OW, C)."""
        n, _, _, channels = self.source_shape
        return n, *self.output_size, channels

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Scale each channel of x down where it is large: powers of its sums of squares must stay in range."""
        x = drawn["x"]
        largest = np.abs(x).max(axis=(0, 1, 2), initial=LARGEST)
        return {**drawn, "x": (x * (LARGEST / largest)).astype(x.dtype)}

    def where(self, index: tuple[int, ...]) -> str:
        """Describe the window of an output, or the pixel of a gradient: both are centred there."""
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


class WindowedForward(WindowedProblem):
    """``forward``: y (N, OH, OW, C) from x (N, H, W, C)."""

    method: ClassVar[str] = "forward"

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The source image x."""
        return {"x": self.source_shape}

    @property
    def result_shapes(self) -> tuple[Shape]:
        """The image y."""
        return (self.output_shape,)


class WindowedGradient(WindowedProblem):
    """``gradient``: dx (N, H, W, C) from g (N, OH, OW, C) and x (N, H, W, C)."""

    method: ClassVar[str] = "gradient"

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The source gradient g and the source image x."""
        return {"g": self.output_shape, "x": self.source_shape}

    @property
    def result_shapes(self) -> tuple[Shape]:
        """The image dx."""
        return (self.source_shape,)
