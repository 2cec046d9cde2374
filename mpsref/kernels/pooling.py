"""What the pooling kernels share: parameters, shapes, and where windows and gradient pixels lie.

A pooling kernel works on each image and channel by itself. Its window ``(a, b)`` is window a on the y axis and window b
on the x axis. Source: ``MPSCNNPooling.h`` (MPSCNNPooling, MPSCNNPoolingGradient) [doc].
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, ClassVar, TypeAlias, cast

import numpy as np

from mpsref import codecs, registry, tables
from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import Clip, Pair, PairLike, choice, clip_rectangle, optional_pair, pair
from mpsref.errors import ShapeError
from mpsref.geometry import EDGE_MODES, EdgeMode, Window, clip, included_windows
from mpsref.kernels.posing import posed
from mpsref.kernels.windows import default_size, described

__all__ = ["Pooling", "PoolingForward", "PoolingGradient"]


@dataclass(frozen=True)
class Pooling(registry.Spec):
    """Parameters of every pooling kernel; pairs are (y, x), and a single integer stands for both.

    ``offset`` is the source position of the first window's centre; it may be any integer.
    """

    kernel_size: PairLike = field(metadata={"codec": codecs.pair("k")})
    strides: PairLike = field(default=(1, 1), metadata={"codec": codecs.pair("s")})
    offset: PairLike = field(default=(0, 0), metadata={"codec": codecs.pair("o")})
    edge_mode: EdgeMode = field(default="zero", metadata={"codec": codecs.word(*EDGE_MODES)})

    reads_source: ClassVar[bool] = True
    """Whether the gradient reads the pixels of the source image; the average needs only its size."""

    def __post_init__(self) -> None:
        """Check every parameter and store pairs as tuples."""
        for name, low in (("kernel_size", 1), ("strides", 1), ("offset", None)):
            object.__setattr__(self, name, pair(name, getattr(self, name), low))
        object.__setattr__(self, "edge_mode", choice("edge_mode", self.edge_mode, EDGE_MODES))

    @cached_property
    def windows(self) -> tuple[Window, Window]:
        """The window of the y axis and that of the x axis."""
        columns = [pair(name, getattr(self, name)) for name in ("kernel_size", "strides", "spread", "offset")]
        y, x = (Window(k, s, d, o) for k, s, d, o in zip(*columns, strict=True))
        return y, x

    @property
    def spread(self) -> Pair:
        """The dilations: 1 but for the kernels that have them."""
        return 1, 1

    def forward(self, x: Any, output_size: Any = None, *, out: Any = None, backend: Any = None) -> Array:
        """Pool the image ``x`` (N, H, W, C) into (N, OH, OW, C), in the dtype of ``x``.

        ``output_size`` (OH, OW) is ``ceil((L - offset) / stride)`` per axis by default: up to the last window whose
        centre lies before the end of the image. Raises ``ValueError`` or ``TypeError`` for what does not fit.
        """
        x = arrays.as_image("x", x)
        size = optional_pair("output_size", output_size, low=1)
        problem = posed(self.problems["forward"], self, x.shape, size)
        return registry.run_one(problem, x, out=out, backend=backend)

    def gradient(
        self,
        g: Any,
        x_or_shape: Any,
        primary_offset: Any = (0, 0),
        source_size: Any = None,
        kernel_offset: Any = None,
        clip: Any = None,
        *,
        out: Any = None,
        backend: Any = None,
    ) -> Array:
        """Return dL/dx from the source gradient ``g`` = dL/dy, in the shape of the source and the dtype of ``g``.

        ``g`` is (N, GH, GW, C). ``x_or_shape`` is the source image, or its shape where the kernel does not read it.
        Window ``(a, b)`` belongs to the gradient pixel ``primary_offset + (a, b)``; the pixels that count are
        ``source_size`` many from there (default: the rest). ``kernel_offset=None`` puts each source pixel's gradient
        at that pixel; a pair shifts it. Pixels outside ``clip``, ((y0, x0), (height, width)), are 0.
        Raises ``ValueError`` or ``TypeError`` for what does not fit.
        """
        g = arrays.as_image("g", g)
        if not arrays.is_shape(x_or_shape):
            x = arrays.as_image("x", x_or_shape)
            shape, inputs = x.shape, (g, x) if self.reads_source else (g,)
        elif self.reads_source:
            raise TypeError(f"x is the shape {x_or_shape!r}; {type(self).__name__} needs the source image itself")
        else:
            shape, inputs = arrays.as_shape("x_or_shape", x_or_shape), (g,)
        problem = posed(
            self.problems["gradient"],
            self,
            shape,
            g.shape[1:3],
            pair("primary_offset", primary_offset),
            optional_pair("source_size", source_size, low=0),
            optional_pair("kernel_offset", kernel_offset),
            clip_rectangle("clip", clip),
        )
        if g.shape != problem.input_shapes["g"]:
            raise ShapeError(
                f"g has shape {g.shape} and the source {problem.source_shape}; "
                "both must have the same N and C (axes 0 and 3)"
            )
        return registry.run_one(problem, *inputs, out=out, backend=backend)

    def reads(self, first: Pair, count: Pair, shape: Shape) -> tuple[tables.Reads, tables.Reads]:
        """Return what the windows ``first ... first + count - 1`` read, for y and for x, of an image of ``shape``."""
        y, x = (
            tables.reads(window, i, n, length, self.edge_mode)
            for window, i, n, length in zip(self.windows, first, count, shape[1:3], strict=True)
        )
        return y, x

    def default_outputs(self, shape: Shape) -> Pair:
        """Return the output size up to the last window whose centre lies before the end of an image of ``shape``."""
        return default_size(self.windows, shape)


@dataclass(frozen=True)
class PoolingForward(registry.ImageProblem):
    """``forward`` of a pooling kernel: x (N, H, W, C) to y (N, OH, OW, C)."""

    method: ClassVar[str] = "forward"
    spec: Pooling
    output_size: Pair = field(default=cast(Pair, None), metadata={"codec": codecs.pair("out")})

    def __post_init__(self) -> None:
        """Check the shapes; an output size of ``None`` becomes the default one."""
        super().__post_init__()
        size = optional_pair("output_size", self.output_size, low=1)
        object.__setattr__(self, "output_size", size or self.spec.default_outputs(self.source_shape))

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The source image x."""
        return {"x": self.source_shape}

    @property
    def result_shapes(self) -> tuple[Shape]:
        """The image y."""
        n, _, _, c = self.source_shape
        return ((n, *self.output_size, c),)

    def reads(self) -> tuple[tables.Reads, tables.Reads]:
        """Return, for y and x, what each window reads, taps outside the image included."""
        return self.spec.reads((0, 0), self.output_size, self.source_shape)

    def where(self, index: tuple[int, ...]) -> str:
        """Describe the window of an output: its place, and the pixels inside the image."""
        return described(self.spec.windows, index, self.source_shape)

    def runs(self) -> tuple[tables.Runs, tables.Runs]:
        """Return, for y and x, the source pixels inside the image that each window reads."""
        y, x = (
            tables.tap_runs(window, outputs, length)
            for window, outputs, length in zip(self.spec.windows, self.output_size, self.source_shape[1:3], strict=True)
        )
        return y, x


