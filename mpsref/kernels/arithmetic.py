"""Arithmetic of two images: sum, difference, product, quotient, with scales, a bias and a clamp; and its gradients.

Forward   ``r = clamp(r', minimum_value, maximum_value)`` with ``r'`` = ``(p x + q y) + bias``, ``(p x - q y) + bias``,
          ``(p x) (q y) + bias`` or ``(p x) / (q y) + bias``, in this bracketing; p and q are the scales
Gradient  add ``dx = R(p g m)``, ``dy = R(q g m)``; subtract the same with ``dy = R(-q g m)``;
          multiply ``dx = R(p g m q y)``, ``dy = R(p g m q x)``

``m`` is 1 where ``minimum_value < r' < maximum_value`` (both strict), else 0. Where it is 0 the term is 0, also if g
is NaN [choice arithmetic-mask-nan]. ``R`` sums over the axes on which the operand has stride 0 and puts the sum at the
operand's offset, zeros elsewhere, so that dx has the shape of x. A division has no gradient kernel.

Source: MPSCNNAdd, MPSCNNSubtract, MPSCNNMultiply, MPSCNNDivide and their gradients in ``MPSCNNMath.h``; forward, mask
and R [doc]; the default bounds, which are infinite [obs arithmetic-bounds]; where R puts its sum [math].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike

from mpsref import codecs
from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import Triple
from mpsref.backend import BackendLike
from mpsref.codecs import parameter
from mpsref.errors import NoGradientError
from mpsref.kernels.broadcasting import Broadcasting, BroadcastProblem, Operand
from mpsref.kernels.reference import ErrorBound
from mpsref.operations import Argument, operation
from mpsref.registry import call

Name: TypeAlias = Literal["add", "subtract", "multiply", "divide"]

NAMES: tuple[Name, ...] = get_args(Name)

Wanted: TypeAlias = Literal["both", "primary", "secondary"]
"""Which gradients are computed: an MPS kernel computes that of one operand."""

WANTED: tuple[Wanted, ...] = get_args(Wanted)


class Arithmetic(Broadcasting):
    """Sum, difference, product or quotient of two images, with scales, bias and clamp.

    Parameters
    ----------
    operation : {"add", "subtract", "multiply", "divide"}
        The operation.
    primary_scale, secondary_scale, bias : float
        The scales of the operands, and what is added to the result.
    primary_strides, secondary_strides : tuple of int
        Strides (y, x, channel) of the operands: 1, or 0 to repeat one element.
    primary_offset, secondary_offset : tuple of int
        First element (y, x, channel) of the operands, >= 0.
    minimum_value, maximum_value : float
        Bounds of the result; may be infinite.

    Examples
    --------
    >>> import numpy as np
    >>> add = Arithmetic("add", secondary_scale=0.5, secondary_strides=(0, 0, 1))   # a row of per-channel numbers
    >>> x, y = np.zeros((1, 1, 2, 2), np.float32), np.array([4, 6], np.float32).reshape(1, 1, 1, 2)
    >>> add.forward(x, y).tolist()
    [[[[2.0, 3.0], [2.0, 3.0]]]]
    >>> dx, dy = add.gradient(np.ones_like(x), x.shape, y.shape)
    >>> dx.shape, dy.tolist()
    ((1, 1, 2, 2), [[[[1.0, 1.0]]]])
    """

    operation: Name = parameter(codecs.word(*NAMES))
    primary_scale: float = parameter(codecs.number("p"), default=1.0)
    secondary_scale: float = parameter(codecs.number("q"), default=1.0)
    bias: float = parameter(codecs.number("b"), default=0.0)
    primary_strides: Triple = parameter(codecs.triple("ps", 0, 1), default=(1, 1, 1))
    secondary_strides: Triple = parameter(codecs.triple("ss", 0, 1), default=(1, 1, 1))
    primary_offset: Triple = parameter(codecs.triple("po", 0), default=(0, 0, 0))
    secondary_offset: Triple = parameter(codecs.triple("so", 0), default=(0, 0, 0))
    minimum_value: float = parameter(codecs.real("min"), default=-math.inf)
    maximum_value: float = parameter(codecs.real("max"), default=math.inf)

    def _check(self) -> None:
        if self.minimum_value > self.maximum_value:
            raise ValueError(
                f"minimum_value is {self.minimum_value} and maximum_value {self.maximum_value}; "
                "minimum_value must be <= maximum_value"
            )

    @property
    def clamps(self) -> bool:
        """Whether a bound is finite."""
        return (self.minimum_value, self.maximum_value) != (-math.inf, math.inf)

    def gradient(
        self,
        g: ArrayLike,
        x: ArrayLike | Shape,
        y: ArrayLike | Shape,
        *,
        out: tuple[Array, Array] | None = None,
        backend: BackendLike = None,
    ) -> tuple[Array, Array]:
        """Compute the gradients for both operands from the source gradient dL/dr.

        Parameters
        ----------
        g : array_like
            Source gradient, in the shape of the result.
        x, y : array_like, shape (N, H, W, C), or their shapes
            The operands; the shapes suffice for sums and differences without a clamp.

        Returns
        -------
        dx, dy : ndarray
            In the shapes of ``x`` and ``y`` and the dtype of ``g``.

        Raises
        ------
        NoGradientError
            For a division.
        """
        dx, dy = call(self, "gradient", (g, x, y), out=out, backend=backend)
        return dx, dy


class ArithmeticForward(
    BroadcastProblem, method="forward", inputs={"x": "n h w c", "y": "secondary_shape"}, results={"r": "shape"}
):
    """``forward`` of arithmetic: r from x and y."""

    spec: Arithmetic

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Keep products inside the range of float16, and divisors away from 0."""
        if self.spec.operation in ("multiply", "divide"):
            drawn = {name: np.clip(array, -32, 32) for name, array in drawn.items()}
        if self.spec.operation == "divide":
            drawn["y"] = np.copysign(np.maximum(np.abs(drawn["y"]), 0.5), drawn["y"])
        return drawn


