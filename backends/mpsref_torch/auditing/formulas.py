"""Layers that no kernel of MPS computes, by formulas in float64 with the error bounds of their steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

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


# --- elements and rows ------------------------------------------------------------------------------------------------


class ByFormula(Sampled):
    """A function of elements or of rows: ``forward(x)``, and ``backward(x, g)``."""

    HAS_CASES = False

    def __init__(self, x: Tensor, forward: Any, backward: Any, *more: Any, **options: Any) -> None:
        super().__init__(x, None, *more, **options)
        self.forward, self.backward = forward, backward

    def keep(self, wanted: frozenset[str]) -> None:
        self.values = {"x": self.values["x"].copy()} if wanted else {}

    def _check(self, method: str, found: dict[int, tuple[str, Array]]) -> Check:
        x = Rounded(self.values["x"])
        result = self.forward(x) if method == "forward" else self.backward(x, Rounded(self.values["g"]))
        return Check(Computed.of(result), tuple(self.values.values()), dict(found.values()), tuple(found))


class OfElements(ByFormula, Elements):
    """Each element by itself."""


class OfRows(ByFormula, Rows):
    """Each row along an axis by itself."""

    def __init__(self, x: Tensor, forward: Any, backward: Any, axis: int) -> None:
        Rows.__init__(self, x, None, axis)
        self.forward, self.backward = forward, backward


def silu(input: Tensor, inplace: bool = False) -> Translated:
    """Translate ``silu``."""

    def backward(x: Rounded, g: Rounded) -> Rounded:
        s = sigmoid(x)
        return g * (s + x * s * (1 - s))

    return OfElements(input, lambda x: x * sigmoid(x), backward, works_in_place=inplace)


def hardswish(input: Tensor, inplace: bool = False) -> Translated:
    """Translate ``hardswish``, x min(max(x + 3, 0), 6) / 6; at a kink either slope is right."""

    def forward(x: Rounded) -> Rounded:
        gate = Rounded(np.clip(x.value + 3, 0, 6), np.where(abs(x.value) < 3, UNIT_ROUNDOFF * 6, 0))
        return x * gate / 6

    def backward(x: Rounded, g: Rounded) -> Rounded:
        inside = x / 3 + 0.5
        slope = np.where(x.value >= 3, 1.0, np.where(x.value <= -3, 0.0, inside.value))
        jump = np.where(abs(x.value) == 3, 0.5, 0.0)
        return g * Rounded(slope, np.where(abs(x.value) < 3, inside.error, jump))

    return OfElements(input, forward, backward, works_in_place=inplace)


def glu(input: Tensor, dim: int = -1) -> Translated:
    """Translate ``glu``: one half times the sigmoid of the other."""

    def forward(x: Rounded) -> Rounded:
        half = x.value.shape[-1] // 2
        return x[..., :half] * sigmoid(x[..., half:])

    def backward(x: Rounded, g: Rounded) -> Rounded:
        half = x.value.shape[-1] // 2
        s = sigmoid(x[..., half:])
        parts = g * s, g * x[..., :half] * s * (1 - s)
        return Rounded(*(np.concatenate([getattr(one, name) for one in parts], -1) for name in Rounded.__slots__[::-1]))

    return OfRows(input, forward, backward, dim)


# --- normalization of rows --------------------------------------------------------------------------------------------


class Normalized(Sampled):
    """A normalization over some of four axes, with parameters for the axes 1 and 2, or for the last one of rows."""

    GRADIENTS: ClassVar = {"gradient": ("x", "weight", "bias")}
    HAS_CASES = False
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

    def part(self, tensor: Tensor) -> Array:
        return self._cut(tensor.detach().reshape(self.arranged))

    def _cut(self, tensor: Tensor) -> Array:
        whole = len(self.some) == tensor.shape[self.cut]
        cut = tensor if whole else tensor.index_select(self.cut, positions_on(tensor, self.some))
        return array(cut)

    def _parameter(self, tensor: Tensor) -> Array:
        shape = [length if axis in self.own else 1 for axis, length in enumerate(self.arranged)]
        found = tensor.detach().reshape(shape)
        return self._cut(found) if self.cut in self.own else array(found)

    def given(self) -> dict[str, Array]:
        affine = {name: self._parameter(self.inputs[name]) for name in ("weight", "bias") if name in self.inputs}
        return {"x": self.part(self.inputs["x"])} | affine

    def keep(self, wanted: frozenset[str]) -> None:
        self.values = {name: one.copy() for name, one in self.values.items() if name != "y"} if wanted else {}

    def _of_input(self, name: str, tensor: Tensor) -> Array:
        return self.part(tensor) if name == "x" else self._parameter(tensor)

    def gradients(self, g: Tensor, found: dict[str, Tensor], draw: Draw) -> list[Check]:
        if self.notes:  # only some rows were kept, and the others are terms of the sums for weight and bias
            found = {name: dx for name, dx in found.items() if name == "x"}
        return super().gradients(g, found, draw) if found else []

    def _check(self, method: str, found: dict[int, tuple[str, Array]]) -> Check:
        x, steps, axes = Rounded(self.values["x"]), self.steps, self.axes
        n, w = self.count, Rounded(self.values.get("weight", np.ones((1,) * 4)))
        mean, variance = self.statistics or (None, None)
        c = x - (x.sum(axes, steps) / n if mean is None else mean) if self.centered else x
        root = 1 / (((c * c).sum(axes, steps) / n if variance is None else variance) + Rounded(self.eps)).sqrt()
        normalized = c * root
        if method == "forward":
            results: tuple[Rounded, ...] = (normalized * w + self.values.get("bias", 0.0),)
        else:
            g = Rounded(self.values["g"])
            upstream, others = g * w, tuple(axis for axis in range(4) if axis not in self.own)
            dx = upstream
            if self.statistics is None:
                dx = dx - normalized * ((upstream * normalized).sum(axes, steps) / n)
                dx = dx - upstream.sum(axes, steps) / n if self.centered else dx
            dx = root * dx
            results = dx, (g * normalized).sum(others, steps), g.sum(others, steps)
        inputs = tuple(self.values.values())
        return Check(Computed.of(*results), inputs, dict(found.values()), tuple(found))


def of_rows(
    input: Tensor, shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float, *, centered: bool
) -> Translated:
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


class Formula(Translated):
    """A layer with formulas of its own, whose inputs are kept only as the parts that are compared."""

    def release(self) -> None:
        self.inputs = {name: tensor.detach().to("meta") for name, tensor in self.inputs.items()}

    def whole(self, method: str) -> None:
        return None


def _batches(tensor: Tensor) -> Tensor:
    """Return matrices (batch, rows, columns)."""
    return tensor.detach().reshape(-1, *tensor.shape[-2:])


def _taken(tensor: Tensor, *indices: Sequence[int]) -> Array:
    """Return some indices of each axis."""
    for axis, index in enumerate(indices):
        if len(index) < tensor.shape[axis]:
            tensor = tensor.index_select(axis, positions_on(tensor, index))
    return array(tensor)


class Product(Formula):
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
        self.inputs = {"x": query, "key": key, "value": value}
        self.mask, self.causal = attn_mask, is_causal
        self.scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
        self.unit = torch.finfo(query.dtype).eps / 2

    def _parts(self, *tensors: Tensor) -> list[Array]:
        return [_taken(_batches(one), self.heads) for one in tensors]

    def _probabilities(self) -> Rounded:
        q, k, _ = (Rounded(one) for one in self.kept)
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
        return softmax(Rounded(np.where(masked, -np.inf, scores.value), np.where(masked, 0.0, scores.error)))

    def result(self, y: Tensor, wanted: frozenset[str], draw: Draw) -> list[Check]:
        query, lead = self.inputs["x"], tuple(self.inputs["x"].shape[:-2])
        count = max(1, MATRIX // 8 // (self.queries * self.keys))
        self.heads = draw.some(math.prod(lead), min(2, count))
        self.shown = None
        if self.mask is not None:
            every = self.mask.detach().expand(*lead, self.queries, self.keys)
            index = np.unravel_index(self.heads, lead) if lead else ()
            picked = every[tuple(positions_on(every, one) for one in index)] if lead else every[None]
            self.shown = array(picked)
        self.mask = None
        self.kept = [one.copy() for one in self._parts(query, self.inputs["key"], self.inputs["value"])]
        found = self._probabilities().stored(self.unit) @ self.kept[2]
        (actual,) = self._parts(y)
        checks = [Check(Computed.of(found), tuple(self.kept), {"result": actual})]
        if not wanted:
            self.kept = []
        return checks

    def gradients(self, g: Tensor, found: dict[str, Tensor], draw: Draw) -> list[Check]:
        (part,) = self._parts(g)
        q, k, v = self.kept
        p = self._probabilities().stored(self.unit)
        dp = Rounded(part) @ v.swapaxes(1, 2)
        ds = (p * (dp - (p * dp).sum(-1)) * self.scale).stored(self.unit)
        results = {"x": ds @ k, "key": ds.mT @ q, "value": p.mT @ part}
        names = [name for name in results if name in found]
        inputs = (part, *self.kept)
        actual = {f"gradient for {name}": self._parts(found[name])[0] for name in names}
        self.kept = []
        return [Check(Computed.of(*(results[name] for name in names)), inputs, actual)]


# --- elements that move -----------------------------------------------------------------------------------------------


class Table(Formula):
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
        found_sums = Rounded(np.concatenate([s.value for s in sums]), np.concatenate([s.error for s in sums]))
        return [Check(Computed.of(found_sums), (part,), {"gradient for weight": _taken(dw, self.rows)})]


class Shuffled(Formula):
    """``pixel_shuffle`` and ``pixel_unshuffle``: some images, whose elements only move."""

    def __init__(self, input: Tensor, factor: int, *, back: bool = False) -> None:
        if input.dim() < 3:
            raise UnsupportedError(f"an input of shape {tuple(input.shape)}")
        self.inputs, self.factor, self.back = {"x": input}, factor, back

    def _moved(self, x: Array, back: bool) -> Array:
        n, c, height, width = x.shape
        r = self.factor
        if back:
            found = x.reshape(n, c, height // r, r, width // r, r).transpose(0, 1, 3, 5, 2, 4)
            return found.reshape(n, c * r * r, height // r, width // r)
        found = x.reshape(n, c // (r * r), r, r, height, width).transpose(0, 1, 4, 2, 5, 3)
        return found.reshape(n, c // (r * r), height * r, width * r)

    def _images(self, tensor: Tensor) -> Array:
        return _taken(tensor.detach().reshape(-1, *tensor.shape[-3:]), self.images)

    def result(self, y: Tensor, wanted: frozenset[str], draw: Draw) -> list[Check]:
        self.images = draw.some(math.prod(y.shape[:-3]), 2)
        x = self._images(self.inputs["x"])
        return [Check(Computed.of(Rounded(self._moved(x, self.back))), (x,), {"result": self._images(y)})]

    def gradients(self, g: Tensor, found: dict[str, Tensor], draw: Draw) -> list[Check]:
        part = self._images(g)
        moved = Computed.of(Rounded(self._moved(part, not self.back)))
        return [Check(moved, (part,), {"gradient for x": self._images(found["x"])})]


# --- resizing and adaptive windows ------------------------------------------------------------------------------------


class Separable(Formula):
    """A product of rows and columns of images with one matrix each; some images and channels."""

    def __init__(self, input: Tensor, rows: Rounded, columns: Rounded) -> None:
        self.inputs, self.matrices = {"x": input}, (rows, columns)

    rank = 2
    """Axes of the images."""

    def _planes(self, tensor: Tensor) -> Array:
        size = tensor.shape[-2:] if self.rank == 2 else (1, tensor.shape[-1])
        return _taken(tensor.detach().reshape(-1, *size), self.some)

    def _apply(self, x: Array, *, back: bool) -> Rounded:
        rows, columns = (one.mT if back else one for one in self.matrices)
        terms = [int((one.value != 0).sum(axis=1).max(initial=1)) for one in (rows, columns)]
        across = Rounded(x).dot(columns.mT, terms[1])
        return rows.dot(across, terms[0])

    def result(self, y: Tensor, wanted: frozenset[str], draw: Draw) -> list[Check]:
        x = self.inputs["x"]
        planes = math.prod(x.shape[: -self.rank])
        work = max(one.value.size for one in self.matrices) * max(x.shape[-1], y.shape[-1])
        self.some = draw.some(planes, max(2, min(32, 4 * MATRIX // max(1, work))))
        part = self._planes(x)
        return [Check(Computed.of(self._apply(part, back=False)), (part,), {"result": self._planes(y)})]

    def gradients(self, g: Tensor, found: dict[str, Tensor], draw: Draw) -> list[Check]:
        part = self._planes(g)
        return [Check(Computed.of(self._apply(part, back=True)), (part,), {"gradient for x": self._planes(found["x"])})]


def means(length: int, size: int) -> Rounded:
    """Return the matrix of the means of the windows of an axis."""
    matrix = np.zeros((size, length))
    for i in range(size):
        window = slice(i * length // size, -(-(i + 1) * length // size))
        matrix[i, window] = 1 / (window.stop - window.start)
    return Rounded(matrix, UNIT_ROUNDOFF * matrix)


class UnevenAverage(Separable):
    """Adaptive average pooling with windows of several sizes."""

    def __init__(self, input: Tensor, lengths: Sequence[int], sizes: Sequence[int], rank: int) -> None:
        super().__init__(input, *(means(length, size) for length, size in zip(lengths, sizes, strict=True)))
        self.rank = rank


class UnevenMax(Formula):
    """Adaptive max pooling with windows of several sizes; the gradient where no window has its maximum twice."""

    def __init__(self, input: Tensor, lengths: Sequence[int], sizes: Sequence[int], rank: int) -> None:
        self.inputs, self.lengths, self.sizes, self.rank = {"x": input}, tuple(lengths), tuple(sizes), rank

    def _planes(self, tensor: Tensor, size: Sequence[int]) -> Array:
        return _taken(tensor.detach().reshape(-1, *size), self.some)

    def result(self, y: Tensor, wanted: frozenset[str], draw: Draw) -> list[Check]:
        x = self.inputs["x"]
        self.some = draw.some(max(1, x.numel() // math.prod(self.lengths)), 8)
        part = self._planes(x, self.lengths)
        self.windows = [
            [slice(i * length // size, -(-(i + 1) * length // size)) for i in range(size)]
            for length, size in zip(self.lengths, self.sizes, strict=True)
        ]
        found = np.array([[part[:, r, c].max(axis=(1, 2)) for c in self.windows[1]] for r in self.windows[0]])
        self.kept = part.copy()
        actual = self._planes(y, self.sizes)
        return [Check(Computed.of(Rounded(found.transpose(2, 0, 1))), (part,), {"result": actual})]

    def gradients(self, g: Tensor, found: dict[str, Tensor], draw: Draw) -> list[Check]:
        part, x = self._planes(g, self.sizes), self.kept
        dx, error = np.zeros(x.shape), np.zeros(x.shape)
        for i, r in enumerate(self.windows[0]):
            for j, c in enumerate(self.windows[1]):
                largest = x[:, r, c] == x[:, r, c].max(axis=(1, 2), keepdims=True)
                tied = largest.sum(axis=(1, 2), keepdims=True) > 1
                one = part[:, i, j, None, None]
                dx[:, r, c] += np.where(largest & ~tied, one, 0)
                error[:, r, c] += np.where(largest & tied, abs(one), 0) + np.where(
                    largest, 4 * UNIT_ROUNDOFF * abs(one), 0
                )
        actual = self._planes(found["x"], self.lengths)
        return [Check(Computed.of(Rounded(dx, error)), (part, x), {"gradient for x": actual})]


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
    return Separable(input, *axes)
