"""Arithmetic of two images: sum, difference, product, quotient, with scales, a bias and a clamp; and its gradients.

Forward   ``r = clamp(r', minimum_value, maximum_value)`` with ``r'`` = ``(p x + q y) + bias``, ``(p x - q y) + bias``,
          ``(p x) (q y) + bias`` or ``(p x) / (q y) + bias``, in this bracketing; p and q are the scales
Gradient  add ``dx = R(p g m)``, ``dy = R(q g m)``; subtract the same with ``dy = R(-q g m)``;
          multiply ``dx = R(p g m q y)``, ``dy = R(p g m q x)``

``m`` is 1 where ``minimum_value < r' < maximum_value`` (both strict), else 0, and selects: where it is 0 nothing of g
counts, not even a NaN [choice]. ``R`` sums over the axes on which the operand has stride 0 and puts the sum at the
operand's offset, zeros elsewhere, so that dx has the shape of x. A division has no gradient kernel.

Source: MPSCNNAdd, MPSCNNSubtract, MPSCNNMultiply, MPSCNNDivide and their gradients in ``MPSCNNMath.h``; forward, mask
and R [doc]; the default bounds, which are infinite [obs]; where R puts its sum [math].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np

from mpsref import codecs, registry
from mpsref.arguments.arrays import Array, Shape, as_image
from mpsref.arguments.parameters import Triple, choice, number
from mpsref.errors import NoGradientError, ShapeError
from mpsref.kernels.broadcasting import Broadcasting, BroadcastProblem, Operand, operand_of
from mpsref.kernels.posing import posed
from mpsref.kernels.reference import ErrorBound
from mpsref.operations import Declaration, Formula, OperationKey

Name: TypeAlias = Literal["add", "subtract", "multiply", "divide"]

NAMES: tuple[Name, ...] = get_args(Name)

Wanted: TypeAlias = Literal["both", "primary", "secondary"]
"""Which gradients are computed: an MPS kernel computes that of one operand."""

WANTED: tuple[Wanted, ...] = get_args(Wanted)


class ArithmeticForward(BroadcastProblem):
    """``forward`` of arithmetic: r from x and y."""

    method: ClassVar[str] = "forward"
    spec: Arithmetic

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The operands."""
        return {"x": self.source_shape, "y": self.secondary_shape}

    @property
    def result_shapes(self) -> tuple[Shape]:
        """The image r."""
        return (self.shape,)

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Keep products inside the range of float16, and divisors away from 0."""
        if self.spec.operation in ("multiply", "divide"):
            drawn = {name: np.clip(array, -32, 32) for name, array in drawn.items()}
        if self.spec.operation == "divide":
            drawn["y"] = np.copysign(np.maximum(np.abs(drawn["y"]), 0.5), drawn["y"])
        return drawn


class ArithmeticGradient(BroadcastProblem):
    """``gradient`` of arithmetic: dx and dy, or one of them, from g, and from x and y as far as that reads them."""

    method: ClassVar[str] = "gradient"
    spec: Arithmetic
    wanted: Wanted = field(default="both", metadata={"codec": codecs.word(*WANTED)})

    def __post_init__(self) -> None:
        """Check the shapes, and that there is a gradient."""
        if self.spec.operation == "divide":
            raise NoGradientError(
                "operation is 'divide', which has no gradient kernel in MPS; multiply by the reciprocal instead, or "
                "write the gradient with forward calls: dx = g / y, dy = -g x / y^2"
            )
        choice("wanted", self.wanted, WANTED)
        super().__post_init__()

    @property
    def of(self) -> tuple[int, ...]:
        """The operands whose gradients are wanted: 0 for x, 1 for y."""
        return {"both": (0, 1), "primary": (0,), "secondary": (1,)}[self.wanted]

    @property
    def reads(self) -> tuple[int, ...]:
        """The operands that are read: a mask needs both, a product the other one."""
        if self.spec.clamps:
            return 0, 1
        return tuple(1 - k for k in reversed(self.of)) if self.spec.operation == "multiply" else ()

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The source gradient g, and the operands that are read."""
        shapes = self.source_shape, self.secondary_shape
        return {"g": self.shape, **{"xy"[k]: shapes[k] for k in self.reads}}

    @property
    def result_shapes(self) -> tuple[Shape, ...]:
        """The images dx and dy, as far as they are wanted."""
        return tuple((self.source_shape, self.secondary_shape)[k] for k in self.of)

    def sources(self, operands: Sequence[Array], otherwise: Array) -> tuple[Array, Array]:
        """Return x and y from the operands that are read, and for one that is not, ``otherwise``."""
        known = dict(zip(self.reads, operands, strict=True))
        return known.get(0, otherwise), known.get(1, otherwise)

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Give x and y few enough digits that no rounding moves r' across a bound."""
        operands = {name: np.round(np.clip(drawn[name], -32, 32) * 8) / 8 for name in drawn if name != "g"}
        return drawn | operands

    def terms_of(self, k: int) -> int:
        """Return how many elements of g each element of the gradient for operand k sums over."""
        strides = self.spec.operands[k].strides
        return math.prod(length for length, t in zip(self.shape[1:], strides, strict=True) if t == 0)


