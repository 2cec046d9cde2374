"""Chains: up to three operations one after the other, which a framework may compile into one kernel.

A chain is a kernel that only checks of frameworks have. It is no operation of MPS: :func:`mpsref.operations.operations`
leaves it out. Its data are small integers, of which no sum is rounded, so that results must be equal.

>>> chain = Chain(("conv3", "max3", "where"))
>>> Chain.problems["gradient"](chain, (1, 4, 5, 2)).result_shapes
((1, 4, 5, 2), (1, 4, 5, 2), (2, 3, 3, 2))

======== ==============================================================================================
conv3    convolution with weights 3 x 3 and a padding of 1; all steps of a chain have the same weights
max3     max pooling 3 x 3, a padding of 1
max2     max pooling 2 x 2, strides of 2
sum3     sums of windows 3 x 3, a padding of 1
sum2x1   sums of windows 2 x 1, strides of 2: its gradient has windows of one column on a dilated image
dilated  sums of windows 2 x 1, strides (2, 1), on an image with a column of zeros between any two columns
cropped  sums of windows 1 x 1 without the first row: a padding of -1
relu     max(v + 2**-k, 0) in step k, such that no argument is 0
abs      abs(v + 2**-k)
gate     v where the mask is true, else 0
where    the value before the last step where the mask is true, else v
add      v plus the value before the last step
rows     v plus the sum of its row
modulate (v plus the sum of the positive channels of its pixel) times (1 + scale), plus shift, as behind layer
         normalization; scale and shift are parts of one parameter, and all steps of a chain have the same
pad      a row and a column of zeros before and after
crop     without the first row and the first column: a padding of -1
apart    a row of zeros between any two rows, and without the first column, in one operation
up2      each pixel as 2 x 2 pixels
======== ==============================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from mpsref.arguments.arrays import Array, ImageShape, Shape
from mpsref.codecs import Codec, parameter
from mpsref.errors import ShapeError, UnsupportedError
from mpsref.frameworks.adapter import Framework, Function, Table, Tensor
from mpsref.kernels.reference import ErrorBound
from mpsref.operations import Argument, ImageProblem, Operation, Spec, operation

MOST = 3
"""Steps of a chain."""

Pullback: TypeAlias = Callable[[Array], Array]


class Window(NamedTuple):
    """Windows of a step: sizes, strides, padding (before, after) and the dilation of the image, along y and x."""

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))
    dilation: tuple[int, int] = (1, 1)


_ONE = ((1, 1), (1, 1))

WINDOWS: Mapping[str, Window] = {
    "conv3": Window((3, 3), pads=_ONE),
    "max3": Window((3, 3), pads=_ONE),
    "max2": Window((2, 2), (2, 2)),
    "sum3": Window((3, 3), pads=_ONE),
    "sum2x1": Window((2, 1), (2, 2)),
    "dilated": Window((2, 1), (2, 1), dilation=(1, 2)),
    "cropped": Window((1, 1), pads=((-1, 0), (0, 0))),
}
"""The steps with windows."""

Borders: TypeAlias = tuple[tuple[int, int], tuple[int, int]]

BORDERS: Mapping[str, Borders] = {"pad": _ONE, "crop": ((-1, 0), (-1, 0))}

APART = (0, 0), (-1, 0)
"""The padding of the step "apart"."""

PARAMETERS: Mapping[str, str] = {"conv3": "weights", "modulate": "table"}
"""The argument of the steps that have one, in the order of the arguments."""

WORDS = (*WINDOWS, "relu", "abs", "gate", "where", "add", "rows", "modulate", *BORDERS, "apart", "up2")


def _read(name: str, value: object) -> tuple[str, ...]:
    steps = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if not 1 <= len(steps) <= MOST or any(step not in WORDS for step in steps):
        raise ValueError(f"{name} is {value!r}; it must be 1 to {MOST} of {', '.join(WORDS)}")
    return steps


_WORD = f"(?:{'|'.join(WORDS)})"


class Chain(Spec):
    """Operations one after the other.

    Parameters
    ----------
    steps : tuple of str
        Their names, see the module.
    """

    listed: ClassVar[bool] = False

    steps: tuple[str, ...] = parameter(
        Codec(
            "conv3+max3", rf"({_WORD}(?:\+{_WORD})*)", lambda text: tuple(text.split("+")), "+".join, _read
        )
    )  # fmt: skip


class ChainGradient(
    ImageProblem,
    method="gradient",
    inputs={
        "g": "result_shape",
        "x": "n h w c",
        "weights": Argument("weights_shape", when="weighted"),
        "table": Argument("table_shape", when="modulated"),
        "mask": Argument("mask_shape", when="masked"),
    },
    results={
        "y": "result_shape",
        "dx": "n h w c",
        "dweights": Argument("weights_shape", when="weighted"),
        "dtable": Argument("table_shape", when="modulated"),
    },
):
    """A chain, forward and backward."""

    spec: Chain

    def _check(self) -> None:
        shapes: list[ImageShape] = [self.source_shape]
        for k, step in enumerate(self.spec.steps):
            if step in ("where", "add") and (k == 0 or shapes[-1] != shapes[-2]):
                raise ShapeError(f"step {k + 1}, {step!r}, takes two images of one shape; there are {shapes[-2:]}")
            shapes.append(_shape_after(step, shapes[-1]))
            if min(shapes[-1]) < 1:
                raise ShapeError(f"after step {k + 1}, {step!r}, no pixel of {self.source_shape} is left")
        masked = [shape for shape, step in zip(shapes, self.spec.steps, strict=False) if step in ("gate", "where")]
        if len({*masked}) > 1:
            raise ShapeError("the steps with a mask have images of several shapes; they share a mask")
        self._set(_shapes=tuple(shapes), _mask=masked[0] if masked else ())

    @property
    def result_shape(self) -> ImageShape:
        """The shape of the result."""
        found: ImageShape = self.__dict__["_shapes"][-1]
        return found

    @property
    def weighted(self) -> bool:
        """Whether a step has weights."""
        return "conv3" in self.spec.steps

    @property
    def weights_shape(self) -> Shape:
        """The shape of the weights."""
        return self.source_shape[3], 3, 3, self.source_shape[3]

    @property
    def modulated(self) -> bool:
        """Whether a step has a scale and a shift."""
        return "modulate" in self.spec.steps

    @property
    def table_shape(self) -> Shape:
        """The shape of the parameter whose parts are scale and shift."""
        return 1, 2, self.source_shape[3]

    @property
    def masked(self) -> bool:
        """Whether a step has a mask."""
        return bool(self.__dict__["_mask"])

    @property
    def mask_shape(self) -> Shape:
        """The shape of the mask."""
        shape: Shape = self.__dict__["_mask"]
        return shape

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Return integers from -3 to 3, and a mask of 0 and 1."""
        small = {name: np.fmod(np.round(array), 4) for name, array in drawn.items()}
        return small | ({"mask": (drawn["mask"] > 0).astype(drawn["mask"].dtype)} if self.masked else {})

    def where(self, index: tuple[int, ...]) -> str:
        """Name the steps."""
        return f"chain of {len(self.spec.steps)}: {', then '.join(self.spec.steps)}"


