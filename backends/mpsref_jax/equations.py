"""Equations of a jaxpr as problems of mpsref, with the operands and results that occurred, or a part of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from mpsref import Arithmetic, Convolution, Neuron, PoolingMax, Reduce, frameworks
from mpsref.arguments.arrays import Array
from mpsref.conformance.audit import Check
from mpsref.errors import UnsupportedError
from mpsref.geometry import Window
from mpsref.kernels.reference import UNIT_ROUNDOFF

ELEMENTS = 2**15
"""Elements of an image that are compared."""

PRODUCTS = 2**24
"""Products of a convolution, or of matrices, that are compared."""

WINDOWS = 24
"""Windows of max pooling on each axis that are compared."""


class Equation(NamedTuple):
    """An equation, and what chooses the part of it that is compared."""

    parameters: Mapping[str, Any]
    operands: list[Array]
    result: Array
    rng: np.random.Generator

    def few(self, count: int, wanted: int) -> Array:
        """Return the indices of a random choice, in their order."""
        return np.sort(self.rng.choice(count, min(count, max(1, wanted)), replace=False))

    def block(self, count: int, wanted: int) -> tuple[int, int]:
        """Return begin and end of consecutive indices: as often at either end as between."""
        wanted = min(count, max(1, wanted))
        begin = (0, count - wanted, int(self.rng.integers(0, count - wanted + 1)))[self.rng.integers(3)]
        return begin, begin + wanted


Make: TypeAlias = Callable[[Equation], Check]


def _problem(spec: Any, method: str, *given: Any, **options: Any) -> Any:
    return spec.problems[method](spec, *given, **options)


def _limited(each: int, limit: int, *sizes: int) -> list[int]:
    """Return smaller sizes with a product of at most ``limit / each``: the largest is halved until that holds."""
    found = list(sizes)
    while each * math.prod(found) > limit and max(found) > 1:
        k = found.index(max(found))
        found[k] = -(-found[k] // 2)
    return found


# --- elements ---------------------------------------------------------------------------------------------------------


def _elements(part: Equation) -> list[Array]:
    """Return elements of all operands, which are neither infinite nor subnormal, and of the result: (1, 1, n, 1)."""
    arrays = np.broadcast_arrays(*map(np.atleast_1d, (*part.operands, part.result)))
    chosen = np.unravel_index(part.few(arrays[-1].size, ELEMENTS), arrays[-1].shape)
    *operands, result = (array[chosen] for array in arrays)
    small = np.finfo(np.float32).tiny
    finite = np.logical_and.reduce([np.isfinite(one) & ((one == 0) | (abs(one) >= small)) for one in operands])
    if not finite.any():
        raise UnsupportedError("no element has finite operands")
    return [one[finite].reshape(1, 1, -1, 1) for one in (*operands, result)]


def _neuron(kind: str, **parameters: Any) -> Make:
    def make(part: Equation) -> Check:
        x, *_, y = _elements(part)
        return Check(_problem(Neuron(kind, **parameters), "forward", x.shape), (x,), {"result": y})

    return make


def _arithmetic(name: Any) -> Make:
    def make(part: Equation) -> Check:
        x, y, r = _elements(part)
        return Check(_problem(Arithmetic(name), "forward", x.shape), (x, y), {"result": r})

    return make


def _power(part: Equation) -> Check:
    """``integer_pow``, and ``pow`` with the same exponent everywhere."""
    exponents = np.unique(part.parameters["y"] if "y" in part.parameters else part.operands[1])
    if len(exponents) != 1:
        raise UnsupportedError("pow with exponents that differ")
    return _neuron("power", c=float(exponents[0]))(part._replace(operands=part.operands[:1]))


def _extremum(name: Any) -> Make:
    """``max`` and ``min`` of two operands."""

    def make(part: Equation) -> Check:
        finite = [one for one in part.operands if not np.isinf(one).all()]  # a maximum may begin with minus infinity
        *operands, r = _elements(part._replace(operands=finite or part.operands))
        images = np.concatenate(operands, axis=3)
        return Check(_problem(Reduce(name, "featurechannels"), "forward", images.shape), (images,), {"result": r})

    return make


def _reduction(name: Any) -> Make:
    def make(part: Equation) -> Check:
        (x, *_), y = part.operands, part.result
        axes = [axis % x.ndim for axis in part.parameters["axes"]]
        kept = [axis for axis in range(x.ndim) if axis not in axes]
        rows = x.transpose(*kept, *axes).reshape(math.prod(x.shape[axis] for axis in kept), -1)
        chosen = part.few(len(rows), ELEMENTS * 16 // rows.shape[1])
        rows, y = rows[chosen], y.reshape(-1)[chosen].astype(np.float32)
        if name in ("max", "min"):  # masks are infinities, which do not win
            masked = rows == (-np.inf if name == "max" else np.inf)
            rows = np.where(masked, getattr(rows, name)(axis=1, keepdims=True), rows)
        finite = np.isfinite(rows).all(axis=1)
        if not finite.any():
            raise UnsupportedError("no row has finite elements alone")
        image, y = rows[finite][:, None, None], y[finite].reshape(-1, 1, 1, 1)
        return Check(_problem(Reduce(name, "featurechannels"), "forward", image.shape), (image,), {"result": y})

    return make


# --- convolution ------------------------------------------------------------------------------------------------------


class _Sliding(NamedTuple):
    """A convolution of an image (N, H, W, Ci) with weights (Co, kH, kW, Ci / groups)."""

    x: Array
    weights: Array
    y: Array
    strides: tuple[int, int]
    start: tuple[int, int]
    """The pixel of the first tap of the first window."""
    spread: tuple[int, int]
    """Distance of the pixels of the image, with zeros between them."""
    dilations: tuple[int, int]
    groups: int = 1
    batch_groups: int = 1


def _offset(kernel: Any, dilations: Any, start: Any) -> tuple[int, int]:
    """Return the offset of windows of which the first one begins at ``start``, (y, x)."""
    y, x = (
        begin - Window(taps, 1, dilation, 0).start(0)
        for taps, dilation, begin in zip(kernel, dilations, start, strict=True)
    )
    return y, x


def _spec(kernel: Any, strides: Any, dilations: Any, start: Any, groups: int) -> Convolution:
    return Convolution(tuple(kernel), tuple(strides), tuple(dilations), _offset(kernel, dilations, start), groups)


def _convolution(part: Equation) -> Check:
    given, (lhs, rhs) = part.parameters, part.operands
    axes = lhs.ndim - 2
    if axes not in (1, 2):
        raise UnsupportedError(f"convolution over {axes} axes")
    numbers = given["dimension_numbers"]
    one = (1,) * (2 - axes)

    def image(array: Array, spec: tuple[int, ...]) -> Array:
        first, last, *spatial = spec
        moved = array.transpose(first, *spatial, last)
        return moved.reshape(moved.shape[0], *one, *moved.shape[1:])

    lows = (*(0 for _ in one), *(low for low, _ in given["padding"]))
    sliding = _Sliding(
        image(lhs, numbers.lhs_spec),
        image(rhs, numbers.rhs_spec),
        image(part.result, numbers.out_spec),
        (*one, *given["window_strides"]),
        (-lows[0], -lows[1]),
        (*one, *given["lhs_dilation"]),
        (*one, *given["rhs_dilation"]),
        given["feature_group_count"],
        given["batch_group_count"],
    )
    return _slid(part, sliding)


def _slid(part: Equation, c: _Sliding) -> Check:
    """Return the check of a convolution as one of three operations of mpsref."""
    if c.spread != (1, 1) and (c.strides != (1, 1) or c.batch_groups > 1):
        n, height, width, channels = c.x.shape
        sy, sx = c.spread
        wide = np.zeros((n, (height - 1) * sy + 1, (width - 1) * sx + 1, channels), c.x.dtype)
        wide[:, ::sy, ::sx] = c.x
        c = c._replace(x=wide, spread=(1, 1))
    if c.spread != (1, 1):
        return _data(part, c)
    large_kernel = math.prod(c.weights.shape[1:3]) > math.prod(c.y.shape[1:3])
    if c.batch_groups > 1 or (large_kernel and c.groups == 1):
        return _weights(part, c)
    return _forward(part, c)


def _channels(part: Equation, c: _Sliding, number: int) -> _Sliding:
    """Return a convolution with some of the groups, or without groups with some of the channels of the result."""
    chosen = part.few(c.y.shape[3] if c.groups == 1 else c.groups, number)
    if c.groups == 1:
        return c._replace(weights=c.weights[chosen], y=c.y[..., chosen])
    of_x, of_y = (
        (chosen[:, None] * each + np.arange(each)).ravel()
        for each in (c.x.shape[3] // c.groups, c.y.shape[3] // c.groups)
    )
    return c._replace(x=c.x[..., of_x], weights=c.weights[of_y], y=c.y[..., of_y], groups=len(chosen))


def _smaller(part: Equation, c: _Sliding) -> tuple[_Sliding, tuple[int, int, int, int]]:
    """Return a convolution with some images and channels, and begin and end of rows and columns of the result."""
    n, height, width, outputs = c.y.shape
    each = math.prod(c.weights.shape[1:])
    of_group = outputs // c.groups if c.groups > 1 else 1
    of_channels = c.groups if c.groups > 1 else outputs
    n, height, width, channels = _limited(each * of_group, PRODUCTS, n, height, width, of_channels)
    images = part.few(len(c.x), n)
    c = _channels(part, c._replace(x=c.x[images], y=c.y[images]), channels)
    rows, columns = part.block(c.y.shape[1], height), part.block(c.y.shape[2], width)
    return c, (*rows, *columns)


def _forward(part: Equation, c: _Sliding) -> Check:
    c, (top, bottom, left, right) = _smaller(part, c)
    y = c.y[:, top:bottom, left:right]
    start = c.start[0] + top * c.strides[0], c.start[1] + left * c.strides[1]
    spec = _spec(c.weights.shape[1:3], c.strides, c.dilations, start, c.groups)
    problem = _problem(spec, "forward", c.x.shape, y.shape[3], y.shape[1:3])
    return Check(problem, (c.x, c.weights), {"result": y})


def _data(part: Equation, c: _Sliding) -> Check:
    """An image with zeros between its pixels: the gradient of a strided convolution for its source."""
    c, (top, bottom, left, right) = _smaller(part, c)
    y = c.y[:, top:bottom, left:right]
    kernel = c.weights.shape[1:3]
    start = tuple(
        -first - (k - 1) * d - begin
        for first, k, d, begin in zip(c.start, kernel, c.dilations, (top, left), strict=True)
    )
    spec = _spec(kernel, c.spread, c.dilations, start, c.groups)
    own = frameworks.weights_to(c.weights, "OHWI", c.groups, transposed=True)
    problem = _problem(spec, "gradient_data", y.shape, c.x.shape[3], c.x.shape[1:3])
    return Check(problem, (c.x, own), {"result": y})


def _weights(part: Equation, c: _Sliding) -> Check:
    """A window of the size of an image: the gradient of a convolution for its weights, N and C exchanged."""
    g, x, dw = (one.transpose(3, 1, 2, 0) for one in (c.weights, c.x, c.y))
    groups = c.batch_groups
    each, pixels = g.shape[3] // groups, math.prod(g.shape[:3])
    per_pixel = math.prod(dw.shape[1:]) * pixels
    if groups == 1:
        outputs, inputs = _limited(per_pixel // dw.shape[3], PRODUCTS, g.shape[3], x.shape[3])
        of_g, of_x = part.few(g.shape[3], outputs), part.few(x.shape[3], inputs)
        g, x, dw = g[..., of_g], x[..., of_x], dw[of_g][..., of_x]
    else:
        (count,) = _limited(per_pixel * each, PRODUCTS, groups)
        chosen, own = part.few(groups, count), x.shape[3] // groups
        of_g, of_x = ((chosen[:, None] * size + np.arange(size)).ravel() for size in (each, own))
        g, x, dw, groups = g[..., of_g], x[..., of_x], dw[of_g], len(chosen)
    spec = _spec(dw.shape[1:3], c.dilations, c.strides, c.start, groups)
    problem = _problem(spec, "gradient_weights", x.shape, g.shape[3], g.shape[1:3])
    return Check(problem, (g, x), {"result": dw})


def _product(part: Equation) -> Check:
    """``dot_general``: a product of matrices is a convolution of one pixel, a batch of them one with groups."""
    (lhs, rhs), ((of_l, of_r), (batch_l, batch_r)) = part.operands, part.parameters["dimension_numbers"]
    free_l, free_r = (
        [axis for axis in range(array.ndim) if axis not in (*contracted, *batch)]
        for array, contracted, batch in ((lhs, of_l, batch_l), (rhs, of_r, batch_r))
    )
    batch = math.prod(lhs.shape[axis] for axis in batch_l)
    terms = math.prod(lhs.shape[axis] for axis in of_l)
    left = lhs.transpose(*batch_l, *free_l, *of_l).reshape(batch, -1, terms)
    right = rhs.transpose(*batch_r, *free_r, *of_r).reshape(batch, -1, terms)
    y = part.result.reshape(batch, left.shape[1], right.shape[1])
    x = left.transpose(1, 0, 2).reshape(-1, 1, 1, batch * terms)
    weights = right.reshape(-1, 1, 1, terms)
    result = y.transpose(1, 0, 2).reshape(-1, 1, 1, batch * right.shape[1])
    return _forward(part, _Sliding(x, weights, result, (1, 1), (0, 0), (1, 1), (1, 1), batch))


# --- windows ----------------------------------------------------------------------------------------------------------


class _Windows(NamedTuple):
    """Windows on two axes of an array, which becomes an image (N, H, W, 1)."""

    order: tuple[int, ...]
    """Axes of the array: the others, then the two of the windows."""
    axes: tuple[int, ...]

    @classmethod
    def of(cls, part: Equation) -> _Windows:
        given, ndim = part.parameters, part.operands[-1].ndim
        sizes = [given[name] for name in ("window_dimensions", "window_strides")]
        sizes += [given[name] for name in ("base_dilation", "window_dilation") if name in given]
        used = [k for k in range(ndim) if any(size[k] != 1 for size in sizes) or any(given["padding"][k])]
        if len(used) > 2:
            raise UnsupportedError(f"windows over {len(used)} axes")
        if ndim < 2:
            raise UnsupportedError("windows of an array of one axis")
        others = [k for k in range(ndim) if k not in used]
        axes = tuple(sorted([*used, *others[: 2 - len(used)]]))
        return cls((*(k for k in others if k not in axes), *axes), axes)

    def image(self, array: Array) -> Array:
        """Return (N, H, W, 1)."""
        return array.transpose(self.order).reshape(-1, *(array.shape[k] for k in self.axes), 1)

    def pair(self, values: Any) -> tuple[Any, Any]:
        """Return the values of both axes."""
        y, x = (values[k] for k in self.axes)
        return y, x


def _window_sum(part: Equation) -> Check:
    """``reduce_window_sum`` as a convolution with weights of 1."""
    given, windows = part.parameters, _Windows.of(part)
    x, y = windows.image(part.operands[0]), windows.image(part.result)
    lows = windows.pair(given["padding"])
    weights = np.ones((1, *windows.pair(given["window_dimensions"]), 1), x.dtype)
    strides, spread, dilations = (
        windows.pair(given[name]) for name in ("window_strides", "base_dilation", "window_dilation")
    )
    start = -lows[0][0], -lows[1][0]
    return _slid(part, _Sliding(x, weights, y, strides, start, spread, dilations))


def _padded(image: Array, pads: Any) -> Array:
    """Return an image with padding that never wins a maximum."""
    low = np.nextafter(image.min(), np.float32(-np.inf))
    return np.pad(image, ((0, 0), *pads, (0, 0)), constant_values=low)


def _window_max(sign: int) -> Make:
    """``reduce_window_max``, and with sign -1 ``reduce_window_min``."""

    def make(part: Equation) -> Check:
        given, windows = part.parameters, _Windows.of(part)
        if any(size != 1 for size in given["base_dilation"]):
            raise UnsupportedError("windows of an image with gaps")
        images = part.few(math.prod(part.result.shape) // math.prod(windows.pair(part.result.shape)), 8)
        x, y = windows.image(part.operands[0])[images] * sign, windows.image(part.result)[images] * sign
        x = _padded(x, windows.pair(given["padding"]))
        kernel, strides, dilations = (
            windows.pair(given[name]) for name in ("window_dimensions", "window_strides", "window_dilation")
        )
        begins = [part.block(count, WINDOWS) for count in y.shape[1:3]]
        (top, bottom), (left, right) = begins
        start = top * strides[0], left * strides[1]
        offset = _offset(kernel, dilations, start)
        y = y[:, top:bottom, left:right]
        problem = _problem(PoolingMax(kernel, strides, offset, dilations=dilations), "forward", x.shape, y.shape[1:3])
        return Check(problem, (x,), {"result": y})

    return make


def _window_max_gradient(part: Equation) -> Check:
    """``select_and_scatter_add`` for maxima: a block of windows, and the pixels that no other window reads."""
    given = part.parameters
    if str(given["select_prim"]) != "ge":
        raise UnsupportedError(f"select_and_scatter_add by {given['select_prim']}")
    windows = _Windows.of(part)
    g, x, dx = (windows.image(one) for one in (*part.operands, part.result))
    images = part.few(len(x), 8)
    pads = windows.pair(given["padding"])
    whole = _padded(x[images], pads)
    kernel, strides = windows.pair(given["window_dimensions"]), windows.pair(given["window_strides"])
    rows, regions, targets, blocks = [], [], [], []
    for count, k, s, (before, _), length in zip(g.shape[1:3], kernel, strides, pads, x.shape[1:3], strict=True):
        begin, end = part.block(count, WINDOWS)
        first, last = begin * s, (end - 1) * s + k  # rows of the padded image that the block reads
        inner = (begin - 1) * s + k if begin else 0, end * s if end < count else last
        low, high = max(inner[0], before, first), min(inner[1], before + length, last)
        blocks.append(slice(begin, end))
        rows.append(slice(first, last))
        regions.append(slice(low - first, max(low, high) - first))
        targets.append(slice(low - before, max(low, high) - before))
    if any(region.start >= region.stop for region in regions):
        raise UnsupportedError("each pixel has too many windows for a part")
    offset = _offset(kernel, (1, 1), (0, 0))
    own, cut = whole[:, rows[0], rows[1]], g[images][:, blocks[0], blocks[1]]
    problem = _problem(PoolingMax(kernel, strides, offset), "gradient", own.shape, cut.shape[1:3])
    actual = dx[images][:, targets[0], targets[1]]
    region = slice(None), *regions, slice(None)
    return Check(problem, (cut, own), {"result": actual}, region=region)


EQUATIONS: Mapping[str, Make] = {
    "conv_general_dilated": _convolution,
    "dot_general": _product,
    "reduce_window_sum": _window_sum,
    "reduce_window_max": _window_max(1),
    "reduce_window_min": _window_max(-1),
    "select_and_scatter_add": _window_max_gradient,
    "reduce_sum": _reduction("sum"),
    "reduce_max": _reduction("max"),
    "reduce_min": _reduction("min"),
    "argmax": _reduction("argumentmax"),
    "argmin": _reduction("argumentmin"),
    "add": _arithmetic("add"),
    "add_any": _arithmetic("add"),
    "sub": _arithmetic("subtract"),
    "mul": _arithmetic("multiply"),
    "div": _arithmetic("divide"),
    "max": _extremum("max"),
    "min": _extremum("min"),
    "exp": _neuron("exponential"),
    "exp2": _neuron("exponential", c=2.0),
    "log": _neuron("logarithm"),
    "tanh": _neuron("tanh"),
    "logistic": _neuron("sigmoid"),
    "abs": _neuron("absolute"),
    "neg": _neuron("linear", a=-1.0),
    "sqrt": _neuron("power", c=0.5),
    "rsqrt": _neuron("power", c=-0.5),
    "square": _neuron("power", c=2.0),
    "integer_pow": _power,
    "pow": _power,
}
"""What makes the check of an equation, by its primitive."""


SUMS = frozenset({"conv_general_dilated", "dot_general", "reduce_window_sum", "reduce_sum", "select_and_scatter_add"})
"""Equations that are linear in their operands, and whose bounds grow with the number of terms of a sum."""


def terms(name: str, given: Mapping[str, Any], operands: Sequence[Any], result: Any) -> int:
    """Return the most terms of a sum in the result of such an equation."""
    first, last = operands[0], operands[-1]
    if name == "conv_general_dilated":
        return int(math.prod(last.shape)) // int(last.shape[given["dimension_numbers"].rhs_spec[0]])
    if name == "dot_general":
        return math.prod(int(first.shape[axis]) for axis in given["dimension_numbers"][0][0])
    if name == "reduce_sum":
        return int(math.prod(first.shape) // math.prod(result.shape))
    return math.prod(map(int, given["window_dimensions"]))


def integers(name: str, operands: Sequence[Any], unit: float, rng: np.random.Generator) -> list[Array]:
    """Return other operands: small integers without 0, whose sums a type of this unit roundoff has exactly."""
    values = [-2, -1, 1, 2] if unit <= UNIT_ROUNDOFF else [-1, 1]
    found = [rng.choice(np.array(values, one.dtype), one.shape) for one in operands]
    if name == "select_and_scatter_add":  # different numbers, so that no window has its maximum twice
        found[1] = rng.permutation(found[1].size).reshape(found[1].shape).astype(found[1].dtype)
    return found
