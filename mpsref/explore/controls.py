"""The controls of the explorer: form fields from the fields of a spec and a problem, and back to a case."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mpsref import kernels
from mpsref.arguments.text import shown
from mpsref.conformance.case import Case
from mpsref.errors import UnsupportedError
from mpsref.geometry import Window, by_axis
from mpsref.operations import Spec
from mpsref.viz.explain import of_windows

FORMULAS: dict[type[Spec], str] = {
    kernels.PoolingAverage: "",
    kernels.PoolingMax: "the largest of the pixels of the window",
    kernels.PoolingL2Norm: "the square root of the sum of the squares",
    kernels.Convolution: "",
    kernels.ConvolutionTranspose: "",
    kernels.UpsamplingNearest: "",
    kernels.UpsamplingBilinear: "",
    kernels.SpatialNormalization: "x / (delta + alpha · (sum of x² over the window) / N) ** beta",
    kernels.LocalContrastNormalization: "the pixel minus the mean of its window, divided by its deviation",
}
"""The kernels that are shown, and the forward passes that are not linear, whose weights are derivatives."""

KERNELS = {kind.__name__: kind for kind in FORMULAS}

LARGEST = 32
"""Maximum height and width of an image that is shown."""

WIDEST = 64
"""Maximum number of rows and columns that the windows reach over, pixels outside the image included."""

MOST_PRODUCTS = 100_000
"""Maximum number of pixels of an image times taps of a window, 32 x 32 x 9 x 9 and some more."""

START = "PoolingAverage.gradient:n1h6w6c1,k3x3,s2x2,clamp,float32,exact,seed=0"
"""The case of a page without an address."""

RANGES = {
    "kernel_size": (1, 9),
    "strides": (1, 5),
    "dilations": (1, 4),
    "scale": (1, 4),
    "offset": (-6, 8),
    "zero_pad_size": (0, 4),
    "primary_offset": (-4, 4),
    "kernel_offset": (-6, 8),
    "source_shape": (1, 16),
    "output_size": (1, 16),
    "gradient_size": (1, 16),
    "source_size": (0, 16),
}
"""The ends of sliders."""

FARTHEST = 64
"""Maximum distance of an offset from 0."""

HIDDEN = {"groups", "neuron", "output_channels", "biased"}
"""Fields that the explorer leaves at one channel, without bias and activation."""

DEFAULTS = {"kernel_size": (3, 3), "scale": (2, 2)}
"""Of a form without these fields, which specs must have."""

LABELS = {"source_shape": "image size", "clip": "clip: y, x, height, width"}

BASIC = ("source_shape", "kernel_size", "scale", "strides", "offset", "edge_mode", "zero_pad_size", "kernel_offset")
"""The fields that are always in sight, in their order; the others are folded."""

SENTENCES = {
    "kernel": "What is computed from a window.",
    "method": "From x to y, or from g = dL/dy back to dL/dx.",
    "source_shape": "Rows and columns of x.",
    "kernel_size": "Rows and columns of a window; the centre of an even one is to the bottom right of its middle.",
    "scale": "Rows and columns of y for each of x.",
    "strides": "Distance of two windows.",
    "offset": "Pixel of x at the centre of window 0.",
    "edge_mode": "What a window reads outside the image: zeros, or the nearest pixel (an average leaves it out of N).",
    "zero_pad_size": "Zeros around the image that N counts although the windows are clamped: count_include_pad.",
    "kernel_offset": "Where the rotated window lies over g: pixel q of dx takes what is at q + effective offset.",
    "primary_offset": "Pixel of g that belongs to window 0.",
    "source_size": "Number of pixels of g that count, from the primary offset on.",
    "gradient_size": "Rows and columns of g: the number of windows.",
    "output_size": "Rows and columns of y: the number of windows.",
    "clip": "The rectangle of dx that is computed; the rest stays 0.",
    "dilations": "Distance of two pixels of a window.",
    "align_corners": "Whether the corners of x and y coincide.",
    "alpha": "Factor of the sum or deviation of the window.",
    "beta": "Exponent of the divisor.",
    "delta": "Added to the divisor, which must not be 0.",
    "p0": "Added to the result.",
    "pm": "Factor of the mean that is subtracted.",
    "ps": "Factor of the result.",
}
"""What each field does."""

PRESETS = {
    "kernel offset": (
        "PoolingAverage.gradient:n1h6w6c1,k3x3,s2x2,clamp,float32,exact,seed=0",
        "PoolingAverage.gradient:n1h6w6c1,k3x3,s2x2,clamp,ko1x1,float32,exact,seed=0",
        "Kernel offset 1 moves the rotated windows by one pixel over g, and so dx by one pixel to the top left.",
    ),
    "count_include_pad": (
        "PoolingAverage.forward:n1h4w4c1,k3x3,clamp,float32,exact,seed=0",
        "PoolingAverage.forward:n1h4w4c1,k3x3,clamp,zp1x1,float32,exact,seed=0",
        "A zero pad of 1 counts the zeros around the image: N is 9 in every window, as PyTorch divides by default.",
    ),
    "Caffe's ceil": (
        "PoolingMax.forward:n1h6w6c1,k3x3,s2x2,o1x1,clamp,out2x2,float32,exact,seed=0",
        "PoolingMax.forward:n1h6w6c1,k3x3,s2x2,o1x1,clamp,float32,exact,seed=0",
        "Caffe rounds the number of windows up: the last windows reach beyond the image.",
    ),
    "an even window": (
        "PoolingAverage.forward:n1h5w5c1,k3x3,s2x2,o1x1,clamp,float32,exact,seed=0",
        "PoolingAverage.forward:n1h5w5c1,k4x4,s2x2,o1x1,clamp,float32,exact,seed=0",
        "An even window has no middle: it has one pixel more to the top left of its centre, the dot.",
    ),
    "dilation": (
        "PoolingMax.forward:n1h7w7c1,k3x3,s2x2,o1x1,float32,exact,seed=0",
        "PoolingMax.forward:n1h7w7c1,k3x3,s2x2,o1x1,d2x2,float32,exact,seed=0",
        "Dilation 2 reads every second pixel: the window spans 5 x 5 pixels, and still has 9.",
    ),
    "convolution": (
        "",
        "Convolution.gradient_data:n1h6w6c1,k3x3,s2x2,o1x1,co1,float32,exact,seed=0",
        "The gradient of a convolution is a convolution: g with zeros inserted, under the weights in reverse order.",
    ),
}
"""Cases that show one thing each: before, after, and what there is to see."""


@dataclass(frozen=True)
class Control:
    """A parameter, and its form field or its two, y and x."""

    name: str
    values: dict[str, str]
    """By the names of the fields; of a parameter at its default, what that is."""
    words: tuple[str, ...] = ()
    """The choices of a list."""
    ends: tuple[int, int] | None = None
    """Of a slider."""
    is_default: bool | None = None
    """Whether the parameter is not given; ``None`` for one that is always."""

    @property
    def label(self) -> str:
        """The name in words."""
        return LABELS.get(self.name, self.name.replace("_", " "))


def simplified(case: Case) -> Case:
    """Return a case of one image and one channel.

    Parameters
    ----------
    case : Case
        Any case of one of ``KERNELS``.

    Raises
    ------
    UnsupportedError
        For another kernel, and for an image that is too large to be shown.
    """
    problem: Any = case.problem
    if type(problem.spec).__name__ not in KERNELS:
        raise UnsupportedError(f"{problem.operation} has no windows to show; the explorer has {', '.join(KERNELS)}")
    spec = _replaced(problem.spec, {"groups": 1, "neuron": None})
    fields = {"source_shape": (1, *problem.source_shape[1:3], 1), "output_channels": 1, "biased": False}
    found = dataclasses.replace(case, problem=_replaced(problem, {"spec": spec, **fields}), layouts=())
    shapes = [*found.problem.input_shapes.values(), *found.problem.result_shapes]
    largest = max(max(shape[1:3], default=0) for shape in shapes)
    if largest > LARGEST:
        raise UnsupportedError(f"an image of this case has {largest} pixels; the explorer shows at most {LARGEST}")
    if not all(all(shape) for shape in shapes):
        raise UnsupportedError("an image of this case has no pixels; use a larger image or output size")
    _check_windows(found.problem)
    return found


def _check_windows(problem: Any) -> None:
    """Raise ``UnsupportedError`` for windows that are too large or too far apart to be shown."""
    shapes = [*problem.input_shapes.values(), *problem.result_shapes]
    pixels = max(math.prod(shape[1:3]) for shape in shapes)
    products = pixels * math.prod(getattr(problem.spec, "kernel_size", (1, 1)))
    if products > MOST_PRODUCTS:
        text = f"windows of {problem.spec.kernel_size} pixels over {pixels} pixels have {products} products"
        raise UnsupportedError(f"{text}; the explorer shows at most {MOST_PRODUCTS}: use a smaller kernel or image")
    windows = getattr(of_windows(problem).spec, "windows", None)
    if windows is None:
        return
    for thing in (problem, problem.spec):
        for name in ("offset", "kernel_offset", "primary_offset"):
            value = getattr(thing, name, None) or (0, 0)
            if max(map(abs, value)) > FARTHEST:
                text = f"{name} is {shown(value)}; the explorer shows offsets from -{FARTHEST} to {FARTHEST}"
                raise UnsupportedError(text)
    is_forward = problem.operation.method == "forward"
    counts = problem.result_shapes[0][1:3] if is_forward else (1, 1)
    for window, count, length in zip(windows, counts, problem.source_shape[1:3], strict=True):
        reach = window.extent
        if is_forward:
            reach = max(length, window.start(count - 1) + window.extent) - min(0, window.start(0))
        if reach > WIDEST:
            text = f"the windows of this case reach over {reach} pixels; the explorer shows at most {WIDEST}"
            raise UnsupportedError(f"{text}: use a smaller kernel, stride or offset")


def _replaced(thing: Any, values: Mapping[str, Any]) -> Any:
    names = {one.name for one in dataclasses.fields(thing) if one.init}
    return dataclasses.replace(thing, **{name: value for name, value in values.items() if name in names})


def controls(case: Case) -> list[Control]:
    """Return the parameters of a case, those of ``BASIC`` first."""
    found = [
        _control(thing, one)
        for thing in (case.problem, case.problem.spec)
        for one in dataclasses.fields(thing)
        if "codec" in one.metadata and one.name not in HIDDEN
    ]
    order = {name: k for k, name in enumerate(BASIC)}
    return sorted(found, key=lambda control: order.get(control.name, len(order)))


def _control(thing: Any, one: dataclasses.Field[Any]) -> Control:
    name, codec, value = one.name, one.metadata["codec"], getattr(thing, one.name)
    if codec.words:
        return Control(name, {name: str(value)}, codec.words)
    if name == "clip":
        text = "" if value is None else ", ".join(str(n) for corner in value for n in corner)
        return Control(name, {name: text})
    if codec.length == 1:
        return Control(name, {name: f"{value!r}"})
    is_default = None
    if one.default is None:
        is_default = value is None or _replaced(thing, {name: None}) == thing
        value = _meant(thing, name) if value is None else value
    value = value[1:3] if name == "source_shape" else value
    low, high = RANGES[name]
    ends = min(low, *value), max(high, *value)
    return Control(name, {f"{name}_{a}": str(n) for a, n in zip("yx", value, strict=True)}, (), ends, is_default)


def _meant(problem: Any, name: str) -> tuple[int, int]:
    """Return what a pair means that is not given."""
    if name == "source_size":
        return by_axis(len, problem.included)
    origin = problem.clip[0] if problem.clip else (0, 0)
    return by_axis(Window.kernel_offset, problem.spec.windows, origin)


def case_of(form: Mapping[str, str]) -> Case:
    """Return the case of a form.

    Parameters
    ----------
    form : mapping of str
        ``kernel`` and ``method``, and the values of the controls by name; those that are missing have their defaults.

    Raises
    ------
    ValueError or TypeError
        That names a field whose value is illegal.
    """
    name = form.get("kernel", "")
    if name not in KERNELS:
        raise ValueError(f"kernel is {shown(name)}; use one of {', '.join(KERNELS)}")
    kind = KERNELS[name]
    method = form.get("method", "forward")
    if method not in kind.problems:
        method = "forward" if method == "forward" else _gradients(kind)[0]
    spec = kind(**_values(kind, form))
    problem: Any = kind.problems[method]
    values = _values(problem, form)
    values.setdefault("source_shape", (1, 6, 6, 1))
    if "output_channels" in {one.name for one in dataclasses.fields(problem)}:
        values["output_channels"] = 1
    return Case(problem(spec, **values), "float32", "exact", 0)


def methods(kind: type[Spec]) -> list[str]:
    """Return the methods of a kernel that the explorer shows."""
    return ["forward", *_gradients(kind)]


def _gradients(kind: type[Spec]) -> list[str]:
    return [method for method in kind.problems if method in ("gradient", "gradient_data", "gradient_weights")]


def _values(kind: Any, form: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of the fields of a spec or a problem that a form has."""
    values: dict[str, Any] = {}
    for one in dataclasses.fields(kind):
        if "codec" not in one.metadata or one.name in HIDDEN:
            continue
        codec = one.metadata["codec"]
        pair = [form.get(f"{one.name}_{axis}", "").strip() for axis in "yx"]
        text = form.get(one.name, "").strip()
        if codec.words and text:
            values[one.name] = text if "True" not in codec.words else text == "True"
        elif one.name == "clip" and text:
            try:
                y, x, height, width = map(int, text.split(","))
            except ValueError:
                raise ValueError(f"clip is {shown(text)}; write four integers: y, x, height, width") from None
            values["clip"] = ((y, x), (height, width))
        elif form.get(f"{one.name}_default") == "on":
            continue
        elif any(pair):
            if not all(pair):
                raise ValueError(f"{one.name} has one of its two values; give both y and x, or none for the default")
            y, x = (
                _parsed(f"{one.name} {axis}", part, int, "an integer") for axis, part in zip("yx", pair, strict=True)
            )
            values[one.name] = (1, y, x, 1) if one.name == "source_shape" else (y, x)
        elif text:
            values[one.name] = _parsed(one.name, text, float, "a number")
    needed = {name: value for name, value in DEFAULTS.items() if name in kind.__dataclass_fields__}
    return needed | values


def _parsed(name: str, text: str, kind: Any, legal: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{name} is {shown(text)}; it must be {legal}") from None
