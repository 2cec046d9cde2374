"""Layers that no kernel of MPS computes, by formulas in float64 with the error bounds of their steps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from mpsref.arguments.arrays import Array
from mpsref.conformance.audit import Check, Computed
from mpsref.conformance.rounded import Rounded, sigmoid, softmax
from mpsref.errors import UnsupportedError
from mpsref.frameworks.adapter import Tensor
from mpsref.kernels.reference import UNIT_ROUNDOFF
from mpsref_torch.auditing import replay
from mpsref_torch.auditing.layer import Elements, Rows, Sampled, Translated
from mpsref_torch.auditing.sampled import ALL, VALUES, Draw, array, positions_on

MATRIX = 2**23
"""Elements of a matrix of attention, or products of a matrix, that are computed for one comparison."""


Gradients: TypeAlias = dict[str, Rounded]
"""The gradients for inputs, by name."""


# --- elements and rows ------------------------------------------------------------------------------------------------


class Formula(Sampled):
    """A layer with a formula of its own, whose inputs are kept only as the parts that are compared."""

    HAS_CASES = False

    forward: Callable[..., Rounded]
    """Of the parts of the inputs."""
    backward: Callable[..., Gradients]
    """Of the part of the gradient of the result, and of those of the inputs."""

    def of(self, name: str, tensor: Tensor) -> Array:
        """Return the part of an input, or of the "result", or of their gradients."""
        return self.part(tensor)

    def part(self, tensor: Tensor) -> Array:
        return self.of("x", tensor)

    def given(self) -> dict[str, Array]:
        return {name: self.of(name, tensor) for name, tensor in self.inputs.items()}

    def release(self) -> None:
        self.inputs = {name: tensor.detach().to("meta") for name, tensor in self.inputs.items()}

    def result(self, y: Tensor, wanted: frozenset[str], draw: Draw) -> list[Check]:
        if not self.values:
            self.prepare(draw)
        given = tuple(self.values.values())
        self.values = {name: one.copy() for name, one in self.values.items()} if wanted else {}
        computed = Computed.of(self.forward(*map(Rounded, given)))
        return [Check(computed, given, {"result": self.of("result", y)}, names=tuple(self.inputs))]

    def gradients(self, g: Tensor, found: dict[str, Tensor], draw: Draw) -> list[Check]:
        given = self.of("result", g), *self.values.values()
        right = self.backward(*map(Rounded, given))
        names = [name for name in right if name in found]
        actual = {f"gradient for {name}": self.of(name, found[name]) for name in names}
        self.values = {}
        computed = Computed.of(*(right[name] for name in names)) if names else None
        return [] if computed is None else [Check(computed, given, actual, names=("g", *self.inputs))]


class OfElements(Elements, Formula):
    """Each element by itself."""

    def __init__(self, x: Tensor, forward: Any, backward: Any, **options: Any) -> None:
        super().__init__(x, None, **options)
        self.forward, self.backward = forward, backward


class OfRows(Rows, Formula):
    """Each row along an axis by itself."""

    def __init__(self, x: Tensor, forward: Any, backward: Any, axis: int) -> None:
        super().__init__(x, None, axis)
        self.forward, self.backward = forward, backward


def silu(input: Tensor, inplace: bool = False) -> Translated:
    """Translate ``silu``."""

    def backward(g: Rounded, x: Rounded) -> Gradients:
        s = sigmoid(x)
        return {"x": g * (s + x * s * (1 - s))}

    return OfElements(input, lambda x: x * sigmoid(x), backward, works_in_place=inplace)


def hardswish(input: Tensor, inplace: bool = False) -> Translated:
    """Translate ``hardswish``, x min(max(x + 3, 0), 6) / 6; at a kink either slope is right."""

    def forward(x: Rounded) -> Rounded:
        gate = Rounded(np.clip(x.value + 3, 0, 6), np.where(abs(x.value) < 3, UNIT_ROUNDOFF * 6, 0))
        return x * gate / 6

    def backward(g: Rounded, x: Rounded) -> Gradients:
        inside = x / 3 + 0.5
        slope = np.where(x.value >= 3, 1.0, np.where(x.value <= -3, 0.0, inside.value))
        jump = np.where(abs(x.value) == 3, 0.5, 0.0)
        return {"x": g * Rounded(slope, np.where(abs(x.value) < 3, inside.error, jump))}

    return OfElements(input, forward, backward, works_in_place=inplace)


def glu(input: Tensor, dim: int = -1) -> Translated:
    """Translate ``glu``: one half times the sigmoid of the other."""

    def forward(x: Rounded) -> Rounded:
        half = x.value.shape[-1] // 2
        return x[..., :half] * sigmoid(x[..., half:])

    def backward(g: Rounded, x: Rounded) -> Gradients:
        half = x.value.shape[-1] // 2
        s = sigmoid(x[..., half:])
        return {"x": Rounded.joined([g * s, g * x[..., :half] * s * (1 - s)], -1)}

    return OfRows(input, forward, backward, dim)


# --- normalization of rows --------------------------------------------------------------------------------------------


class Normalized(Formula):
    """A normalization over some of four axes, with parameters for the axes 1 and 2, or for the last one of rows."""

    statistics: tuple[Any, Any] | None = None
    """Given means and variances, as arrays that broadcast to the arranged input."""
    steps: float | None = None
    """How many roundings a term of a sum goes through; default: one for each term."""

    def __init__(
        self,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
        arranged: tuple[int, ...],
        axes: tuple[int, ...],
        own: tuple[int, ...] = (1, 2),
        *,
        centered: bool = True,
    ) -> None:
        super().__init__(x, None, weight=weight, bias=bias)
        self.arranged, self.axes, self.own, self.eps, self.centered = arranged, axes, own, eps, centered
        self.count = math.prod(arranged[axis] for axis in axes)
        self.cut = 1 if own == (1, 2) else 0
        """The axis of which some places are compared of a large image."""
        if own == (3,) and x.numel() > ALL // 4 and (weight is not None or bias is not None):
            self.notes = (f"gradients for weight and bias: {x.numel()} elements",)

    def repeated(self, generator: Any) -> Translated:
        """Return the layer on equally many 1 and -1, whose sums are exact in every order."""
        self.steps, x = 8 + math.log2(max(2, self.count)), self.inputs["x"]
        with torch.no_grad():
            x.copy_(replay.balanced(self.arranged, self.axes, generator).reshape(x.shape))
        return self

    def choose(self, draw: Draw) -> None:
        length = self.arranged[self.cut]
        most = VALUES if self.cut else ALL // 4
        self.some = draw.some(length, max(1, most * length // math.prod(self.arranged)))

    def of(self, name: str, tensor: Tensor) -> Array:
        of_all = name in ("x", "result")
        found = tensor.detach().reshape(
            [n if of_all or axis in self.own else 1 for axis, n in enumerate(self.arranged)]
        )
        whole = len(self.some) == found.shape[self.cut] or not (of_all or self.cut in self.own)
        return array(found if whole else found.index_select(self.cut, positions_on(found, self.some)))

    def gradients(self, g: Tensor, found: dict[str, Tensor], draw: Draw) -> list[Check]:
        if self.notes:  # only some rows were kept, and the others are terms of the sums for weight and bias
            found = {name: dx for name, dx in found.items() if name == "x"}
        return super().gradients(g, found, draw) if found else []

    def _normalized(self, x: Rounded) -> tuple[Rounded, Rounded]:
        """Return the normalized input, and the reciprocals of the deviations."""
        steps, axes, n = self.steps, self.axes, self.count
        mean, variance = self.statistics or (None, None)
        c = x - (x.sum(axes, steps) / n if mean is None else mean) if self.centered else x
        root = 1 / (((c * c).sum(axes, steps) / n if variance is None else variance) + Rounded(self.eps)).sqrt()
        return c * root, root

    def forward(self, x: Rounded, *parameters: Rounded) -> Rounded:
        named = dict(zip(self.inputs, (x, *parameters), strict=True))
        return self._normalized(x)[0] * named.get("weight", 1.0) + named.get("bias", 0.0)

    def backward(self, g: Rounded, x: Rounded, *parameters: Rounded) -> Gradients:
        named, steps, axes = dict(zip(self.inputs, (x, *parameters), strict=True)), self.steps, self.axes
        normalized, root = self._normalized(x)
        dx = upstream = g * named.get("weight", 1.0)
        if self.statistics is None:
            dx = dx - normalized * ((upstream * normalized).sum(axes, steps) / self.count)
            dx = dx - upstream.sum(axes, steps) / self.count if self.centered else dx
        others = tuple(axis for axis in range(4) if axis not in self.own)
        return {"x": root * dx, "weight": (g * normalized).sum(others, steps), "bias": g.sum(others, steps)}


def of_rows(
    input: Tensor, shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float, *, centered: bool
) -> Normalized:
    """Return a normalization of rows, each of which is the last axes of the input."""
    size = math.prod(shape)
    arranged = (input.numel() // max(1, size), 1, 1, size)
    return Normalized(input, weight, bias, eps, arranged, (3,), (3,), centered=centered)


def rms_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None
) -> Translated:
    """Translate ``rms_norm``."""
    wide = input.dtype if input.dtype.itemsize >= 4 else torch.float32  # in which it is computed
    small = torch.finfo(wide).eps if eps is None else eps
    return of_rows(input, normalized_shape, weight, None, small, centered=False)


# --- products ---------------------------------------------------------------------------------------------------------


def _batches(tensor: Tensor) -> Tensor:
    """Return matrices (batch, rows, columns)."""
    return tensor.detach().reshape(-1, *tensor.shape[-2:])


def _taken(tensor: Tensor, *indices: Sequence[int]) -> Array:
    """Return some indices of each axis."""
    for axis, index in enumerate(indices):
        if len(index) < tensor.shape[axis]:
            tensor = tensor.index_select(axis, positions_on(tensor, index))
    return array(tensor)


class Product(Translated):
    """``matmul`` of matrices with the same batch axes, or with one matrix on the right."""

    def __init__(self, input: Tensor, other: Tensor, *, out: Any = None) -> None:
        x, y = tuple(input.shape), tuple(other.shape)
        if out is not None or len(x) < 2 or len(y) < 2 or other is input:
            raise UnsupportedError(f"a product of tensors of shapes {x} and {y}")
        self.single = len(y) == 2
        if not self.single and x[:-2] != y[:-2]:
            raise UnsupportedError(f"a product of batches of shapes {x[:-2]} and {y[:-2]}")
        self.inputs = {"x": input, "y": other}

    def _matrices(self, tensor: Tensor, single: bool = False) -> Tensor:
        return tensor.detach().reshape(1, -1, tensor.shape[-1]) if self.single and not single else _batches(tensor)

    def result(self, y: Tensor, wanted: frozenset[str], draw: Draw) -> list[Check]:
        a, b = self._matrices(self.inputs["x"]), self._matrices(self.inputs["y"], True)
        side = 16
        self.batch, self.rows = draw.some(len(a), 2), draw.some(a.shape[1], side)
        self.columns, self.terms = draw.some(b.shape[2], side), draw.some(a.shape[2], side)
        every = range(a.shape[2])
        left, right = _taken(a, self.batch, self.rows, every), _taken(b, self.batch, every, self.columns)
        actual = _taken(self._matrices(y), self.batch, self.rows, self.columns)
        self.kept = {}
        if "x" in wanted:
            self.kept["x"] = _taken(b, self.batch, self.terms, range(b.shape[2])).copy()
        if "y" in wanted:
            self.kept["y"] = _taken(a, self.batch, range(a.shape[1]), self.terms).copy()
        return [Check(Computed.of(Rounded(left) @ right), (left, right), {"result": actual})]

    def gradients(self, g: Tensor, found: dict[str, Tensor], draw: Draw) -> list[Check]:
        source, checks = self._matrices(g), []
        if "x" in found:
            part, other = _taken(source, self.batch, self.rows), self.kept["x"]
            actual = _taken(self._matrices(found["x"]), self.batch, self.rows, self.terms)
            checks.append(
                Check(Computed.of(Rounded(part) @ other.swapaxes(1, 2)), (part, other), {"gradient for x": actual})
            )
        if "y" in found:
            part, other = _taken(source, self.batch, range(source.shape[1]), self.columns), self.kept["y"]
            actual = _taken(self._matrices(found["y"], True), self.batch, self.terms, self.columns)
            checks.append(
                Check(Computed.of(Rounded(other.swapaxes(1, 2)) @ part), (other, part), {"gradient for y": actual})
            )
        self.kept = {}
        return checks


class Attention(Formula):
    """``scaled_dot_product_attention``: some heads, all of their queries and keys."""

    unit = 0.0
    """Unit roundoff of the type in which probabilities are stored."""

    def __init__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> None:
        if dropout_p:
            raise UnsupportedError(f"dropout_p is {dropout_p}; the result does not show the mask")
        if query.shape[:-2] != key.shape[:-2] or key.shape[:-2] != value.shape[:-2] or query.dim() < 2:
            raise UnsupportedError("heads that share keys")
        self.queries, self.keys = query.shape[-2], key.shape[-2]
        if self.queries * self.keys > MATRIX:
            raise UnsupportedError(f"{self.queries} queries with {self.keys} keys")
        if attn_mask is not None and attn_mask.requires_grad:
            self.notes = ("gradient for the mask",)
        super().__init__(query, None, key=key, value=value)
        self.mask, self.causal = attn_mask, is_causal
        self.scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
        self.unit = torch.finfo(query.dtype).eps / 2

    def choose(self, draw: Draw) -> None:
        lead = tuple(self.inputs["x"].shape[:-2])
        count = max(1, MATRIX // 8 // (self.queries * self.keys))
        self.heads = draw.some(math.prod(lead), min(2, count))
        self.shown = None
        if self.mask is not None:
            every = self.mask.detach().expand(*lead, self.queries, self.keys)
            index = np.unravel_index(self.heads, lead) if lead else ()
            self.shown = array(every[tuple(positions_on(every, one) for one in index)] if lead else every[None])
        self.mask = None

    def part(self, tensor: Tensor) -> Array:
        return _taken(_batches(tensor), self.heads)

    def _probabilities(self, q: Rounded, k: Rounded) -> Rounded:
        scores = (q @ k.mT) * self.scale
        hidden = np.zeros((self.queries, self.keys), bool)
        if self.causal:
            hidden = ~np.tri(self.queries, self.keys, dtype=bool)
        if self.shown is not None:
            if self.shown.dtype == bool:
                hidden = hidden | ~self.shown
            else:
                scores = scores + self.shown
        masked = np.broadcast_to(hidden, scores.value.shape)
        p = softmax(Rounded(np.where(masked, -np.inf, scores.value), np.where(masked, 0.0, scores.error)))
        return p.stored(self.unit)

    def forward(self, q: Rounded, k: Rounded, v: Rounded) -> Rounded:
        return self._probabilities(q, k) @ v

    def backward(self, g: Rounded, q: Rounded, k: Rounded, v: Rounded) -> Gradients:
        p, dp = self._probabilities(q, k), g @ v.mT
        ds = (p * (dp - (p * dp).sum(-1)) * self.scale).stored(self.unit)
        return {"x": ds @ k, "key": ds.mT @ q, "value": p.mT @ g}


# --- elements that move -----------------------------------------------------------------------------------------------


class Table(Translated):
    """``embedding``: some rows of the result, and of the gradient for the weights some that are used and some not."""

    def __init__(
        self,
        input: Tensor,
        weight: Tensor,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> None:
        if max_norm is not None or scale_grad_by_freq:
            raise UnsupportedError("max_norm or scale_grad_by_freq")
        self.inputs = {"weight": weight}
        self.indices = array(input).ravel()
        padding = -1 if padding_idx is None else padding_idx
        self.padding = padding + len(weight) if padding_idx is not None and padding < 0 else padding

    def result(self, y: Tensor, wanted: frozenset[str], draw: Draw) -> list[Check]:
        size = y.shape[-1]
        some = draw.some(len(self.indices), max(2, 2**16 // size))
        weight = self.inputs["weight"].detach()
        rows = array(weight[positions_on(weight, self.indices[some])])
        actual = _taken(y.detach().reshape(-1, size), some)
        used = np.unique(self.indices)
        self.rows = sorted({*used[draw.some(len(used), 64)].tolist(), *draw.some(len(self.inputs["weight"]), 16)})
        return [Check(Computed.of(Rounded(rows)), (rows,), {"result": actual})]

    def gradients(self, g: Tensor, found: dict[str, Tensor], draw: Draw) -> list[Check]:
        part, dw = array(g.detach().reshape(-1, g.shape[-1])), found["weight"].detach()
        dw = dw.coalesce().to_dense() if dw.is_sparse else dw
        sums = []
        for row in self.rows:
            own = part[self.indices == row] if row != self.padding else part[:0]
            sums.append(Rounded(own).sum(0) if len(own) > 1 else Rounded(own.sum(0, keepdims=True)))
        return [Check(Computed.of(Rounded.joined(sums)), (part,), {"gradient for weight": _taken(dw, self.rows)})]


class Shuffled(Formula):
    """``pixel_shuffle`` and ``pixel_unshuffle``: some images, whose elements only move."""

    def __init__(self, input: Tensor, factor: int, *, back: bool = False) -> None:
        if input.dim() < 3:
            raise UnsupportedError(f"an input of shape {tuple(input.shape)}")
        super().__init__(input, None)
        self.factor, self.back = factor, back

    def choose(self, draw: Draw) -> None:
        self.images = draw.some(math.prod(self.shape[:-3]), 2)

    def part(self, tensor: Tensor) -> Array:
        return _taken(tensor.detach().reshape(-1, *tensor.shape[-3:]), self.images)

    def _moved(self, x: Array, back: bool) -> Rounded:
        n, c, height, width = x.shape
        r = self.factor
        if back:
            found = x.reshape(n, c, height // r, r, width // r, r).transpose(0, 1, 3, 5, 2, 4)
            return Rounded(found.reshape(n, c * r * r, height // r, width // r))
        found = x.reshape(n, c // (r * r), r, r, height, width).transpose(0, 1, 4, 2, 5, 3)
        return Rounded(found.reshape(n, c // (r * r), height * r, width * r))

    def forward(self, x: Rounded) -> Rounded:
        return self._moved(x.value, self.back)

    def backward(self, g: Rounded, x: Rounded) -> Gradients:
        return {"x": self._moved(g.value, not self.back)}


# --- resizing and adaptive windows ------------------------------------------------------------------------------------


class Planes(Formula):
    """A layer that computes each plane of images by itself."""

    def __init__(self, input: Tensor, lengths: Sequence[int], sizes: Sequence[int]) -> None:
        super().__init__(input, None)
        self.lengths, self.sizes = tuple(lengths), tuple(sizes)

    number = 8
    """The most planes that are compared."""

    def choose(self, draw: Draw) -> None:
        self.some = draw.some(max(1, math.prod(self.shape) // math.prod(self.lengths)), self.number)

    def of(self, name: str, tensor: Tensor) -> Array:
        return _taken(tensor.detach().reshape(-1, *(self.sizes if name == "result" else self.lengths)), self.some)


class Separable(Planes):
    """A product of rows and columns of images with one matrix each; some images and channels."""

    def __init__(
        self, input: Tensor, lengths: Sequence[int], sizes: Sequence[int], rows: Rounded, columns: Rounded
    ) -> None:
        super().__init__(input, lengths, sizes)
        self.matrices = rows, columns
        work = max(one.value.size for one in self.matrices) * max(self.lengths[1], self.sizes[1])
        self.number = max(2, min(32, 4 * MATRIX // max(1, work)))

    def forward(self, x: Rounded, *, back: bool = False) -> Rounded:
        rows, columns = (one.mT if back else one for one in self.matrices)
        terms = [int((one.value != 0).sum(axis=1).max(initial=1)) for one in (rows, columns)]
        return rows.dot(x.dot(columns.mT, terms[1]), terms[0])

    def backward(self, g: Rounded, x: Rounded) -> Gradients:
        return {"x": self.forward(g, back=True)}


def means(length: int, size: int) -> Rounded:
    """Return the matrix of the means of the windows of an axis."""
    matrix = np.zeros((size, length))
    for i in range(size):
        window = slice(i * length // size, -(-(i + 1) * length // size))
        matrix[i, window] = 1 / (window.stop - window.start)
    return Rounded(matrix, UNIT_ROUNDOFF * matrix)


class UnevenMax(Planes):
    """Adaptive max pooling with windows of several sizes; the gradient where no window has its maximum twice."""

    def _windows(self) -> list[list[slice]]:
        return [
            [slice(i * length // size, -(-(i + 1) * length // size)) for i in range(size)]
            for length, size in zip(self.lengths, self.sizes, strict=True)
        ]

    def forward(self, x: Rounded) -> Rounded:
        rows, columns = self._windows()
        found = np.array([[x.value[:, r, c].max(axis=(1, 2)) for c in columns] for r in rows])
        return Rounded(found.transpose(2, 0, 1))

    def backward(self, g: Rounded, x: Rounded) -> Gradients:
        dx, error = np.zeros(x.value.shape), np.zeros(x.value.shape)
        rows, columns = self._windows()
        for (i, r), (j, c) in itertools.product(enumerate(rows), enumerate(columns)):
            part = x.value[:, r, c]
            largest = part == part.max(axis=(1, 2), keepdims=True)
            tied = largest.sum(axis=(1, 2), keepdims=True) > 1
            one = g.value[:, i, j, None, None]
            dx[:, r, c] += np.where(largest & ~tied, one, 0)
            error[:, r, c] += np.where(largest, np.where(tied, 1, 0) + 4 * UNIT_ROUNDOFF, 0) * abs(one)
        return {"x": Rounded(dx, error)}


def _cubic(t: Array) -> Array:
    """Return the weights of cubic convolution with a = -0.75."""
    t, a = abs(t), -0.75
    near, far = ((a + 2) * t - (a + 3)) * t * t + 1, ((t - 5) * t + 8) * t * a - 4 * a
    return np.where(t <= 1, near, np.where(t < 2, far, 0.0))


def weights_of(length: int, size: int, scale: float | None, aligned: bool, *, cubic: bool) -> Rounded:
    """Return the matrix that resizes an axis, and the error that positions in float32 make in its weights."""
    index = np.arange(size)
    if aligned:
        step = (length - 1) / (size - 1) if size > 1 else 0.0
        positions = index * step
    else:
        step = scale or length / size
        positions = (index + 0.5) * step - 0.5
        positions = positions if cubic else np.maximum(positions, 0)
    error = 4 * UNIT_ROUNDOFF * (abs(positions) + step + 1)
    matrix, wrong = np.zeros((size, length)), np.zeros((size, length))
    reach = 2 if cubic else 1
    for tap in range(-reach, 2 + reach):  # one more on each side, which a rounded position may reach
        source = np.floor(positions).astype(int) + tap
        t = positions - source
        weight = _cubic(t) if cubic else np.maximum(0, 1 - abs(t))
        np.add.at(matrix, (index, np.clip(source, 0, length - 1)), weight)
        np.add.at(wrong, (index, np.clip(source, 0, length - 1)), error * (3 if cubic else 1))
    return Rounded(matrix, wrong)


def resized(
    input: Tensor, sizes: Sequence[int], scales: Sequence[float | None], aligned: bool, *, cubic: bool
) -> Translated:
    """Return the translation of bilinear or bicubic resizing to any size."""
    axes = [
        weights_of(length, size, None if scale is None else 1 / scale, aligned, cubic=cubic)
        for length, size, scale in zip(input.shape[2:], sizes, scales, strict=True)
    ]
    return Separable(input, input.shape[2:], sizes, *axes)
