"""Equations that move, select, convert or compare elements, by NumPy: their results have to be equal.

Those of sums of moved elements are within the bound of their additions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from mpsref.arguments.arrays import Array, Shape
from mpsref.errors import UnsupportedError

Given: TypeAlias = Mapping[str, Any]
Move: TypeAlias = "Callable[[Given, Sequence[Any], Array], Any]"
"""``move(parameters, operands, result)`` returns the expected result, or ``Expected``; of ``result`` only the form."""


UNITS = {"float64": 2.0**-53, "float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}
"""Unit roundoff of real types."""


class Expected(NamedTuple):
    """What a result has to be."""

    value: Array
    known: Any = True
    """Where it is known."""
    error: Any = 0.0
    """How far from it a result may be."""


def _wide(one: Array) -> Array:
    """Return numbers in the most precise type, in which NumPy has all functions."""
    return one.astype(np.complex128 if one.dtype.kind == "c" else np.float64)


def _elementwise(function: Callable[..., Any]) -> Move:
    """Of operands that are not NaN or subnormal: JAX may flush the latter."""

    def move(given: Given, operands: Sequence[Any], result: Array) -> Expected:
        known = np.logical_and.reduce(np.broadcast_arrays(*(~np.isnan(_wide(x)) & ~_small(x) for x in operands)))
        return Expected(function(*map(_wide, operands)), known)

    return move


def _small(one: Array) -> Array:
    """Return where numbers are subnormal in their type."""
    if one.dtype.kind not in "fV" or one.dtype == np.bool_:
        return np.zeros(one.shape, bool)
    tiny = np.finfo(one.dtype if one.dtype.kind == "f" else np.float32).tiny  # bfloat16 has the exponents of float32
    return np.asarray((one != 0) & (abs(_wide(one)) < tiny))


def _round(given: Given, operands: Sequence[Any], result: Array) -> Expected:
    away = int(given["rounding_method"]) == 0
    function = (lambda x: np.trunc(x + np.copysign(0.5, x))) if away else np.rint
    return _elementwise(function)(given, operands, result)  # type: ignore[no-any-return]


def _converted(given: Given, operands: Sequence[Any], result: Array) -> Expected:
    (x,), kind = operands, np.dtype(result.dtype)
    x = x.real if x.dtype.kind == "c" != kind.kind else x
    if kind.kind not in "iub" or x.dtype.kind in "iub":
        return Expected(x.astype(kind))
    limits = (0.0, 2.0) if kind.kind == "b" else (float(np.iinfo(kind).min), float(np.iinfo(kind).max))
    number = _wide(x)
    known = ~_small(x) & (np.isfinite(number) if kind.kind == "b" else (number > limits[0]) & (number < limits[1]))
    return Expected(np.where(known, number, 0).astype(kind), known)


def _padded(given: Given, operands: Sequence[Any], result: Array) -> Array:
    x, value = operands
    gaps = [gap for *_, gap in given["padding_config"]]
    wide = np.full([n + (n - 1) * gap for n, gap in zip(x.shape, gaps, strict=True)], value)
    wide[tuple(slice(None, None, gap + 1) for gap in gaps)] = x
    found, source, target = np.full(result.shape, value), [], []
    for n, length, (low, *_) in zip(wide.shape, result.shape, given["padding_config"], strict=True):
        begin, to = max(-low, 0), max(low, 0)
        count = max(min(n - begin, length - to), 0)
        source.append(slice(begin, begin + count))
        target.append(slice(to, to + count))
    found[tuple(target)] = wide[tuple(source)]
    return found


def _selected(given: Given, operands: Sequence[Any], result: Array) -> Array:
    which, *cases = operands
    found = cases[0]
    for k, case in enumerate(cases):
        found = np.where(which == k, case, found)
    return np.asarray(found)


def _block(shape: Shape, starts: Sequence[Any], sizes: Sequence[int]) -> tuple[slice, ...]:
    """Return a block that begins within its limits."""
    begins = [min(max(int(one), 0), n - size) for one, n, size in zip(starts, shape, sizes, strict=True)]
    return tuple(slice(begin, begin + size) for begin, size in zip(begins, sizes, strict=True))


def _updated(given: Given, operands: Sequence[Any], result: Array) -> Array:
    x, update, *starts = operands
    found: Array = x.copy()
    found[_block(x.shape, starts, update.shape)] = update
    return found


def _sliced(given: Given, operands: Sequence[Any], result: Array) -> Array:
    strides = given["strides"] or (1,) * result.ndim
    limits = zip(given["start_indices"], given["limit_indices"], strides, strict=True)
    return np.asarray(operands[0][tuple(slice(*one) for one in limits)])


def _broadcast(given: Given, operands: Sequence[Any], result: Array) -> Array:
    shape = [1] * result.ndim
    for axis, length in zip(given["broadcast_dimensions"], operands[0].shape, strict=True):
        shape[axis] = length
    return np.broadcast_to(operands[0].reshape(shape), result.shape)


def _iota(given: Given, operands: Sequence[Any], result: Array) -> Array:
    return np.indices(result.shape, result.dtype)[given["dimension"]]


def _positions(
    shape: Shape,
    indices: Array,
    window: Mapping[int, int],
    starts: Sequence[int],
    batch: Mapping[int, int],
    given: Given,
    of: Shape,
) -> Array:
    """Return which element of an array of ``shape`` each of an array of shape ``of`` is.

    ``window`` has the axis of the second array by that of the first one, ``batch`` that of the indices; ``starts`` has
    the axes to which the indices belong.
    """
    grid = np.indices(of, sparse=True)
    others = [grid[axis] for axis in range(len(of)) if axis not in window.values()]
    at: list[Any] = [0] * len(shape)
    for k, axis in enumerate(starts):
        size = of[window[axis]] if axis in window else 1
        begin = indices[(*others, k)].astype(np.int64)
        inside = np.clip(begin, 0, shape[axis] - size)
        if (begin != inside).any() and "clip" not in str(given["mode"]).lower():
            raise UnsupportedError("indices out of bounds")
        at[axis] = inside
    for axis, own in batch.items():
        at[axis] = others[own]
    for axis, own in window.items():
        at[axis] = at[axis] + grid[own]
    return np.broadcast_to(np.ravel_multi_index(np.broadcast_arrays(*at), shape), of)


def _gathered(given: Given, operands: Sequence[Any], result: Array) -> Array:
    (x, indices), names = operands, given["dimension_numbers"]
    lost = {*names.collapsed_slice_dims, *names.operand_batching_dims}
    window = dict(zip((axis for axis in range(x.ndim) if axis not in lost), names.offset_dims, strict=True))
    batch = dict(zip(names.operand_batching_dims, names.start_indices_batching_dims, strict=True))
    return np.asarray(
        x.reshape(-1)[_positions(x.shape, indices, window, names.start_index_map, batch, given, result.shape)]
    )


def _scattered(given: Given, operands: Sequence[Any], result: Array) -> Expected:
    """Sums of a number and of those that are added to it, in any order."""
    (x, indices, update), names = operands, given["dimension_numbers"]
    if x.dtype.kind == "c":
        raise UnsupportedError("complex numbers")
    lost = {*names.inserted_window_dims, *names.operand_batching_dims}
    window = dict(zip((axis for axis in range(x.ndim) if axis not in lost), names.update_window_dims, strict=True))
    batch = dict(zip(names.operand_batching_dims, names.scatter_indices_batching_dims, strict=True))
    to = _positions(x.shape, indices, window, names.scatter_dims_to_operand_dims, batch, given, update.shape).ravel()
    first, added = _wide(x).ravel(), _wide(update).ravel()
    count = np.bincount(to, minlength=x.size) - (first == 0)
    size = abs(first) + np.bincount(to, abs(added), minlength=x.size)
    unit = UNITS[str(result.dtype)] * np.maximum(count, 0)
    if (unit >= 1).any():
        raise UnsupportedError(f"sums of {count.max() + 1} terms have no bound")
    error = unit / (1 - unit) * size
    value = first + np.bincount(to, added, minlength=x.size)
    return Expected(value.reshape(x.shape), np.isfinite(size).reshape(x.shape), error.reshape(x.shape))


def _same(given: Given, operands: Sequence[Any], result: Array) -> Array:
    order = given.get("dimensions") if "new_sizes" in given else None
    return np.asarray(operands[0].transpose(order or range(operands[0].ndim)).reshape(result.shape))


MOVES: Mapping[str, Move] = {
    "bitcast_convert_type": lambda given, x, y: x[0].view(y.dtype).reshape(y.shape),
    "broadcast_in_dim": _broadcast,
    "clamp": _elementwise(lambda low, x, high: np.minimum(np.maximum(x, low), high)),
    "concatenate": lambda given, x, y: np.concatenate(x, axis=given["dimension"]),
    "convert_element_type": _converted,
    "dynamic_slice": lambda given, x, y: x[0][_block(x[0].shape, x[1:], given["slice_sizes"])],
    "dynamic_update_slice": _updated,
    "gather": _gathered,
    "iota": _iota,
    "pad": _padded,
    "rev": lambda given, x, y: np.flip(x[0], given["dimensions"]),
    "round": _round,
    "scatter-add": _scattered,
    "scatter_add": _scattered,
    "select_n": _selected,
    "slice": _sliced,
    "transpose": lambda given, x, y: x[0].transpose(given["permutation"]),
    **dict.fromkeys(("copy", "expand_dims", "reshape", "squeeze", "stop_gradient"), _same),
    **{
        name: _elementwise(function)
        for name, function in {
            "ceil": np.ceil, "eq": np.equal, "floor": np.floor, "ge": np.greater_equal, "gt": np.greater,
            "le": np.less_equal, "lt": np.less, "ne": np.not_equal, "sign": np.sign,
        }.items()
    },
    "is_finite": lambda given, x, y: np.isfinite(_wide(x[0])),
}  # fmt: skip
"""What computes an equation, by its primitive."""


def is_known(name: str) -> bool:
    """Return whether a primitive moves, selects, converts or compares elements."""
    return name in MOVES or name in ("device_put", "split")


def expected(name: str, given: Given, operands: Sequence[Array], results: Sequence[Array]) -> list[Expected]:
    """Return what the results of an equation have to be."""
    if name == "device_put":
        return [Expected(one) for one in operands]
    if name == "split":
        ends = np.cumsum(given["sizes"])[:-1]
        return [Expected(one) for one in np.split(operands[0], ends, axis=given["axis"])]
    with np.errstate(all="ignore"):
        found = MOVES[name](given, operands, results[0])
    found = found if isinstance(found, Expected) else Expected(found)
    if not np.any(found.known):
        raise UnsupportedError("no element has operands that can be compared")
    return [found]


def difference(wanted: Expected, actual: Array) -> str:
    """Return what is wrong with a result; nothing if it is right."""
    value = np.asarray(wanted.value)
    if value.shape != actual.shape:
        return f"it has the shape {actual.shape}, expected is {value.shape}"
    if actual.dtype.kind == "c" or str(actual.dtype) in UNITS:
        value, found = (
            np.where(_small(one), 0, _wide(one))
            for one in (value.astype(actual.dtype) if np.ndim(wanted.error) == 0 else value, actual)
        )
    else:
        found = actual
    with np.errstate(invalid="ignore"):
        right = (value == found) | ((value != value) & (found != found))
        right |= ~np.broadcast_to(wanted.known, found.shape)
        if np.ndim(wanted.error):
            right |= abs(found - value) <= wanted.error
    if right.all():
        return ""
    first = tuple(np.argwhere(~right)[0].tolist())
    return (
        f"{np.sum(~right)} of {right.size} elements are wrong; the first is {list(first)}. "
        f"It is {found[first]:.9g}, expected is {value[first]:.9g}"
    )