def _shape_after(step: str, shape: ImageShape) -> ImageShape:
    n, *size, c = shape
    if step in WINDOWS:
        one = WINDOWS[step]
        size = [
            ((length - 1) * d + 1 + sum(pads) - k) // s + 1
            for length, k, s, pads, d in zip(size, one.kernel, one.strides, one.pads, one.dilation, strict=True)
        ]
    elif step in BORDERS:
        size = [length + sum(pads) for length, pads in zip(size, BORDERS[step], strict=True)]
    elif step == "apart":
        size = [2 * size[0] - 1, size[1] - 1]
    elif step == "up2":
        size = [2 * length for length in size]
    return n, size[0], size[1], c


# --- the reference ----------------------------------------------------------------------------------------------------


def _bordered(v: Array, pads: Sequence[tuple[int, int]], fill: float = 0.0) -> tuple[Array, Pullback]:
    """Return an image with a border, or without it where the padding is negative, and the pullback."""
    more = [(max(a, 0), max(b, 0)) for a, b in pads]
    kept = tuple(slice(max(-a, 0), v.shape[k + 1] - max(-b, 0)) for k, (a, b) in enumerate(pads))
    inner = v[:, kept[0], kept[1]]
    wide = np.pad(inner, [(0, 0), *more, (0, 0)], constant_values=fill)

    def pull(g: Array) -> Array:
        d = np.zeros(v.shape)
        d[:, kept[0], kept[1]] = g[:, more[0][0] : more[0][0] + inner.shape[1], more[1][0] :][:, :, : inner.shape[2]]
        return d

    return wide, pull


