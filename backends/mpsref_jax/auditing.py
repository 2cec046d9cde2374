"""Audit a function of JAX: what each equation of its jaxpr and of its gradient returned, against the reference.

Each equation is run by its primitive, compiled alone, so that its operands are known exactly.
:mod:`mpsref_jax.equations` has the equations that mpsref can compute; others are counted.
"""

from __future__ import annotations

import itertools
import math
import sysconfig
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from mpsref.arguments.arrays import Array
from mpsref.conformance.audit import Audit, Check, Compared, Row, Step, filled, smallest, without_zeros
from mpsref.conformance.case import Case
from mpsref.conformance.checker import isolated_runner
from mpsref.conformance.isolation import IsolatedRunner, Limits, borrowed, kept
from mpsref.errors import UnsupportedError
from mpsref.frameworks.adapter import Tensor
from mpsref.kernels.reference import UNIT_ROUNDOFF
from mpsref.operations import Problem
from mpsref_jax import RULES, backend, moves
from mpsref_jax.custom import Recorder, argument_name, calling
from mpsref_jax.equations import EQUATIONS, SUMS, Equation, integers, terms
from mpsref_jax.isolated import EndedError, bind, running

UNITS = {"float32": UNIT_ROUNDOFF, "bfloat16": 2.0**-8, "float16": 2.0**-11}
"""Unit roundoff of the types that are compared."""

STORED: dict[str, float | None] = dict.fromkeys(
    ("exp2", "integer_pow", "logistic", "reduce_sum", "reduce_window_sum", "select_and_scatter_add")
)
"""How many partial results of an element are stored in a type that is less precise than float32; ``None``: all."""

OVERFLOW = -np.log(65504.0, dtype=np.float32)
"""The exponential of smaller numbers with the other sign is beyond the largest number of float16."""

CASES_OF = frozenset({"conv_general_dilated", "reduce_window_max", "select_and_scatter_add", "tanh", "logistic", "exp"})
"""Primitives whose problems the backend ``jax`` computes by the same primitive."""

AUDIT_RULES = (*RULES, "flushes subnormals")
"""Equations get all numbers that occur, not only those of cases."""

LIBRARIES = str(Path(jax.__file__).parent), str(Path(np.__file__).parent), str(Path(__file__).parent), "<"
STANDARD = sysconfig.get_path("stdlib")