class ArithmeticGradient(
    BroadcastProblem,
    method="gradient",
    inputs={
        "g": "shape",
        "x": Argument("n h w c", when="reads_x"),
        "y": Argument("secondary_shape", when="reads_y"),
    },
    results={"dx": Argument("n h w c", when="gives_dx"), "dy": Argument("secondary_shape", when="gives_dy")},
):
    """``gradient`` of arithmetic: dx and dy, or one of them, from g and the operands that it reads."""

    spec: Arithmetic
    wanted: Wanted = parameter(codecs.word(*WANTED), default="both")

    def _check(self) -> None:
        if self.spec.operation == "divide":
            raise NoGradientError(
                "operation is 'divide', which has no gradient kernel in MPS; multiply by the reciprocal instead, or "
                "write the gradient with forward calls: dx = g / y, dy = -g x / y^2"
            )
        super()._check()

    @property
    def gives_dx(self) -> bool:
        """Whether the gradient for x is computed."""
        return self.wanted != "secondary"

    @property
    def gives_dy(self) -> bool:
        """Whether the gradient for y is computed."""
        return self.wanted != "primary"

    @property
    def reads_x(self) -> bool:
        """Whether x is read: for a mask, or for the gradient of a product for y."""
        return self.spec.clamps or (self.spec.operation == "multiply" and self.gives_dy)

    @property
    def reads_y(self) -> bool:
        """Whether y is read: for a mask, or for the gradient of a product for x."""
        return self.spec.clamps or (self.spec.operation == "multiply" and self.gives_dx)

    @property
    def of(self) -> tuple[int, ...]:
        """The operands whose gradients are computed: 0 for x, 1 for y."""
        return tuple(k for k, wanted in enumerate((self.gives_dx, self.gives_dy)) if wanted)

    @property
    def reads(self) -> tuple[int, ...]:
        """The operands that are read: 0 for x, 1 for y."""
        return tuple(k for k, read in enumerate((self.reads_x, self.reads_y)) if read)

    def sources(self, operands: Sequence[Array], otherwise: Array) -> tuple[Array, Array]:
        """Return x and y from the operands that are read, and for one that is not, ``otherwise``."""
        known = dict(zip(self.reads, operands, strict=True))
        return known.get(0, otherwise), known.get(1, otherwise)

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Round x and y to so many digits that rounding errors do not move r' across a bound."""
        operands = {name: np.round(np.clip(drawn[name], -32, 32) * 8) / 8 for name in drawn if name != "g"}
        return drawn | operands

    def terms_of(self, k: int) -> int:
        """Return how many elements of g each element of the gradient for operand k sums over."""
        strides = self.spec.operands[k].strides
        return math.prod(length for length, t in zip(self.shape[1:], strides, strict=True) if t == 0)


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


