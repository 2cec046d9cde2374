"""The smallest relative error of each equation and rule that an audit of JAX sees, and the table of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import few

pytest.importorskip("jax", reason="JAX is not installed (the extra `jax`)")

import jax
import jax.numpy as jnp
from jax import lax

from mpsref_jax import audit, auditing

PAGE = Path(__file__).parents[2] / "docs" / "audit_sensitivity.md"


def normal(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


X = normal(4, 20, 20, 16)
POSITIVE = abs(X) + np.float32(0.5)


def conv(x: Any, w: Any, padding: Any = "SAME", **keywords: Any) -> Any:
    return lax.conv_general_dilated(x, w, (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"), **keywords)


def window(x: Any, start: float, join: Any) -> Any:
    return lax.reduce_window(x, start, join, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def rule(error: float, *, outside: bool = False) -> Any:
    """Return tanh with a rule of its own, of which the gradient has an error."""

    def function(x: Any) -> Any:
        if outside:
            return jax.pure_callback(np.tanh, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
        return jnp.tanh(x)

    own = jax.custom_vjp(function)
    own.defvjp(lambda x: (function(x), x), lambda x, g: (g * (1 - jnp.tanh(x) ** 2) * (1 + error),))
    return own


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "convolution": (conv, (X, normal(3, 3, 16, 16)), "conv_general_dilated"),
    "convolution, depthwise": (
        lambda x, w: conv(x, w, feature_group_count=16),
        (X, normal(5, 5, 1, 16)),
        "conv_general_dilated",
    ),
    "convolution, transposed": (
        lambda x, w: conv(x, w, [(2, 2)] * 2, lhs_dilation=(2, 2)),
        (X, normal(3, 3, 16, 8)),
        "conv_general_dilated",
    ),
    "product of matrices": (lambda x, w: x @ w, (X, normal(16, 12)), "dot_general"),
    "sums of windows": (lambda x: window(x, 0.0, lax.add), (X,), "reduce_window_sum"),
    "maxima of windows": (lambda x: window(x, -jnp.inf, lax.max), (X,), "reduce_window_max"),
    "maxima of windows, gradient": (
        lambda x: window(x, -jnp.inf, lax.max),
        (X,),
        "select_and_scatter_add",
    ),
    "sum": (lambda x: x.sum(axis=(1, 2)), (X,), "reduce_sum"),
    "sum, gradient of a broadcast array": (lambda b: X + jnp.tanh(b), (normal(16),), "reduce_sum"),
    "maximum": (lambda x: x.max(axis=3), (X,), "reduce_max"),
    "add": (lambda x: x + POSITIVE, (X,), "add"),
    "multiply": (lambda x: x * POSITIVE, (X,), "mul"),
    "divide": (lambda x: x / POSITIVE, (X,), "div"),
    "exp": (jnp.exp, (X,), "exp"),
    "log": (jnp.log, (POSITIVE,), "log"),
    "tanh": (jnp.tanh, (X,), "tanh"),
    "logistic": (jax.nn.sigmoid, (X,), "logistic"),
    "sqrt": (jnp.sqrt, (POSITIVE,), "sqrt"),
    "rsqrt": (lax.rsqrt, (POSITIVE,), "rsqrt"),
    "integer_pow": (lambda x: x**3, (X,), "integer_pow"),
    "pow": (lambda x: x**1.7, (POSITIVE,), "pow"),
}
"""A function, its arguments, and the primitive that gets an error."""

RULES: dict[str, Callable[[float], Any]] = {
    "rule of your own": lambda error: rule(error),
    "rule of your own, by central differences": lambda error: rule(error, outside=True),
}


def seen(name: str, error: float, *, gradient: bool) -> bool:
    """Return whether an audit names all equations of a primitive, or a rule, with a relative error."""
    if name in RULES:
        return bool(audit(RULES[name](error), X).wrong)
    function, arguments, primitive = FUNCTIONS[name]
    plain = auditing.bind

    def wrong(equation: Any, operands: Any) -> Any:
        found = plain(equation, operands)
        is_gradient = "transpose" in str(equation.source_info.name_stack)
        return found * (1 + error) if equation.primitive.name == primitive and is_gradient == gradient else found

    auditing.bind = wrong
    try:
        report = audit(function, *arguments, gradient=gradient)
    finally:
        auditing.bind = plain
    rows = [row for row in report.rows if row.function == f"{primitive}{' (gradient)' * gradient}"]
    assert rows, str(report)
    return all(row.status == "wrong" for row in rows)


def columns(name: str) -> list[bool]:
    """Return which of the result and the gradient an equation of the primitive computes."""
    if name in RULES or "gradient" in name:
        return [True]
    return [False, True] if FUNCTIONS[name][2] in ("conv_general_dilated", "dot_general", "mul") else [False]


NAMES = [*FUNCTIONS, *RULES]


def stated(name: str) -> dict[bool, float]:
    """Return the errors of an equation in the table of the documentation, of its result and its gradient."""
    (line,) = [
        one for one in PAGE.read_text("utf-8").splitlines() if one.startswith(f"| {name} |") and one.count("|") == 4
    ]
    return {gradient: float(cell) for gradient, cell in enumerate(line.split("|")[2:-1]) if cell.strip()}


@pytest.mark.parametrize("name", few(NAMES[::3] + NAMES[1::3] + NAMES[2::3], 8))
def test_the_errors_of_the_documentation_are_seen(name: str) -> None:
    """Another processor may see smaller ones."""
    errors = stated(name)
    assert [*errors] == columns(name)
    for gradient, error in errors.items():
        assert error <= 1e-4
        assert seen(name, error, gradient=gradient)
        assert not seen(name, 0.0, gradient=gradient)


def smallest(name: str, *, gradient: bool) -> float:
    errors = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    return next(error for error in errors if seen(name, error, gradient=gradient))


def table() -> str:
    """Return the table of the documentation."""
    lines = ["| equation | result | gradient |", "|---|---|---|"]
    for name in NAMES:
        cells = {gradient: f"{smallest(name, gradient=gradient):.0e}" for gradient in columns(name)}
        lines.append(f"| {name} | {' | '.join(cells.get(one, '') for one in (False, True))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