class _Auditor:
    """Evaluate a jaxpr, one equation after the other, and compare the results of those that are known."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.steps: dict[Any, Step] = {}
        self.others: Counter[tuple[str, str]] = Counter()
        self.silent = 0
        """Equations without a row: they move elements, and are right."""
        self._rng = rng
        self._repeated: set[object] = set()
        """The equations that were run again on small integers, by their parameters, shapes and dtypes."""

    def evaluate(self, closed: ClosedJaxpr, arguments: Sequence[Tensor], caller: str = "-") -> list[Tensor]:
        """Return the results of a jaxpr, which ``caller`` calls."""
        jaxpr = closed.jaxpr
        known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*closed.consts, *arguments), strict=True))

        def read(one: Any) -> Tensor:
            return one.val if isinstance(one, Literal) else known[one]

        unread = _unread(jaxpr)
        for k, equation in enumerate(jaxpr.eqns):
            operands = [read(one) for one in equation.invars]
            inner, place = _inlined(equation), _place(equation) or caller
            if inner is not None:
                results = self.evaluate(inner, operands[len(operands) - len(inner.jaxpr.invars) :], place)
            else:
                try:
                    results = _listed(bind(equation, operands))
                except EndedError as error:
                    results = self._random(equation)
                    self._ended(equation, place, operands, str(error))
                else:
                    self._compare(equation, place, operands, results)
            known.update(zip(equation.outvars, results, strict=True))
            for one in unread[k]:
                known.pop(one, None)
        return [read(one) for one in jaxpr.outvars]

    def _random(self, equation: Any) -> list[Tensor]:
        """Return random numbers, or zeros, in place of the results of an equation that has none."""
        kinds = [one.aval for one in equation.outvars]
        return [
            jnp.asarray(self._rng.standard_normal(one.shape), one.dtype)
            if jnp.issubdtype(one.dtype, jnp.inexact)
            else jnp.zeros(one.shape, one.dtype)
            for one in kinds
        ]

    def _ended(self, equation: Any, place: str, operands: list[Tensor], how: str) -> None:
        """Record an equation that ended the process which ran it."""
        (what, function), shapes = _what(equation), tuple(map(np.shape, operands))
        step = self.steps.setdefault((place, function, shapes), Step(place, function, (*shapes, ())[0]))
        step.compared.append(Compared(what, math.inf, f"{how}; what follows it was computed from random numbers"))

    def _compare(self, equation: Any, place: str, operands: list[Tensor], results: list[Tensor]) -> None:
        name = equation.primitive.name
        dtypes = [jnp.result_type(one) for one in (*operands, *results)]
        numbers = sorted({str(dtype) for dtype in dtypes if jnp.issubdtype(dtype, jnp.inexact)})
        if not numbers or not results or 0 in itertools.chain(*map(np.shape, (*operands, *results))):
            return
        if moves.is_known(name):
            self._compare_moved(equation, place, operands, results, numbers)
            return
        if name not in EQUATIONS or not {*numbers} <= UNITS.keys():
            self.others[place, f"{name} of {', '.join(numbers)}"] += 1
            return
        what, function = _what(equation)
        shapes = tuple(map(np.shape, (*operands, *results)))
        new = Step(place, function, shapes[0] or shapes[-1], AUDIT_RULES, number=0)
        step = self.steps.setdefault((place, function, *shapes, *numbers), new)
        unit = UNITS.get(str(jnp.result_type(results[0])), UNIT_ROUNDOFF)
        coarsest = max(UNITS[number] for number in numbers)
        before, stored = len(step.compared), STORED.get(name, 0.0)
        count = terms(name, equation.params, operands, results[0]) if name in SUMS else 0
        if stored is None and count * unit >= 1:
            step.reasons.append(
                f"{what}: sums of {count} terms in {numbers[0]} have no bound if each addition is rounded"
            )
        else:
            step.judge(self._checks(equation, operands, results[0], what), unit, lambda _: stored)
        step.number += len(step.compared) - before
        form = name, str(equation.params), *zip(shapes, dtypes, strict=True)
        if form not in self._repeated and _is_exact(name, count, coarsest):
            self._repeated.add(form)
            operands = [jnp.asarray(one) for one in integers(name, operands, coarsest, self._rng)]
            (result,) = _listed(bind(equation, operands))
            step.judge(self._checks(equation, operands, result, what), again=True, roundings=0)

    def _compare_moved(
        self, equation: Any, place: str, operands: list[Tensor], results: list[Tensor], numbers: list[str]
    ) -> None:
        """Compare an equation that has a row only if it is wrong."""
        given, found = ([np.asarray(one, jnp.result_type(one)) for one in each] for each in (operands, results))
        try:
            wanted = moves.expected(equation.primitive.name, equation.params, given, found)
        except (UnsupportedError, LookupError, TypeError, ValueError) as error:
            self.others[place, f"{equation.primitive.name} of {', '.join(numbers)}: {error}"] += 1
            return
        messages = [message for pair in zip(wanted, found, strict=True) if (message := moves.difference(*pair))]
        if not messages:
            self.silent += 1
            return
        (what, function), shapes = _what(equation), tuple(map(np.shape, (*operands, *results)))
        step = self.steps.setdefault((place, function, *shapes, *numbers), Step(place, function, shapes[0], number=0))
        step.number += 1
        step.compared.append(Compared(what, math.inf, messages[0]))

    def _checks(self, equation: Any, operands: list[Tensor], result: Tensor, what: str) -> Callable[[], list[Check]]:
        """Return what makes the check of an equation."""
        arrays, y = [_array(one) for one in operands], _array(result)
        if equation.primitive.name == "logistic" and jnp.result_type(result) == jnp.float16:
            arrays = [np.where(one > OVERFLOW, one, np.nan) for one in arrays]  # these are not compared

        def checks() -> list[Check]:
            check = EQUATIONS[equation.primitive.name](Equation(equation.params, arrays, y, self._rng))
            return [replace(check, actual={what: actual}) for actual in check.actual.values()]

        return checks


def _is_exact(name: str, count: int, unit: float) -> bool:
    """Return whether a type of this unit roundoff computes an equation of small integers without a rounding.

    Sums of random 1 and -1 in any order are below eight times the root of their number.
    """
    if name not in SUMS or (name == "conv_general_dilated" and jax.default_backend() != "cpu"):  # it may be transformed
        return False
    return unit == UNIT_ROUNDOFF or (name != "select_and_scatter_add" and 64 * count * unit**2 <= 1)


def _array(one: Tensor) -> Array:
    """Return an array; numbers of types that are less precise than float32 in float32."""
    found = np.asarray(one)
    return found.astype(np.float32) if str(found.dtype) in UNITS else found


def _listed(found: Any) -> list[Tensor]:
    return list(found) if isinstance(found, (tuple, list)) else [found]


def _what(equation: Any) -> tuple[str, str]:
    """Return whether an equation is of a result or of a gradient, and the name of its row."""
    name = equation.primitive.name
    is_gradient = "transpose" in str(equation.source_info.name_stack)
    return ("gradient", f"{name} (gradient)") if is_gradient else ("result", name)


def _row(step: Step) -> Row:
    """Return the row of equations; those of some primitives are searched for a small case."""
    return step.row(_small_case if step.function.partition(" ")[0] in CASES_OF else None)


def _small_case(problem: Problem) -> tuple[str, str]:
    with borrowed("small cases of an audit", _runner) as runner:
        case = smallest(problem, backend, "float32", run=lambda case, _: runner(case, True))
    return ("", "") if case is None else (str(case), f"mpsref replay {str(case)!r} -b jax")


def _runner() -> IsolatedRunner:
    """Return what runs cases in an interpreter that has imported JAX, which would count as time of the first search."""
    runner = isolated_runner(backend, Limits())
    runner(Case.parse("Neuron.forward:n1h1w1c1,relu"), True)
    return runner


def _unread(jaxpr: Any) -> list[list[Any]]:
    """Return for each equation the variables that no later one reads."""
    read = {one for one in jaxpr.outvars if not isinstance(one, Literal)}
    found: list[list[Any]] = []
    for equation in reversed(jaxpr.eqns):
        own = {one for one in (*equation.invars, *equation.outvars) if not isinstance(one, Literal)}
        found.append(list(own - read))
        read |= own
    return found[::-1]


def _inlined(equation: Any) -> ClosedJaxpr | None:
    """Return the jaxpr of a call, such as that of a function under ``jit``; ``None`` for loops and branches."""
    if equation.primitive.name in ("scan", "while", "cond"):
        return None
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        found = equation.params.get(name)
        if isinstance(found, ClosedJaxpr):
            return found
        if hasattr(found, "eqns"):
            return ClosedJaxpr(found, ())
    return None


def _place(equation: Any) -> str:
    """Return the line of the user's code that an equation comes from."""
    traceback = equation.source_info.traceback
    for frame in traceback.frames if traceback is not None else ():
        name = frame.file_name
        is_standard = name.startswith(STANDARD) and "-packages" not in name  # installed packages may lie below it
        if not (name.startswith(LIBRARIES) or is_standard):
            return f"{Path(name).name}:{frame.line_num}"
    return ""


