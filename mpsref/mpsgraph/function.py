"""What all functions of MPSGraph share: their table, their documentation, and what happens to tensors at the border."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, ParamSpec, TypeAlias, TypeVar

import numpy as np

from mpsref.arguments.arrays import Array, as_float, native
from mpsref.arguments.device import on_host
from mpsref.arguments.text import near, shown
from mpsref.errors import ShapeError

P = ParamSpec("P")
R = TypeVar("R")

Tensor: TypeAlias = Any
"""Anything array-like, as everywhere in mpsref; the bodies of functions get arrays of float32 or float64."""


class Function(NamedTuple):
    """A function of MPSGraph."""

    call: Callable[..., Any]
    selector: str
    since: str
    """The first macOS that has it."""
    header: str
    tensors: tuple[str, ...]
    """The parameters that are tensors of floating point numbers, of one type."""
    bind: Callable[..., inspect.BoundArguments]
    """Returns the arguments of a call by name; ``TypeError`` for illegal ones."""
    run: Callable[[dict[str, Any]], Any]
    """Runs such a call, given its arguments by name, which it may replace."""


FUNCTIONS: dict[str, Function] = {}
"""All functions by name. :class:`mpsref.mpsgraph.Graph` has each of them as a method."""


def function(
    selector: str, since: str, header: str, *tensors: str, tag: str = "doc"
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Declare a function of MPSGraph under its name in Python.

    ``tensors`` names the parameters that are tensors of one type, float16 or float32, or float64 on the reference. A
    float16 tensor is computed in float32, and results are rounded once, at the end.
    """

    def declare(body: Callable[P, R]) -> Callable[P, R]:
        name, signature = body.__name__, inspect.signature(body)

        def bind(*args: Any, **kwargs: Any) -> inspect.BoundArguments:
            if unknown := kwargs.keys() - signature.parameters.keys():
                meant = near(min(unknown), signature.parameters)
                raise TypeError(f"{name} has no parameter {min(unknown)!r}{meant}; it has {name}{signature}")
            return signature.bind(*args, **kwargs)

        def run(arguments: dict[str, Any]) -> R:
            given = {key: arguments[key] for key in tensors if arguments.get(key) is not None}
            arrays = {key: native(on_host(as_float(key, value)), key) for key, value in given.items()}
            first = next(iter(arrays), "")
            for key, array in arrays.items():
                if array.dtype != arrays[first].dtype:
                    raise TypeError(
                        f"{key} has dtype {array.dtype} and {first} has {arrays[first].dtype}; all tensors of {name} "
                        f"({selector}) must have one type"
                    )
                arguments[key] = array.astype(np.float32) if array.dtype == np.float16 else array
            if len(arrays) < len(tensors):
                for key in arguments.keys() & set(tensors) - arrays.keys():
                    if "None" not in str(signature.parameters[key].annotation):
                        raise TypeError(f"{key} is None; it must be a tensor")
            result = body(**arguments)  # type: ignore[call-arg]  # no parameter is positional only
            return _given_back(result, arrays[first].dtype if first else None)  # type: ignore[no-any-return]

        @functools.wraps(body)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return run(bind(*args, **kwargs).arguments)

        source = f"``{selector}`` in ``{header}``, macOS {since} [{tag}]."
        call.__doc__ = _documented(body.__doc__ or "", source, signature.parameters)
        FUNCTIONS[name] = Function(call, selector, since, header, tensors, bind, run)
        return call

    return declare


def _given_back(result: Any, dtype: Any) -> Any:
    if isinstance(result, tuple):
        return tuple(_given_back(one, dtype) for one in result)
    if dtype is None or result.dtype.kind != "f":
        return np.ascontiguousarray(result)
    with np.errstate(over="ignore"):  # a large float32 is an infinite float16
        return np.array(result, dtype, order="C", copy=None)


DESCRIBED = {
    "tensor : array_like": "A tensor of any rank.",
    "axes : int or sequence of int": "The axes; negative ones count from the end.",
    "incoming_gradient : array_like, in the data layout": "Gradient of the result.",
    "center_result, align_corners : bool": "Where results are sampled.",
    "layout : TensorNamedDataLayout, or its name or value": "NHWC, NCHW, HWC, CHW or HW.",
    "primary, secondary : array_like": "Tensors whose shapes broadcast.",
    "output_shape : tuple of int": "Shape of the source, in the data layout.",
    "descriptor : Convolution2DOpDescriptor": "That of the forward pass.",
    "scale_offset : sequence of float, optional": "``[scaleY, scaleX, offsetY, offsetX]``, in place of the two flags.",
    "axis : int": "The axis; a negative one counts from the end.",
    "weights : array_like, in the weights layout": "Those of the forward pass.",
    "source : array_like, in the data layout": "Images of the forward pass.",
    "images : array_like, in the layout": "Images.",
    "size : pair of int": "Height and width of the result.",
    "gradient : array_like, in the layout": "Gradient of the result.",
    "input : array_like, in the layout": "The images of the forward pass, of which only the shape counts.",
    "nearest_rounding_mode : ResizeNearestRoundingMode, or its name or value": "How positions are rounded.",
}
"""Documentation of parameters that several functions have; a function documents only what is not as here."""