def _taps(v: Array, one: Window, fill: float) -> tuple[Array, Pullback]:
    """Return the windows of an image, (N, H', W', taps, C), and the pullback."""
    dy, dx = one.dilation
    dilated = np.full((len(v), (v.shape[1] - 1) * dy + 1, (v.shape[2] - 1) * dx + 1, v.shape[3]), fill)
    dilated[:, ::dy, ::dx] = v
    wide, pull = _bordered(dilated, one.pads, fill)
    (ky, kx), (sy, sx) = one.kernel, one.strides
    height, width = (wide.shape[1] - ky) // sy + 1, (wide.shape[2] - kx) // sx + 1
    parts = [
        (slice(a, a + (height - 1) * sy + 1, sy), slice(b, b + (width - 1) * sx + 1, sx))
        for a, b in np.ndindex(ky, kx)
    ]  # fmt: skip
    taps = np.stack([wide[:, rows, columns] for rows, columns in parts], axis=3)

    def back(g: Array) -> Array:
        d = np.zeros(wide.shape)
        for k, (rows, columns) in enumerate(parts):
            d[:, rows, columns] += g[:, :, :, k]
        return pull(d)[:, ::dy, ::dx]

    return taps, back


def _no_weights(g: Array) -> Array:
    return np.zeros(())


def _same(g: Array) -> Array:
    return g


def _modulated(v: Array, table: Array) -> tuple[Array, Pullback, Pullback]:
    """Return the result of the step "modulate", its pullback, and that to its parameter."""
    scale, shift = table[0]
    sums = v + np.maximum(v, 0).sum(axis=3, keepdims=True)

    def pull(g: Array) -> Array:
        scaled: Array = g * (1 + scale)
        scaled += (v > 0) * scaled.sum(axis=3, keepdims=True)
        return scaled

    return (
        sums * (1 + scale) + shift,
        pull,
        lambda g: np.stack([(g * sums).sum(axis=(0, 1, 2)), g.sum(axis=(0, 1, 2))])[None],
    )


def _windowed(step: str, v: Array, weights: Array | None) -> tuple[Array, Pullback, Pullback]:
    """Return the result of a step with windows, its pullback, and that to the weights."""
    largest = step.startswith("max")
    taps, back = _taps(v, WINDOWS[step], -np.inf if largest else 0.0)
    if step == "conv3":
        assert weights is not None
        kernel = weights.reshape(len(weights), 9, -1)
        return (
            np.einsum("nhwtc,otc->nhwo", taps, kernel),
            lambda g: back(np.einsum("nhwo,otc->nhwtc", g, kernel)),
            lambda g: np.einsum("nhwo,nhwtc->otc", g, taps).reshape(weights.shape),
        )
    if largest:
        first = np.arange(taps.shape[3])[:, None] == taps.argmax(axis=3, keepdims=True)
        return taps.max(axis=3), lambda g: back(np.where(first, g[:, :, :, None], 0)), _no_weights
    return taps.sum(axis=3), lambda g: back(np.repeat(g[:, :, :, None], taps.shape[3], axis=3)), _no_weights


def _pointwise(step: str, v: Array, k: int) -> tuple[Array, Pullback]:
    """Return the result of another step with one operand, the ``k``-th of its chain, and its pullback."""
    moved = v + 2.0**-k
    if step == "relu":
        return np.maximum(moved, 0), lambda g: np.where(moved > 0, g, 0)
    if step == "abs":
        return np.abs(moved), lambda g: np.where(moved > 0, g, -g)
    if step == "rows":
        return v + v.sum(axis=2, keepdims=True), lambda g: g + g.sum(axis=2, keepdims=True)
    n, h, w, c = v.shape
    if step == "apart":
        wide = np.zeros((n, 2 * h - 1, w, c))
        wide[:, ::2] = v
        result, pull = _bordered(wide, APART)
        return result, lambda g: pull(g)[:, ::2]
    if step == "up2":
        return v.repeat(2, axis=1).repeat(2, axis=2), lambda g: g.reshape(n, h, 2, w, 2, c).sum(axis=(2, 4))
    return _bordered(v, BORDERS[step])


