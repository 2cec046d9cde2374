"""What NumPy computes in float64 for operations of several collections, and how far kernels may be from it."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from published.collection import Array, Compared

EPSILON = float(np.finfo(np.float32).eps)
HALF = 2.0**-11
"""The largest relative rounding to float16."""


def wide(x: Array) -> Any:
    """Return the numbers of an array in float64."""
    return x.astype(np.float64)


def rounded(expected: Array, dtype: Any, error: Any = 0.0) -> tuple[Array, Array]:
    """Return results as a type holds them, and the bound: an error, and a rounding."""
    if np.dtype(dtype) == np.float16:
        expected = np.where(np.abs(expected) >= 65520, np.copysign(np.inf, expected), expected)
        return expected, error + 2 * HALF * np.abs(expected) + 2**-24
    return expected, error + EPSILON * np.abs(expected)


# --- functions of a number --------------------------------------------------------------------------------------------

erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x: Array) -> Any:
    """Return the logistic function."""
    return 1 / (1 + np.exp(-x))


def gelu(x: Array) -> Any:
    """Return the approximation of GELU by a hyperbolic tangent."""
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * x * (1 + 0.044715 * x * x)))


ACTIVATIONS: Mapping[str, Any] = {
    "sigmoid": sigmoid, "gelu": gelu, "gelu_erf": lambda x: 0.5 * x * (1 + erf(x * math.sqrt(0.5))),
    "gelu_quick": lambda x: x / (1 + np.exp(-1.702 * x)), "silu": lambda x: x / (1 + np.exp(-x)),
}  # fmt: skip

# --- rows -------------------------------------------------------------------------------------------------------------


def softmax(z: Array, axis: int = -1, sinks: Any = None, unit: float = EPSILON) -> tuple[Array, Array]:
    """Return softmax, whose sum may have another term, and the bound for errors of ``unit``."""
    top = z.max(axis, keepdims=True)
    top = top if sinks is None else np.maximum(top, sinks)
    powers = np.exp(z - top)
    found = powers / (powers.sum(axis, keepdims=True) + (0 if sinks is None else np.exp(sinks - top)))
    spread = np.nan_to_num(np.abs(z), posinf=0).max() + 1
    return found, unit * (z.shape[axis] / 32 + 32 + 8 * spread) * found + 1e-38


def logsumexp(z: Array) -> Any:
    """Return the logarithms of the sums of exponentials of rows."""
    top = z.max(-1)
    return np.where(np.isinf(top), top, np.log(np.exp(z - top[..., None]).sum(-1)) + top)


def normalized(
    x: Array, weight: Any = 1.0, bias: Any = 0.0, *, eps: float = 1e-5, centred: bool = True, unit: float = EPSILON,
    rounding: float = 0.0,
) -> tuple[Array, Array]:  # fmt: skip
    """Return rows normalized by mean and variance, or by their root mean square, and the bound.

    ``rounding`` is that of results between.
    """
    z, (weight, bias) = wide(x), (np.asarray(one, np.float64) for one in (weight, bias))
    mean = z.mean(-1, keepdims=True) if centred else 0.0
    deviation = np.sqrt(((z - mean) ** 2).mean(-1, keepdims=True) + eps)
    plain = (z - mean) / deviation
    error = unit * (64 + x.shape[-1] / 16) * (np.abs(z).max(-1, keepdims=True) / deviation + np.abs(plain))
    error = (error + rounding * (2 * np.abs(plain) + 1)) * np.abs(weight) + (unit + rounding) * np.abs(bias)
    return plain * weight + bias, error


def norm_gradient(z: Array, h: Array, *, eps: float = 1e-5, centred: bool = True) -> tuple[Array, Array, Array]:
    """Return the gradient of normalized rows, the rows, and the reciprocals of their deviations."""
    d = z - z.mean(-1, keepdims=True) if centred else z
    r = 1 / np.sqrt((d**2).mean(-1, keepdims=True) + eps)
    plain = d * r
    mean = h.mean(-1, keepdims=True) if centred else 0.0
    return r * (h - mean - plain * (h * plain).mean(-1, keepdims=True)), plain, r


def in_order(x: Array, places: Array, *, descending: bool = False) -> Compared:
    """Compare the elements of rows at some places, of which none is twice, with the first ones in order."""
    ascending = np.sort(places, -1)
    distinct = (ascending[..., 1:] != ascending[..., :-1]).all(-1, keepdims=True)
    legal = (places >= 0) & (places < x.shape[-1]) & distinct
    there = wide(np.take_along_axis(x, np.where(legal, places, 0).astype(np.int64), -1))
    z = wide(x)
    expected = (-np.sort(-z, -1) if descending else np.sort(z, -1))[..., : places.shape[-1]]
    return Compared(np.where(legal, there, np.where(np.isnan(expected), 0, np.nan)), expected)


def rotated(x: Array, cos: Array, sin: Array, error: Any, *, neighbours: bool) -> tuple[Array, Array]:
    """Return rows whose pairs, neighbours or of two halves, are rotated, and the bound; those behind are copied."""
    half, expected = cos.shape[-1], wide(x)
    bound = np.zeros(x.shape)
    pairs = (
        (np.s_[..., : 2 * half : 2], np.s_[..., 1 : 2 * half : 2]) if neighbours
        else (np.s_[..., :half], np.s_[..., half : 2 * half])
    )  # fmt: skip
    a, b = (expected[one].copy() for one in pairs)
    expected[pairs[0]], expected[pairs[1]] = a * cos - b * sin, a * sin + b * cos
    for one in pairs:
        bound[one] = error * (np.abs(a) + np.abs(b))
    return expected, bound


def attention(
    q: Array, k: Array, v: Array, scale: float, *, mask: Array | None = None, sinks: Array | None = None,
    causal: int | None = None,
) -> Any:  # fmt: skip
    """Return attention (batch, heads, count, size), with fewer heads of keys than of queries.

    A mask is added, or has bits; a query sees ``causal`` keys more than there are queries before it. Rows without a key
    are 0.
    """
    k, v = (np.repeat(wide(one), q.shape[1] // one.shape[1], 1) for one in (k, v))
    scores = scale * np.einsum("bhqd,bhkd->bhqk", wide(q), k)
    if causal is not None:
        scores = np.where(np.arange(k.shape[2]) <= causal + np.arange(q.shape[2])[:, None], scores, -np.inf)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    least = np.full((1, 1, 1, 1), -1e9) if sinks is None else wide(sinks)[:, None, None]
    top = np.maximum(scores.max(-1, keepdims=True), least)
    powers = np.exp(scores - top)
    total = powers.sum(-1, keepdims=True) + (0 if sinks is None else np.exp(least - top))
    return np.einsum("bhqk,bhkd->bhqd", powers / np.where(total == 0, 1, total), v)


# --- images (N, C, H, W) ----------------------------------------------------------------------------------------------


def windows(
    lengths: Sequence[int], kernel: Sequence[int], strides: Sequence[int], padding: Sequence[int],
    dilations: Sequence[int] = (1, 1, 1),
) -> tuple[int, ...]:  # fmt: skip
    """Return the numbers of windows along each axis."""
    axes = zip(lengths, kernel, strides, padding, dilations[: len(lengths)], strict=True)
    return tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in axes)


def patches(
    x: Array, kernel: Sequence[int], strides: Sequence[int], padding: Sequence[int], dilations: Sequence[int],
    fill: float = 0,
) -> Array:  # fmt: skip
    """Return the taps of windows, as (N, C, OH, OW, KH, KW), ``fill`` outside of the image."""
    padded = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)], constant_values=fill)
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    every = np.lib.stride_tricks.sliding_window_view(padded, spans, tuple(range(2, x.ndim)))
    steps = [slice(None, None, step) for step in (1, 1, *strides, *dilations)]
    return np.asarray(every[tuple(steps)])


def convolution(taken: Array, weights: Array, groups: int = 1) -> tuple[Array, Array]:
    """Return sums of taps (N, C, *size, *kernel) times weights (OC, C / groups, *kernel), and of their magnitudes."""
    size, (count, per, *kernel) = taken.shape[2 : 2 - weights.ndim], weights.shape
    taken = wide(taken).reshape(len(taken), groups, per, *size, -1)
    factors = wide(weights).reshape(groups, -1, per, math.prod(kernel))
    pairs = (taken, factors), (np.abs(taken), np.abs(factors))
    first, second = (np.einsum("ngc...k,gock->ngo...", *pair).reshape(-1, count, *size) for pair in pairs)
    return first, second


def spread(columns: Array, stride: int, dilation: int = 1) -> Array:
    """Return the sums of columns (..., length, taps) at the places of their taps along an axis."""
    length, taps = columns.shape[-2:]
    made = np.zeros((*columns.shape[:-2], (length - 1) * stride + dilation * (taps - 1) + 1))
    for j in range(taps):
        made[..., j * dilation : j * dilation + (length - 1) * stride + 1 : stride] += columns[..., j]
    return made


def transposed_convolution(x: Array, weights: Array, stride: int, dilation: int = 1) -> Array:
    """Return the transposed convolution of images with weights (C, OC, KH, KW), nothing cut off."""
    columns = np.einsum("nihw,ioyx->nohywx", wide(x), wide(weights))
    rows = np.moveaxis(spread(columns, stride, dilation), -1, 2)
    return spread(rows, stride, dilation).swapaxes(2, 3)


@functools.cache
def rounded_sizes(name: str, most: int = 64) -> tuple[tuple[int, int], ...]:
    """Return sizes of an axis, before and after, of which a position in float32 is on another pixel than exactly."""
    found = []
    for before, after in itertools.product(range(1, most + 1), repeat=2):
        i, pixels = np.arange(after), positions(before, after, name, align_corners=False).argmax(1)
        exact = (2 * i + 1) * before // (2 * after) if "exact" in name else i * before // after
        found += [(before, after)] * bool((pixels != exact).any())
    return tuple(found)


def positions(before: int, after: int, name: str, *, align_corners: bool, antialias: bool = False) -> Array:
    """Return the matrix (after, before) of the weights of a resized axis, with positions in float32."""
    scale = np.float32(before / after)
    if align_corners:
        scale = np.float32((before - 1) / (after - 1) if after > 1 else 0)
    i, j = np.arange(after, dtype=np.float32), np.arange(before)
    if name.startswith("nearest"):
        nearest = (scale * (i + np.float32(0.5)) if "exact" in name else scale * i).astype(np.int64)
        return np.eye(before)[np.minimum(nearest, before - 1)]
    source = scale * i if align_corners else scale * (i + np.float32(0.5)) - np.float32(0.5)
    if antialias:
        place, support = wide(source)[:, None], max(1.0, float(scale))
        near = (j >= np.floor(place - support + 0.5)) & (j < np.ceil(place + support + 0.5))
        weight = np.maximum(0, 1 - np.abs(j - place) / support) * near
        return np.asarray(weight / weight.sum(1, keepdims=True))
    cubic = "cubic" in name
    source = source if align_corners or cubic else np.maximum(source, 0)
    first = np.floor(source).astype(np.int64)
    t = wide(source - first)
    if cubic:
        near = [(1.25 * d - 2.25) * d * d + 1 for d in (t, 1 - t)]
        far = [((-0.75 * d + 3.75) * d - 6) * d + 3 for d in (t + 1, 2 - t)]
        weights = [(-1, far[0]), (0, near[0]), (1, near[1]), (2, far[1])]
    else:
        weights = [(0, 1 - t), (1, t)]
    matrix = np.zeros((after, before))
    for offset, one in weights:
        np.add.at(matrix, (np.arange(after), np.clip(first + offset, 0, before - 1)), one)
    return matrix


def resized(x: Array, size: Sequence[int], name: str, **words: bool) -> Any:
    """Return images of another size."""
    rows, columns = (positions(a, b, name, **words) for a, b in zip(x.shape[2:], size, strict=True))
    return np.einsum("ncij,ai,bj->ncab", wide(x), rows, columns)