def audit(
    function: Callable[..., Any], *arguments: Any, gradient: bool = True, seed: int = 0, as_is: bool = False
) -> Audit:
    """Compare what the equations of a function and of its gradient return with the reference in float64.

    Parameters
    ----------
    function : callable
        A function of arrays, or of trees of arrays: a model, a loss, or a step of training.
    *arguments
        Its arguments, on which it is computed.
    gradient : bool, optional
        Whether the gradient for all arguments of a float dtype is computed, too: of a scalar result, or of the sum of
        the results times random numbers.
    seed : int, optional
        Of these numbers, and of the parts of large equations that are compared.
    as_is : bool, optional
        Whether arrays that are 0 stay so: behind a gain of 0 all gradients are 0, and cannot be compared. By default
        they are small random numbers in the audit.

    Returns
    -------
    Audit
        A row for each equation of a place in the source, and for each ``jax.custom_vjp`` and ``jax.custom_jvp`` of your
        own; ``ok`` if nothing is wrong and the gradients of all of these were compared. ``print(audit)`` shows the
        table. What mpsref cannot compute is listed with its count.

    Notes
    -----
    Each equation is compiled and run alone, as JAX does outside of ``jit``; what the compiler changes where it fuses
    equations of a whole program is not seen. Numbers in float32, bfloat16 and float16 are compared. The bodies of
    functions under ``jit`` and ``checkpoint``, and of those with rules of differentiation, are compared; loops and
    branches are counted. A function with a rule of its own is compared also in a loop: its gradient, from a random
    gradient of its results, with the derivative of its own forward pass in float64.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from mpsref_jax import audit
    >>> def loss(weights, x):
    ...     return jnp.sum(jax.nn.sigmoid(x @ weights))
    >>> found = audit(loss, jnp.ones((3, 2)), jnp.arange(12.0).reshape(4, 3))
    >>> found.ok, sorted({row.function for row in found.rows})[:3]
    (True, ['dot_general', 'dot_general (gradient)', 'logistic'])
    """
    start = time.perf_counter()
    rng = np.random.default_rng(seed)
    arguments, zeros = (arguments, []) if as_is else _without_zeros(arguments, rng)
    whole = _with_gradient(function, rng) if gradient else function
    recorder = Recorder()
    with calling(recorder):
        closed = jax.make_jaxpr(whole)(*arguments)
    with running() as equations:
        auditor = _Auditor(rng)
        auditor.evaluate(closed, jax.tree.leaves(arguments))
    with kept():
        rows = tuple(map(_row, (*auditor.steps.values(), *recorder.steps(rng, equations.ended))))
    others = tuple((place, name, count) for (place, name), count in auditor.others.items())
    remarks = (filled(zeros),) if zeros else ()
    return Audit(
        rows, others, backend.device(), seed, AUDIT_RULES, time.perf_counter() - start, remarks, auditor.silent
    )