def _nothing(problem: ChainGradient, *inputs: Array) -> tuple[ErrorBound, ...]:
    """Sums of small integers are not rounded: results must be equal."""
    return tuple(ErrorBound(np.zeros(shape), True) for shape in problem.result_shapes)


@operation(Chain, problem=ChainGradient, bound=_nothing)
def gradient(problem: ChainGradient, g: Array, x: Array, *others: Array) -> tuple[Array, ...]:
    """One step after the other, then the pullback of each, the last one first."""
    given = dict(zip(problem.input_shapes, (g, x, *others), strict=True))
    mask = given.get("mask", np.zeros(0)) > 0
    values = [x]
    pulls: list[tuple[Pullback, Pullback | None, Pullback]] = []
    for k, step in enumerate(problem.spec.steps, start=1):
        v = values[-1]
        pull: Pullback
        of_parameter: Pullback = _no_weights
        of_before: Pullback | None = None
        if step in WINDOWS:
            result, pull, of_parameter = _windowed(step, v, given.get("weights"))
        elif step == "modulate":
            result, pull, of_parameter = _modulated(v, given["table"])
        elif step == "add":
            result, pull, of_before = v + values[-2], _same, _same
        elif step in ("gate", "where"):
            result = np.where(mask, v, 0) if step == "gate" else np.where(mask, values[-2], v)
            chosen, other = (lambda d: np.where(mask, d, 0)), (lambda d: np.where(mask, 0, d))
            pull, of_before = (chosen, None) if step == "gate" else (other, chosen)
        else:
            result, pull = _pointwise(step, v, k)
        values.append(result)
        pulls.append((pull, of_before, of_parameter))
    grads = [np.zeros(value.shape) for value in values]
    grads[-1] += g
    totals = {name: np.zeros(given[name].shape) for name in PARAMETERS.values() if name in given}
    for k in reversed(range(len(pulls))):
        pull, before, to_parameter = pulls[k]
        grads[k] += pull(grads[k + 1])
        if before is not None:
            grads[k - 1] += before(grads[k + 1])
        if (name := PARAMETERS.get(problem.spec.steps[k])) is not None:
            totals[name] += to_parameter(grads[k + 1])
    return values[-1], grads[0], *totals.values()


# --- in a framework ---------------------------------------------------------------------------------------------------

Steps: TypeAlias = Mapping[str, Function]
"""For each step a function of tensors: ``conv3(v, weights)``, ``modulate(v, table)``, ``gate(mask, v)``,
``where(mask, before, v)``, others of one image; "relu" and "abs" of the argument. A framework has no step that is
missing.
"""

OPERATION = Operation(Chain, "gradient")


def function_of(problem: Any, steps: Steps) -> Function:
    """Return the function of x, and of the parameters and a mask if there are such, that computes a chain."""
    missing = [step for step in problem.spec.steps if step not in steps and step != "add"]
    if missing:
        raise UnsupportedError(f"the framework has no step {missing[0]!r}")
    names, arguments = problem.spec.steps, (*problem.input_shapes,)[2:]

    def chain(x: Tensor, *others: Tensor) -> Tensor:
        before = v = x
        given = dict(zip(arguments, others, strict=True))
        for k, step in enumerate(names, start=1):
            if step == "add":
                result = v + before
            elif step in PARAMETERS:
                result = steps[step](v, given[PARAMETERS[step]])
            elif step == "gate":
                result = steps[step](given["mask"] > 0, v)
            elif step == "where":
                result = steps[step](given["mask"] > 0, before, v)
            else:
                result = steps[step](v + 2.0**-k if step in ("relu", "abs") else v)
            before, v = v, result
        return v

    return chain


def table(framework: Framework, make: Callable[[], Steps]) -> Table:
    """Return the implementation of chains in a framework; ``make()`` returns its steps."""

    def run(problem: Any, g: Array, x: Array, *others: Array, out: tuple[Array, ...]) -> None:
        chain = function_of(problem, make())
        out[0][...] = framework.run(chain, x, *others)
        found = framework.gradients(chain, (x, *others), g, count=len(out) - 1)
        for target, gradient in zip(out[1:], found, strict=True):
            target[...] = gradient

    return {OPERATION: run}
