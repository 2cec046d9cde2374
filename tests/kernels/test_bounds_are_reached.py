"""Each error bound is reached: arithmetic that is as inexact as it may be uses a tenth of it at least, and no more.

The formulas of the reference are evaluated on numbers whose every operation is off by all that IEEE 754, or for
functions, quotients and roots the table of Metal, allows; sums are from left to right.
``python -m tests.kernels.test_bounds_are_reached 60`` prints the part that 60 cases of each operation reach, with the
functions of Metal and with those within 2 units.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pytest

from mpsref import Dropout
from mpsref.arguments.arrays import Array
from mpsref.conformance import checker, comparator, rules
from mpsref.conformance.case import Case, operation_named, operations
from mpsref.conformance.runner import references, terms
from mpsref.kernels import neuron
from mpsref.operations import Operation

FLOOR = 0.1
"""The part of a bound that some case must reach."""

ULPS: Mapping[str, float] = {
    "sum": 0.5,
    "product": 0.5,
    "quotient": 2.5,
    "sqrt": 3,
    "exp": 4,
    "log": 4,
    "tanh": 5,
    "power": 16,
}
"""The largest error of each operation, in units of the last place of its result."""

STATED: Mapping[str, Mapping[str, float]] = {
    "Metal": ULPS,
    rules.ACCURATE: {**ULPS, **dict.fromkeys(("exp", "log", "tanh", "power"), 2)},
}
"""The same, and those of backends that state more accurate functions."""


class Inexact(float):
    """A number whose operations have all the error that they may have, up or down by the kind of operation."""

    __slots__ = ()
    errors: Mapping[str, float] = ULPS
    used: ClassVar[set[str]] = set()

    @classmethod
    def of(cls, kind: str, value: float) -> Inexact:
        """Return a result of an operation; a sum or product that float32 can hold is exact."""
        rounded = ctypes.c_float(value).value  # faster than by NumPy
        if (kind in ("sum", "product") and rounded == value) or not math.isfinite(rounded):
            return cls(value)
        cls.used.add(kind)
        last = max(math.frexp(rounded)[1] - 24, -149) if rounded else -149
        error = math.ldexp(cls.errors[kind], last)
        return cls(value + error if value >= 0 else value - error)

    @classmethod
    def stored(cls, value: float) -> float:
        """Return a parameter as float32 holds it."""
        return float(value) if isinstance(value, Inexact) else ctypes.c_float(value).value

    def __add__(self, other: float) -> Inexact:
        value = float(self) + Inexact.stored(other)
        return Inexact.of("sum", value) if self and other else Inexact(value)

    def __sub__(self, other: float) -> Inexact:
        return self + (-other)

    def __rsub__(self, other: float) -> Inexact:
        return -self + other

    def __mul__(self, other: float) -> Inexact:
        value = float(self) * Inexact.stored(other)
        return Inexact(value) if _is_power_of_2(self) or _is_power_of_2(other) else Inexact.of("product", value)

    def __truediv__(self, other: float) -> Inexact:
        value = float(np.float64(self) / np.float64(Inexact.stored(other)))
        return Inexact(value) if _is_power_of_2(other) else Inexact.of("quotient", value)

    def __rtruediv__(self, other: float) -> Inexact:
        return Inexact(other) / self

    def __pow__(self, other: float) -> Inexact:  # type: ignore[override]
        if other == 2:
            return self * self
        return Inexact.of("sqrt" if other == 0.5 else "power", float(np.float_power(self, other)))

    def __neg__(self) -> Inexact:
        return Inexact(-float(self))

    def __abs__(self) -> Inexact:
        return Inexact(abs(float(self)))

    __radd__, __rmul__ = __add__, __mul__


def _is_power_of_2(value: float) -> bool:
    return math.frexp(value)[0] in (0, 0.5, -0.5)


def _is_inexact(x: object) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.hasobject


KINDS = {"expm1": "exp", "log1p": "log"}
"""Of functions whose name is not that of their kind; others have the error of the exponential."""

BY_OPERATORS = frozenset(
    """add subtract multiply divide floor_divide remainder power square reciprocal negative positive absolute maximum
    minimum fmax fmin less less_equal greater greater_equal equal not_equal logical_and logical_or logical_not
    logical_xor bitwise_and bitwise_or""".split()  # noqa: SIM905
)
"""The functions of NumPy that compute with the operators of inexact numbers."""


class Numpy:
    """NumPy for the formulas: functions of inexact numbers are inexact, too."""

    def __getattr__(self, name: str) -> Any:
        function = getattr(np, name)
        if not isinstance(function, np.ufunc) or function.__name__ in BY_OPERATORS:
            return function
        kind = KINDS.get(name, name if name in ULPS else "exp")

        def run(*args: Any, **options: Any) -> Any:
            if not any(map(_is_inexact, args)):
                return function(*args, **options)
            if name in ("isnan", "isfinite", "frexp", "sign"):
                return function(args[0].astype(float), **options)
            with np.errstate(all="ignore"):
                each = np.frompyfunc(
                    lambda *values: Inexact.of(kind, float(function(*map(float, values)))), function.nin, 1
                )
                return np.asarray(each(*args), object)

        return run

    def float_power(self, x: Any, exponent: float) -> Any:
        return x**exponent if _is_inexact(x) else np.float_power(x, exponent)


def _metal_distribution(x: Array) -> Array:
    """Return the normal distribution by the polynomial of Metal's kernel, whose own error is below 1.5e-7 / 2."""
    v = abs(x) * math.sqrt(0.5)
    t, p = 1 / (1 + 0.3275911 * v), 0 * v
    for c in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        p = t * (c + p)
    tail = 0.5 * p * Numpy().exp(-v * v)
    return np.asarray(np.where(x > 0, 1 - tail, tail))