def terms(problem: ArithmeticGradient, g: Array, *operands: Array) -> dict[int, Array]:
    """dr/dx g and dr/dy g, in the shape of g, before they are summed."""
    spec = problem.spec
    scales = spec.primary_scale, -spec.secondary_scale if spec.operation == "subtract" else spec.secondary_scale
    sources = dict(zip(problem.reads, operands, strict=True))
    if spec.operation == "multiply":
        each = {k: scales[k] * g * (scales[1 - k] * problem.spread_one(1 - k, sources[1 - k])) for k in problem.of}
    else:
        each = {k: scales[k] * g for k in problem.of}
    if not spec.clamps:
        return each
    r = before_clamp(problem, sources[0], sources[1])
    counts = (spec.minimum_value < r) & (r < spec.maximum_value)
    return {k: np.where(counts, term, 0) for k, term in each.items()}


def fold(operand: Operand, shape: Shape, terms: Array) -> Array:
    """R: sum over the axes where the operand repeats one element, and put the sum where that element is."""
    result = np.zeros(shape, terms.dtype)
    repeated = tuple(axis for axis, t in enumerate(operand.strides, start=1) if t == 0)
    operand.part(result)[...] = terms.sum(axis=repeated, keepdims=True)
    return result


def _few_digits(spec: Arithmetic) -> bool:
    """Whether all numbers are multiples of 1/8: results of integers are exact up to 2**18."""
    known = (spec.primary_scale, spec.secondary_scale, spec.bias, spec.minimum_value, spec.maximum_value)
    return all(math.isinf(value) or (8 * value).is_integer() for value in known)


def forward_bound(problem: ArithmeticForward, x: Array, y: Array) -> ErrorBound:
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
    return ErrorBound.of_terms(magnitude, np.float64(m), few_digits & (magnitude <= 2.0**18))


@operation(Arithmetic, problem=ArithmeticForward, bound=forward_bound)
def forward(problem: ArithmeticForward, x: Array, y: Array) -> Array:
    """r = clamp(r'); a NaN stays one."""
    return np.clip(before_clamp(problem, x, y), problem.spec.minimum_value, problem.spec.maximum_value)


def gradient_bound(problem: ArithmeticGradient, g: Array, *operands: Array) -> tuple[ErrorBound, ...]:
    """Sum of |terms| of each element, and m = number of terms + 6: the additions, two scales, their products."""
    found = []
    spread = terms(problem, g, *operands)
    for k, shape in zip(problem.of, problem.result_shapes, strict=True):
        magnitude = fold(problem.spec.operands[k], shape, np.abs(spread[k]))
        exact = _few_digits(problem.spec) & (magnitude <= 2.0**18)
        found.append(ErrorBound.of_terms(magnitude, np.float64(problem.terms_of(k) + 6), exact))
    return tuple(found)


@operation(Arithmetic, problem=ArithmeticGradient, bound=gradient_bound)
def gradient(problem: ArithmeticGradient, g: Array, *operands: Array) -> tuple[Array, ...]:
    """dx = R(terms of x), dy = R(terms of y)."""
    spread = terms(problem, g, *operands)
    return tuple(
        fold(problem.spec.operands[k], shape, spread[k])
        for k, shape in zip(problem.of, problem.result_shapes, strict=True)
    )