def _without_zeros(arguments: Any, rng: np.random.Generator) -> tuple[Any, list[str]]:
    """Return the arguments without arrays that are 0, and the names of these."""
    pairs, tree = jax.tree_util.tree_flatten_with_path(arguments)
    leaves, names = [], []
    for path, one in pairs:
        is_number = isinstance(one, (jax.Array, np.ndarray)) and jnp.issubdtype(one.dtype, jnp.floating)
        values = without_zeros(np.asarray(one), rng) if is_number and one.size else None
        leaves.append(one if values is None else jnp.asarray(values))
        if values is not None:
            names.append(argument_name(path))
    return jax.tree.unflatten(tree, leaves), names


def _with_gradient(function: Callable[..., Any], rng: np.random.Generator) -> Callable[..., Any]:
    """Return the function and its gradient for all arguments of a float dtype."""

    def whole(*arguments: Any) -> Any:
        leaves, tree = jax.tree.flatten(arguments)
        numbers = [k for k, one in enumerate(leaves) if jnp.issubdtype(jnp.result_type(one), jnp.inexact)]

        def of_numbers(*given: Tensor) -> list[Tensor]:
            changed = dict(zip(numbers, given, strict=True))
            results = function(*jax.tree.unflatten(tree, [changed.get(k, one) for k, one in enumerate(leaves)]))
            return [one for one in jax.tree.leaves(results) if jnp.issubdtype(jnp.result_type(one), jnp.inexact)]

        results, pullback = jax.vjp(of_numbers, *(leaves[k] for k in numbers))
        upstream = [
            np.ones((), y.dtype) if y.ndim == 0 else rng.standard_normal(y.shape).astype(y.dtype) for y in results
        ]
        with jax.named_scope("transpose"):  # JAX 0.6 names transposed equations only within a scope
            return results, pullback([jnp.asarray(g) for g in upstream])

    return whole
