"""Padding: rows, columns and channels around an image, filled by one of five rules; and its gradient.

Forward   ``out[i] = x[map(i - before)]`` on each of the three axes, or the fill value where the map leads nowhere
Gradient  ``dx[j] = sum over i with map(i - before) = j of g[i]``

============== ================================================================================================
zero           0 outside the image
constant       ``fill_value`` outside, or ``fill_values[c]`` for channel c of the result
clamp          ``clip(k, 0, L - 1)``
mirror         about the centre of the edge pixel: ``t = k mod 2(L-1)``, ``t`` if ``t < L`` else ``2(L-1) - t``
mirrorwithedge about the edge's border: ``t = k mod 2L``, ``t`` if ``t < L`` else ``2L - 1 - t``
============== ================================================================================================

All axes have the same rule, channels included.

Source: MPSNNPad and MPSNNPadGradient in ``MPSNNReshape.h`` [doc]; mirroring more than once [math].
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from mpsref import codecs, operations, registry
from mpsref.arguments.arrays import Array, ImageShape, Shape, as_image, as_shape, is_shape
from mpsref.arguments.parameters import Triple, choice, number, triple
from mpsref.errors import ShapeError
from mpsref.kernels.movement import Gather, Readers, bit_exact, index, readers
from mpsref.kernels.reference import ErrorBound
from mpsref.operations import Declaration, Formula, OperationKey

Edge: TypeAlias = Literal["zero", "clamp", "mirror", "mirrorwithedge", "constant"]

EDGES: tuple[Edge, ...] = get_args(Edge)
"""In the order of MPSImageEdgeMode."""


class PadProblem(operations.ImageProblem):
    """A call of padding: the shape of the image without it."""

    spec: Pad

    def __post_init__(self) -> None:
        """Check the shape, and that there is a fill value for every channel."""
        super().__post_init__()
        fills = self.spec.fill_values
        if fills is not None and len(fills) < self.padded_shape[3]:
            raise ShapeError(
                f"fill_values has {len(fills)} numbers; the padded image has {self.padded_shape[3]} channels and needs "
                "one for each"
            )

    @property
    def padded_shape(self) -> ImageShape:
        """The shape with the padding."""
        n, *lengths = self.source_shape
        height, width, channels = (
            a + length + b for a, length, b in zip(self.spec.before, lengths, self.spec.after, strict=True)
        )
        return n, height, width, channels

    def gather(self) -> Gather:
        """Return what each element of the padded image reads of the image, -1 where it is filled."""
        y, x, c = (
            index(_mapped(self.spec.edge_mode, np.arange(padded) - before, length), length)
            for before, padded, length in zip(
                self.spec.before, self.padded_shape[1:], self.source_shape[1:], strict=True
            )
        )
        return y, x, c


def _mapped(edge_mode: Edge, k: npt.NDArray[Any], length: int) -> npt.NDArray[Any]:
    """Return the vector of ``map(k)``; indices outside the image stay where they are in modes that fill."""
    if edge_mode == "clamp":
        return np.asarray(np.clip(k, 0, length - 1))
    if edge_mode == "mirror":
        t = k % max(1, 2 * (length - 1))
        return np.where(t < length, t, 2 * (length - 1) - t)
    if edge_mode == "mirrorwithedge":
        t = k % (2 * length)
        return np.where(t < length, t, 2 * length - 1 - t)
    return k


class PadForward(PadProblem):
    """``forward`` of padding."""

    method: ClassVar[str] = "forward"

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The image x."""
        return {"x": self.source_shape}

    @property
    def result_shapes(self) -> tuple[Shape]:
        """The padded image."""
        return (self.padded_shape,)

    def fills(self, dtype: np.dtype[Any]) -> Array:
        """Return what each channel of the result is filled with, rounded to the dtype of the image."""
        return self.spec.fills(self.padded_shape[3]).astype(dtype)