def _documented(text: str, source: str, parameters: Iterable[str]) -> str:
    """Complete the documentation of a function: the source, the parameters that are as in others, and the result."""
    head, *found = re.split(r"\n\n(?=[A-Z]\w+\n-+\n)", inspect.cleandoc(text))
    sections = {"Parameters": "", "Returns": "ndarray"} | {
        name: body for name, _, body in (one.split("\n", 2) for one in found)
    }
    own = re.split(r"\n(?=\S)", sections["Parameters"]) if sections["Parameters"] else []
    shared = [f"{entry}\n    {described}" for entry, described in DESCRIBED.items()]
    names = ((entry, re.split(" :|\n", entry)[0].split(", ")) for entry in (*shared, *own))
    entry_of = {name: entry for entry, several in names for name in several}  # own ones last
    sections["Parameters"] = "\n".join(dict.fromkeys(entry_of[name] for name in parameters if name in entry_of))
    made = [f"{name}\n{'-' * len(name)}\n{body}" for name, body in sections.items() if body]
    return "\n\n".join([head, f"Source: {source}", *made])


# --- parameters -------------------------------------------------------------------------------------------------------


def axes_of(name: str, axes: object, rank: int) -> tuple[int, ...]:
    """Return axes in ascending order; a negative axis counts from the end.

    >>> axes_of("axes", [-1, 0], 4)
    (0, 3)
    """
    several = axes if isinstance(axes, (tuple, list, range, np.ndarray)) else (axes,)
    legal = f"it must be an axis of a tensor of rank {rank}, an integer in [{-rank}, {rank})"
    found = []
    for axis in several:
        if isinstance(axis, (bool, np.bool_)) or not isinstance(axis, (int, np.integer)) or not -rank <= axis < rank:
            raise ValueError(f"{name} is {shown(axes)}, with the axis {shown(axis)}; {legal}")
        found.append(int(axis) % rank)
    if len(set(found)) < len(found):
        raise ValueError(f"{name} is {shown(axes)}; each axis may occur once")
    return tuple(sorted(found))


def scalar(name: str, value: object) -> float:
    """Return a number that may be a tensor with one element."""
    try:
        array = np.asarray(value)
    except Exception:  # an array library may raise anything at all
        array = np.empty(0)
    if array.size != 1 or array.dtype.kind not in "fiu":
        what = f"has shape {array.shape}" if array.size else f"is {shown(value)}"
        raise TypeError(f"{name} {what}; it must be a number, or a tensor with one element")
    return float(array.reshape(()))


def same_shape(**arrays: Array) -> None:
    """Raise ``ShapeError`` unless the arrays have one shape."""
    (first, like), *others = arrays.items()
    for name, array in others:
        if array.shape != like.shape:
            raise ShapeError(f"{name} has shape {array.shape} and {first} has {like.shape}; they must be equal")


def not_empty(**arrays: Array) -> None:
    """Raise ``ShapeError`` for an array without elements."""
    for name, array in arrays.items():
        if not array.size:
            raise ShapeError(f"{name} has shape {array.shape}; each axis must be >= 1")


# --- views of tensors of any rank as images ---------------------------------------------------------------------------


def flat(array: Array) -> Array:
    """Return the elements as an image."""
    return array.reshape(1, 1, -1, 1) if array.size else array.reshape(0, 1, 1, 1)


def first(array: Array, axes: tuple[int, ...]) -> Array:
    """Return an image (1, R, 1, K): some axes as rows, the other ones as channels."""
    others = [axis for axis in range(array.ndim) if axis not in axes]
    moved = array.transpose([*axes, *others])
    rows = int(np.prod(moved.shape[: len(axes)]))
    return moved.reshape(1, rows, 1, -1)


def last(array: Array, axes: tuple[int, ...]) -> Array:
    """Return an image (1, 1, K, R): some axes as channels, the other ones as pixels."""
    others = [axis for axis in range(array.ndim) if axis not in axes]
    moved = array.transpose([*others, *axes])
    channels = int(np.prod(moved.shape[len(others) :]))
    return moved.reshape(1, 1, -1, channels)


def from_first(image: Array, axes: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """Undo :func:`first` for a tensor of a shape."""
    order = [*axes, *(axis for axis in range(len(shape)) if axis not in axes)]
    return image.reshape([shape[axis] for axis in order]).transpose(np.argsort(order))


def from_last(image: Array, axes: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """Undo :func:`last` for a tensor of a shape."""
    order = [*(axis for axis in range(len(shape)) if axis not in axes), *axes]
    return image.reshape([shape[axis] for axis in order]).transpose(np.argsort(order))


def kept(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape with length 1 on some axes."""
    return tuple(1 if axis in axes else length for axis, length in enumerate(shape))