def _each(function: Callable[[float], object], x: Array) -> Array:
    return np.asarray(np.frompyfunc(function, 1, 1)(x), object)


def adversaries(ulps: Mapping[str, float]) -> Iterator[dict[str, float]]:
    """Yield an error for each kind of operation, with all combinations of signs.

    Left out are those that differ from an earlier one only in kinds of operation that the formula did not use.
    """
    tried: list[set[tuple[str, float]]] = []
    for sums, products, quotients, functions in itertools.product((1, -1), repeat=4):
        signs = {"sum": sums, "product": products, "quotient": quotients}
        errors = {kind: signs.get(kind, functions) * size for kind, size in ulps.items()}
        if not any(one <= errors.items() for one in tried):
            Inexact.used.clear()
            yield errors
            tried.append({(kind, errors[kind]) for kind in Inexact.used})


@contextlib.contextmanager
def inexact() -> Iterator[None]:
    """Let the formulas compute with inexact functions."""
    modules = [one for name, one in sys.modules.items() if name.startswith("mpsref.kernels.") and hasattr(one, "np")]
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        for module in modules:
            patch.setattr(module, "np", Numpy())
        patch.setattr(neuron, "_normal", _metal_distribution)
        patch.setattr(Inexact, "errors", ULPS)
        yield


def reached(case: Case, in_order: bool, stated: str, enough: float) -> float | None:
    """Return the largest part of the bounds that adversaries reach, up to ``enough``; ``None`` if nothing is rounded.

    The pixels of each image may be put in ascending order, so that partial sums grow.
    """
    inputs = case.inputs()
    if in_order:
        inputs = tuple(np.sort(one.reshape(-1, one.shape[-1]), axis=0).reshape(one.shape) for one in inputs)
    with np.errstate(all="ignore"), rules.applied(tuple({stated} & {*rules.RULES})):
        wanted = list(zip(references(case.problem, *inputs), terms(case.problem, *inputs), strict=True))
    if not any(np.any(bound.limit > 0) for _, bound in wanted) or isinstance(case.problem.spec, Dropout):
        return None  # the only rounding of dropout in float32 is that of storage
    worst = 0.0
    numbers = [_each(Inexact, one.astype(float)) for one in inputs]
    with inexact():
        for errors in adversaries(STATED[stated]):
            if worst >= enough:
                break
            Inexact.errors = errors
            found = case.problem.operation.formula(case.problem, *numbers)
            for one, (reference, bound) in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
                actual = one.astype(np.float64)
                half = comparator.ulp(np.maximum(abs(actual), abs(reference)), np.dtype("float32")) / 2
                limit, excess = np.broadcast_to(bound.limit, reference.shape), abs(actual - reference) - half
                judged = (limit > 0) & np.isfinite(limit) & np.isfinite(excess)
                worst = max(worst, (excess[judged] / limit[judged]).max(initial=0.0))
    return worst


@pytest.mark.parametrize("name", ["logaddexp", "hypot", "arctan", "cosh", "copysign"])
def test_any_function_of_numpy_is_one_of_inexact_numbers(name: str) -> None:
    function = getattr(np, name)
    numbers = [np.array([0.3, 0.7]), np.array([0.2, -1.1])][: function.nin]
    found = getattr(Numpy(), name)(*(_each(Inexact, one) for one in numbers))
    assert all(isinstance(one, Inexact) for one in found)
    off = abs(found.astype(float) - function(*numbers))
    assert (off > 0).all()
    np.testing.assert_allclose(found.astype(float), function(*numbers), rtol=8 * 2.0**-23)
    assert getattr(Numpy(), name)(*numbers).dtype == float