class PadGradient(PadProblem):
    """``gradient`` of padding."""

    method: ClassVar[str] = "gradient"

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The source gradient g."""
        return {"g": self.padded_shape}

    @property
    def result_shapes(self) -> tuple[Shape]:
        """The image dx."""
        return (self.source_shape,)

    def readers(self) -> tuple[Readers, Readers, Readers]:
        """Return, for y, x and channel, the elements of the padded image that are copies of each element."""
        y, x, c = (readers(read, length) for read, length in zip(self.gather(), self.source_shape[1:], strict=True))
        return y, x, c


class Pad(operations.Spec):
    """``before`` and ``after``, each (y, x, channel), elements >= 0 around an image.

    ``fill_value`` is what "constant" fills with, and ``fill_values``, one number for each channel of the result, takes
    its place.

    >>> import numpy as np
    >>> x = np.arange(3, dtype=np.float32).reshape(1, 1, 3, 1)
    >>> Pad((0, 2, 0), (0, 3, 0), "clamp").forward(x).ravel().tolist()
    [0.0, 0.0, 0.0, 1.0, 2.0, 2.0, 2.0, 2.0]
    >>> Pad((0, 4, 0), (0, 1, 0), "mirror").forward(x).ravel().tolist()
    [0.0, 1.0, 2.0, 1.0, 0.0, 1.0, 2.0, 1.0]
    """

    before: Triple = field(default=(0, 0, 0), metadata={"codec": codecs.triple("before")})
    after: Triple = field(default=(0, 0, 0), metadata={"codec": codecs.triple("after")})
    edge_mode: Edge = field(default="zero", metadata={"codec": codecs.word(*EDGES)})
    fill_value: float = field(default=0.0, metadata={"codec": codecs.number("fill")})
    fill_values: tuple[float, ...] | None = field(default=None, metadata={"codec": codecs.numbers("fills")})

    problems: ClassVar = {"forward": PadForward, "gradient": PadGradient}

    def __post_init__(self) -> None:
        """Check every parameter."""
        for name in ("before", "after"):
            object.__setattr__(self, name, triple(name, getattr(self, name), low=0))
        object.__setattr__(self, "edge_mode", choice("edge_mode", self.edge_mode, EDGES))
        object.__setattr__(self, "fill_value", number("fill_value", self.fill_value))
        if self.fill_values is None:
            return
        values: Any = self.fill_values
        if not isinstance(values, (tuple, list)) and not (isinstance(values, np.ndarray) and values.ndim == 1):
            raise TypeError(f"fill_values is {values!r}; it must be a tuple with a number for each channel, or None")
        fills = tuple(number(f"fill_values[{c}]", value) for c, value in enumerate(values))
        object.__setattr__(self, "fill_values", fills)

    def fills(self, channels: int) -> Array:
        """Return what is read outside the image in each channel of the result, float64."""
        if self.edge_mode == "constant" and self.fill_values is not None:
            return np.array(self.fill_values[:channels])
        return np.full(channels, self.fill_value if self.edge_mode == "constant" else 0.0)

    def forward(self, x: Any, *, out: Any = None, backend: Any = None) -> Array:
        """Return the padded image of ``x`` (N, H, W, C), in its dtype.

        Raises ``ShapeError`` for fewer fill values than channels, ``ValueError`` or ``TypeError`` for other misfits.
        """
        x = as_image("x", x)
        return registry.run_one(PadForward(self, x.shape), x, out=out, backend=backend)

    def gradient(self, g: Any, x_or_shape: Any, *, out: Any = None, backend: Any = None) -> Array:
        """Return dL/dx from ``g`` = dL/dout, in the dtype of g; of the source only its shape is read."""
        g = as_image("g", g)
        given = x_or_shape if is_shape(x_or_shape) else as_image("x", x_or_shape).shape
        problem = PadGradient(self, as_shape("x_or_shape", given))
        if g.shape != problem.padded_shape:
            raise ShapeError(f"g has shape {g.shape}; the padded image has {problem.padded_shape}")
        return registry.run_one(problem, g, out=out, backend=backend)


def mapped(edge_mode: Edge, k: int, length: int) -> int | None:
    """Return the element that position ``k`` of an axis reads, or ``None`` where the fill value stands."""
    if 0 <= k < length:
        return k
    if edge_mode in ("zero", "constant"):
        return None
    if edge_mode == "clamp" or length == 1:
        return 0 if k < 0 else length - 1
    step = 1 if edge_mode == "mirrorwithedge" else 0  # of the reflection at -1/2, or at 0
    while not 0 <= k < length:
        k = -step - k if k < 0 else 2 * (length - 1) + step - k
    return k


def forward(problem: PadForward, x: Array) -> Array:
    """out[i] = x[map(i - before)] on one axis after the other; what any axis leads outside is filled."""
    outside = np.zeros((1, 1, 1, 1), bool)
    for axis, (padded, copies) in enumerate(_copies(problem), start=1):
        wider = np.zeros((*x.shape[:axis], padded, *x.shape[axis + 1 :]), x.dtype)
        for i, j in copies:
            np.moveaxis(wider, axis, 0)[i] = np.moveaxis(x, axis, 0)[j]
        x = wider
        nowhere = np.isin(np.arange(padded), [i for i, _ in copies], invert=True)
        outside = outside | nowhere.reshape([-1 if k == axis else 1 for k in range(4)])
    return np.where(outside, problem.spec.fills(x.shape[3]), x)


def gradient(problem: PadGradient, g: Array) -> Array:
    """dx[map(i - before)] += g[i] on one axis after the other: the forward pass with the arrow reversed."""
    for axis, (_, copies) in enumerate(_copies(problem), start=1):
        narrower = np.zeros((*g.shape[:axis], problem.source_shape[axis], *g.shape[axis + 1 :]), g.dtype)
        for i, j in copies:
            np.moveaxis(narrower, axis, 0)[j] += np.moveaxis(g, axis, 0)[i]
        g = narrower
    return g


def _copies(problem: PadProblem) -> list[tuple[int, list[tuple[int, int]]]]:
    """Return for each axis its padded length, and (i, map(i - before)) of the elements that are read of the image."""
    found = []
    for before, padded, length in zip(
        problem.spec.before, problem.padded_shape[1:], problem.source_shape[1:], strict=True
    ):
        pairs = ((i, mapped(problem.spec.edge_mode, i - before, length)) for i in range(padded))
        found.append((padded, [(i, j) for i, j in pairs if j is not None]))
    return found


def forward_terms(problem: PadForward, x: Array) -> ErrorBound:
    """Nothing is rounded."""
    return bit_exact(np.empty(problem.padded_shape))


def gradient_terms(problem: PadGradient, g: Array) -> ErrorBound:
    """Sum of |g| over the copies of each element, and m = number of copies + 4."""
    magnitude = gradient(problem, np.abs(g))
    y, x, c = (np.diff(table.start) for table in problem.readers())
    count = np.multiply.outer(np.multiply.outer(y, x), c)[None]
    return ErrorBound(magnitude, count + 4, magnitude <= 2.0**24)


SPECS = (Pad,)
REFERENCE: dict[OperationKey, Formula] = {(Pad, "forward"): forward, (Pad, "gradient"): gradient}
TERMS: dict[OperationKey, Formula] = {(Pad, "forward"): forward_terms, (Pad, "gradient"): gradient_terms}

for _spec_type, _method in REFERENCE:
    _spec_type.declared[_method] = Declaration(REFERENCE[_spec_type, _method], TERMS[_spec_type, _method])