class Arithmetic(Broadcasting):
    """``x op y`` with scales, bias and clamp. Strides and offsets are (y, x, channel); strides are 0 or 1.

    >>> import numpy as np
    >>> add = Arithmetic("add", secondary_scale=0.5, secondary_strides=(0, 0, 1))   # a row of per-channel numbers
    >>> x, y = np.zeros((1, 1, 2, 2), np.float32), np.array([4, 6], np.float32).reshape(1, 1, 1, 2)
    >>> add.forward(x, y).tolist()
    [[[[2.0, 3.0], [2.0, 3.0]]]]
    >>> dx, dy = add.gradient(np.ones_like(x), x.shape, y.shape)
    >>> dx.shape, dy.tolist()
    ((1, 1, 2, 2), [[[[1.0, 1.0]]]])
    """

    operation: Name = field(metadata={"codec": codecs.word(*NAMES)})
    primary_scale: float = field(default=1.0, metadata={"codec": codecs.number("p")})
    secondary_scale: float = field(default=1.0, metadata={"codec": codecs.number("q")})
    bias: float = field(default=0.0, metadata={"codec": codecs.number("b")})
    primary_strides: Triple = field(default=(1, 1, 1), metadata={"codec": codecs.triple("ps")})
    secondary_strides: Triple = field(default=(1, 1, 1), metadata={"codec": codecs.triple("ss")})
    primary_offset: Triple = field(default=(0, 0, 0), metadata={"codec": codecs.triple("po")})
    secondary_offset: Triple = field(default=(0, 0, 0), metadata={"codec": codecs.triple("so")})
    minimum_value: float = field(default=-math.inf, metadata={"codec": codecs.number("min")})
    maximum_value: float = field(default=math.inf, metadata={"codec": codecs.number("max")})

    problems: ClassVar = {"forward": ArithmeticForward, "gradient": ArithmeticGradient}

    def __post_init__(self) -> None:
        """Check every parameter."""
        object.__setattr__(self, "operation", choice("operation", self.operation, NAMES))
        for name in ("primary_scale", "secondary_scale", "bias"):
            object.__setattr__(self, name, number(name, getattr(self, name)))
        self._check_operands()
        for name in ("minimum_value", "maximum_value"):
            value = getattr(self, name)
            bound = math.copysign(math.inf, value) if value in (math.inf, -math.inf) else number(name, value)
            object.__setattr__(self, name, bound)
        if self.minimum_value > self.maximum_value:
            raise ValueError(
                f"minimum_value is {self.minimum_value} and maximum_value {self.maximum_value}; "
                "minimum_value must be <= maximum_value"
            )

    @property
    def clamps(self) -> bool:
        """Whether a bound is finite."""
        return (self.minimum_value, self.maximum_value) != (-math.inf, math.inf)

    def forward(self, x: Any, y: Any, *, out: Any = None, backend: Any = None) -> Array:
        """Return r from the images x and y, both (N, H, W, C), in the dtype of x.

        The size of r is that of :meth:`result_shape`. Raises ``ValueError`` or ``TypeError`` for what does not fit.
        """
        x, y = as_image("x", x), as_image("y", y)
        problem = posed(ArithmeticForward, self, x.shape, y.shape)
        return registry.run_one(problem, x, y, out=out, backend=backend)

    def gradient(self, g: Any, x: Any, y: Any, *, out: Any = None, backend: Any = None) -> tuple[Array, Array]:
        """Return (dx, dy), the gradients for x and y from ``g`` = dL/dr, in the shapes of x and y, the dtype of g.

        Sums and differences without a clamp read only the shapes of x and y, which may be given instead. Raises
        ``NoGradientError`` for a division, ``ValueError`` or ``TypeError`` for what does not fit.
        """
        g = as_image("g", g)
        (x_shape, x), (y_shape, y) = operand_of("x", x), operand_of("y", y)
        problem = posed(ArithmeticGradient, self, x_shape, y_shape)
        if g.shape != problem.shape:
            raise ShapeError(f"g has shape {g.shape}; the result of x {x_shape} and y {y_shape} has {problem.shape}")
        inputs: tuple[Array, ...] = (g,)
        for k in problem.reads:
            image = (x, y)[k]
            if image is None:
                reason = "a clamp" if self.clamps else "a product"
                raise TypeError(f"{'xy'[k]} is a shape; the gradient of {reason} needs the image itself")
            inputs = (*inputs, image)
        dx, dy = registry.run(problem, *inputs, out=out, backend=backend)
        return dx, dy