NEURONS = (
    *("relu,a0.1", "linear,a0.3,b0.7", "sigmoid", "hardsigmoid,a0.3,b0.6", "tanh,a0.3,b0.7", "softplus,a0.3,b0.7"),
    *("softsign", "elu,a0.3", "prelu,data0.1_0.2_0.3_0.4", "relun,a0.1,b0.7", "power,a0.3,b0.7,c1.3", "gelu"),
    *("exponential,a0.3,b0.7,c1.3", "logarithm,a0.3,b0.7,c1.3"),
)
LOSSES = (
    *("meanabsoluteerror,none,w0.3,weighted", "meansquarederror,none,w0.3,weighted", "hinge,none,w0.3,weighted"),
    *("softmaxcrossentropy,none,w0.3,ls0.1,classes4,weighted", "sigmoidcrossentropy,none,w0.3,ls0.1,weighted"),
    *("categoricalcrossentropy,none,w0.3,weighted", "huber,none,w0.3,delta0.3,weighted", "cosinedistance,w0.3"),
    *("log,none,w0.3,weighted", "kullbackleiblerdivergence,none,w0.3,weighted"),
)

CHOSEN = (
    *(f"Neuron.{method}:n1h3w4c4,{one},float32,seed=1" for method in ("forward", "gradient") for one in NEURONS),
    *(f"Loss.forward:n1h2w3c4,{one},float32,seed=1" for one in LOSSES),
    *(f"Loss.{of}:n1h2w3c4,{one},chained,float32,seed=1" for of in ("gradient", "gradient_labels") for one in LOSSES),
    "BatchNormalization.statistics:n2h8w8c2,float32,seed=1",
    "InstanceNormalization.forward:n1h12w12c2,float32,seed=1",
    "Reduce.forward:n1h1w5c3,mean,row,float32,seed=1",
)
"""Cases of functions of each type, with parameters that float32 does not hold, and of long sums."""


def kind(case: Case) -> str:
    """Return the operation, and the type of its function."""
    return f"{case.problem.operation} {getattr(case.problem.spec, 'type', '')}".strip()


def some_cases(operation: Operation, number: int) -> Iterator[Case]:
    """Yield the chosen cases of an operation, then random ones that are small."""
    yield from (case for case in map(Case.parse, CHOSEN) if case.problem.operation == operation)
    for case in checker.random_cases(operation, ("float32",), number, 0):
        if sum(map(math.prod, case.problem.input_shapes.values())) < 400:
            yield case


def parts(operation: Operation, number: int, enough: float, stated: str = "Metal") -> dict[str, tuple[float, str]]:
    """Return the part of the bounds that each kind of case reaches, up to ``enough``, and the case."""
    found: dict[str, tuple[float, str]] = {}
    for case, in_order in itertools.product(some_cases(operation, number), (False, True)):
        of, before = kind(case), found.get(kind(case), (0.0, ""))
        part = reached(case, in_order, stated, enough) if before[0] < enough else None
        if part is not None:
            found[of] = max(before, (part, str(case)))
    return found


OPERATIONS = [
    pytest.param(str(one), stated, id=f"{one}-{stated}")
    for stated in STATED
    for one in operations()
    if stated == "Metal" or one in rules.RULES[stated].operations
]


@pytest.mark.parametrize(("name", "stated"), OPERATIONS)
def test_a_tenth_of_each_bound_is_reached(name: str, stated: str) -> None:
    for of, (part, case) in parts(operation_named(name), 12, FLOOR, stated).items():
        assert FLOOR <= part <= 1, f"{of}: {part} of the bound, in {case}"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "stated"), OPERATIONS)
def test_no_bound_is_exceeded(name: str, stated: str) -> None:
    for of, (part, case) in parts(operation_named(name), 24, 1.0, stated).items():
        assert part <= 1, f"{of}: {part} of the bound, in {case}"


if __name__ == "__main__":
    for _one in map(operation_named, sys.argv[2:] or map(str, operations())):
        for _stated in STATED:
            for _of, (_part, _case) in parts(_one, int(sys.argv[1]), 1.0, _stated).items():
                print(f"{_of:50} {_stated:22} {_part:.3f} {_case}", flush=True)