@dataclass(frozen=True)
class PoolingGradient(registry.ImageProblem):
    """``gradient`` of a pooling kernel: g (N, GH, GW, C) to dx (N, H, W, C)."""

    method: ClassVar[str] = "gradient"
    spec: Pooling
    gradient_size: Pair = field(default=cast(Pair, None), metadata={"codec": codecs.pair("g")})
    primary_offset: Pair = field(default=(0, 0), metadata={"codec": codecs.pair("p")})
    source_size: Pair | None = field(default=None, metadata={"codec": codecs.pair("size")})
    kernel_offset: Pair | None = field(default=None, metadata={"codec": codecs.pair("ko")})
    clip: Clip | None = field(default=None, metadata={"codec": codecs.clip("clip")})

    def __post_init__(self) -> None:
        """Check the geometry; a gradient size of ``None`` becomes that of the default output."""
        super().__post_init__()
        size = optional_pair("gradient_size", self.gradient_size, low=1)
        object.__setattr__(self, "gradient_size", size or self.spec.default_outputs(self.source_shape))
        object.__setattr__(self, "primary_offset", pair("primary_offset", self.primary_offset))
        object.__setattr__(self, "source_size", optional_pair("source_size", self.source_size, low=0))
        object.__setattr__(self, "kernel_offset", optional_pair("kernel_offset", self.kernel_offset))
        object.__setattr__(self, "clip", clip_rectangle("clip", self.clip))

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The source gradient g, and the source image x where the kernel reads it."""
        n, _, _, c = self.source_shape
        shapes: dict[str, Shape] = {"g": (n, *self.gradient_size, c)}
        return shapes | {"x": self.source_shape} if self.spec.reads_source else shapes

    @property
    def result_shapes(self) -> tuple[Shape]:
        """The image dx."""
        return (self.source_shape,)

    @property
    def included(self) -> tuple[range, range]:
        """For y and x, the windows whose gradient pixel counts; window i has the pixel ``primary_offset + i``."""
        sizes = self.source_size or (None, None)
        y, x = (
            included_windows(p0, size, length)
            for p0, size, length in zip(self.primary_offset, sizes, self.gradient_size, strict=True)
        )
        return y, x

    def _axes(self) -> list[dict[str, Any]]:
        """Return what is to be known of each axis, under the names of :func:`mpsref.tables.gather_runs`."""
        origin, size = self.clip or ((0, 0), (None, None))
        columns = {
            "window": self.spec.windows,
            "length": self.source_shape[1:3],
            "gradient_length": self.gradient_size,
            "primary_offset": self.primary_offset,
            "source_size": self.source_size or (None, None),
            "kernel_offset": self.kernel_offset or (None, None),
            "clip_origin": origin,
            "clip_size": size,
        }
        return [{name: column[axis] for name, column in columns.items()} for axis in (0, 1)]

    def runs(self) -> tuple[tables.Runs, tables.Runs]:
        """Return, for y and x, the gradient pixels whose windows have a tap at each destination pixel."""
        y, x = (tables.gather_runs(**axis) for axis in self._axes())
        return y, x

    def reads(self) -> tuple[tables.Reads, tables.Reads]:
        """Return, for y and x, what the window of each gradient pixel reads, taps outside the image included."""
        first = -self.primary_offset[0], -self.primary_offset[1]
        return self.spec.reads(first, self.gradient_size, self.source_shape)

    def touching(self) -> tuple[tables.Touching, tables.Touching]:
        """Return, for y and x, the source pixel of each destination pixel, and whose windows may read it."""
        y, x = (tables.touching(edge_mode=self.spec.edge_mode, **axis) for axis in self._axes())
        return y, x

    def where(self, index: tuple[int, ...]) -> str:
        """Describe the gradient pixels whose windows have a tap at the source pixel of an element."""
        rows, columns = (
            [int(r.first[k]) + r.step * i for i in range(r.count[k])]
            for r, k in zip(self.runs(), index[1:3], strict=True)
        )
        return f"gathers gradient rows {rows}, columns {columns}"

    def place(self, full: Array) -> Array:
        """Return the result D[J(q)] of the gradient ``full`` = D of all source pixels; zeros outside the clip."""
        for axis, known in enumerate(self._axes(), start=1):
            window, length, ko = known["window"], known["length"], known["kernel_offset"]
            origin, n = clip(known["clip_origin"], known["clip_size"], length)
            first = window.represented_pixel(0, window.kernel_offset(origin) if ko is None else ko)
            moved = np.zeros_like(full)
            begin, end = max(0, -first), min(n, length - first)  # the q of the clip that represent a source pixel
            if begin < end:
                to = [slice(None)] * full.ndim
                to[axis] = slice(origin + begin, origin + end)
                of = [slice(None)] * full.ndim
                of[axis] = slice(first + begin, first + end)
                moved[tuple(to)] = full[tuple(of)]
            full = moved
        return full


def taps(problem: PoolingForward | PoolingGradient, x: Array, a: int, b: int) -> tuple[Array, Array, Array, Array]:
    """Return what window (a, b) reads of ``x``: values (N, taps, C), then of each its row, column, and how many taps.

    The order is the raster order of the taps. Outside the image row or column is -1 and the value 0; consecutive taps
    that read the same pixel come as one.
    """
    values, (rows, row_times), (columns, column_times) = window_of(problem, x, a, b)
    y, x_ = (grid.ravel() for grid in np.meshgrid(rows, columns, indexing="ij"))
    times = np.multiply.outer(row_times.astype(x.dtype), column_times.astype(x.dtype)).ravel()
    return values, y, x_, times


Axis: TypeAlias = tuple[Array, Array]
"""What a window reads along an axis: pixels, -1 for the zeros outside, and how many taps read each."""


def window_of(problem: PoolingForward | PoolingGradient, x: Array, a: int, b: int) -> tuple[Array, Axis, Axis]:
    """Return the values of :func:`taps`, and the rows and the columns that they are the raster of."""
    rows, columns = (
        _reads(window, i, length, problem.spec.edge_mode)
        for window, i, length in zip(problem.spec.windows, (a, b), x.shape[1:3], strict=True)
    )
    values = x[:, rows[0][:, None], columns[0]]
    values[:, rows[0] < 0] = 0
    values[:, :, columns[0] < 0] = 0
    return values.reshape(len(x), -1, x.shape[-1]), rows, columns


@lru_cache(maxsize=4096)
def _reads(window: Window, i: int, length: int, edge_mode: EdgeMode) -> Axis:
    """Return :meth:`Window.reads` as two vectors."""
    pixels, times = zip(*window.reads(i, length, edge_mode), strict=True)
    return np.array([-1 if pixel is None else pixel for pixel in pixels]), np.array(times, np.float64)


def count_of_windows(problem: PoolingGradient) -> Array:
    """Return how many windows read the pixel that each element of a gradient stands for, (1, H, W, 1)."""
    counts = []
    for window, windows, length in zip(problem.spec.windows, problem.included, problem.source_shape[1:3], strict=True):
        count = np.zeros(length)
        for i in windows:
            read = window.reads(i, length, problem.spec.edge_mode)
            count[list({pixel for pixel, _ in read if pixel is not None})] += 1
        counts.append(count)
    return problem.place(np.multiply.outer(*counts)[None, :, :, None])