OPERATIONS: dict[Name, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
}


def before_clamp(problem: BroadcastProblem, x: Array, y: Array) -> Array:
    """r' = (p x) op (q y) + bias."""
    spec = problem.spec
    assert isinstance(spec, Arithmetic)
    x, y = problem.spread(x, y)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return OPERATIONS[spec.operation](spec.primary_scale * x, spec.secondary_scale * y) + spec.bias


def forward(problem: ArithmeticForward, x: Array, y: Array) -> Array:
    """r = clamp(r'); a NaN stays one."""
    return np.clip(before_clamp(problem, x, y), problem.spec.minimum_value, problem.spec.maximum_value)


def gradient(problem: ArithmeticGradient, g: Array, *operands: Array) -> tuple[Array, ...]:
    """dx = R(terms of x), dy = R(terms of y)."""
    spread = terms(problem, g, *operands)
    return tuple(
        fold(problem.spec.operands[k], shape, spread[k])
        for k, shape in zip(problem.of, problem.result_shapes, strict=True)
    )


def terms(problem: ArithmeticGradient, g: Array, *operands: Array) -> dict[int, Array]:
    """dr/dx g and dr/dy g, in the shape of g, before they are summed."""
    spec = problem.spec
    scales = spec.primary_scale, -spec.secondary_scale if spec.operation == "subtract" else spec.secondary_scale
    sources = dict(zip(problem.reads, operands, strict=True))
    if spec.clamps:
        r = before_clamp(problem, sources[0], sources[1])
        g = np.where((spec.minimum_value < r) & (r < spec.maximum_value), g, 0)
    if spec.operation == "multiply":
        return {k: scales[k] * g * (scales[1 - k] * problem.spread_one(1 - k, sources[1 - k])) for k in problem.of}
    return {k: scales[k] * g for k in problem.of}


def fold(operand: Operand, shape: Shape, terms: Array) -> Array:
    """R: sum over the axes where the operand repeats one element, and put the sum where that element is."""
    result = np.zeros(shape, terms.dtype)
    repeated = tuple(axis for axis, t in enumerate(operand.strides, start=1) if t == 0)
    operand.part(result)[...] = terms.sum(axis=repeated, keepdims=True)
    return result


def forward_terms(problem: ArithmeticForward, x: Array, y: Array) -> ErrorBound:
    """Sum of |terms| of r', and m: the scales and the bias as float32, products, the additions; a division of 3 ulp."""
    spec = problem.spec
    magnitudes = [
        abs(scale) * np.abs(image)
        for scale, image in zip((spec.primary_scale, spec.secondary_scale), problem.spread(x, y), strict=True)
    ]
    with np.errstate(divide="ignore", invalid="ignore"):
        combine = np.add if spec.operation == "subtract" else OPERATIONS[spec.operation]
        magnitude = combine(*magnitudes) + abs(spec.bias)
    m = 12 if spec.operation == "divide" else 7
    few_digits = spec.operation != "divide" and _few_digits(spec)
    return ErrorBound(magnitude, np.float64(m), few_digits & (magnitude <= 2.0**18))


def gradient_terms(problem: ArithmeticGradient, g: Array, *operands: Array) -> tuple[ErrorBound, ...]:
    """Sum of |terms| of each element, and m = number of terms + 6: the additions, two scales, their products."""
    found = []
    spread = terms(problem, g, *operands)
    for k, shape in zip(problem.of, problem.result_shapes, strict=True):
        magnitude = fold(problem.spec.operands[k], shape, np.abs(spread[k]))
        exact = _few_digits(problem.spec) & (magnitude <= 2.0**18)
        found.append(ErrorBound(magnitude, np.float64(problem.terms_of(k) + 6), exact))
    return tuple(found)


def _few_digits(spec: Arithmetic) -> bool:
    """Whether all numbers are multiples of 1/8: results of integers are exact up to 2**18."""
    known = (spec.primary_scale, spec.secondary_scale, spec.bias, spec.minimum_value, spec.maximum_value)
    return all(math.isinf(value) or (8 * value).is_integer() for value in known)


SPECS = (Arithmetic,)
REFERENCE: dict[OperationKey, Formula] = {(Arithmetic, "forward"): forward, (Arithmetic, "gradient"): gradient}
TERMS: dict[OperationKey, Formula] = {(Arithmetic, "forward"): forward_terms, (Arithmetic, "gradient"): gradient_terms}

for _spec_type, _method in REFERENCE:
    _spec_type.declared[_method] = Declaration(REFERENCE[_spec_type, _method], TERMS[_spec_type, _method])
