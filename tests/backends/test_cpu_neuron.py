"""Neurons on the cpu backend: the errors of the elementary functions, fused use, vector instructions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from scipy import special

from mpsref.arguments.arrays import Array
from mpsref.kernels.neuron import Neuron
from mpsref_cpu.activation import functions, neuron
from mpsref_cpu.simd import elementary, reductions

jit = numba.njit(nogil=True, fastmath={"contract"}, error_model="numpy")


def looped(function: Any) -> Callable[[Array], Array]:
    """Return a function of arrays whose compiled loop calls a function of elementary.py."""

    @jit  # type: ignore[untyped-decorator]
    def loop(x: Any, y: Any) -> None:
        for i in range(x.size):
            y[i] = function(x[i])

    def call(x: Array) -> Array:
        y = np.empty_like(x)
        loop(x, y)
        return y

    call.loop = loop  # type: ignore[attr-defined]
    return call


@jit  # type: ignore[untyped-decorator]
def share(x: Any) -> Any:
    return elementary.normal(x)[0]


@jit  # type: ignore[untyped-decorator]
def density(x: Any) -> Any:
    return elementary.normal(x)[1]


def floats(low: float, high: float) -> Array:
    """Every 211th float32 between two numbers of one sign: 211 is a prime, so that all patterns of low bits occur."""
    ends = np.sort(np.array([low, high], np.float32).view(np.uint32).astype(np.int64))
    return np.arange(*ends, 211).astype(np.uint32).view(np.float32)


def units_in_the_last_place(found: Array, exact: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.abs(found - exact) / np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)


FUNCTIONS: list[tuple[str, Any, Callable[[Array], Array], list[tuple[float, float]], float]] = [
    ("exp", elementary.exp, np.exp, [(1e-7, 88.7), (-1e-7, -103.9)], 1.2),
    ("expm1", elementary.expm1, np.expm1, [(-1e-7, -103.9)], 1.1),
    ("log", elementary.log, np.log, [(1e-45, 3.4e38)], 1.0),
    ("log1p", elementary.log1p, np.log1p, [(1e-8, 1)], 1.5),
    ("tanh", elementary.tanh, np.tanh, [(1e-8, 20), (-1e-8, -20)], 2.6),
    ("sigmoid", elementary.sigmoid, lambda x: np.exp(-np.logaddexp(0, -x)), [(1e-7, 100), (-1e-7, -100)], 2.6),
    ("share", share, special.ndtr, [(1e-3, 13), (-1e-3, -13)], 7.0),
    ("density", density, lambda x: np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi), [(1e-3, 13)], 2.7),
]


@pytest.mark.parametrize(
    ("function", "exact", "ranges", "limit"), [f[1:] for f in FUNCTIONS], ids=[f[0] for f in FUNCTIONS]
)
def test_errors_of_elementary_functions(
    function: Any, exact: Callable[[Array], Array], ranges: list[tuple[float, float]], limit: float
) -> None:
    call = looped(function)
    for low, high in ranges:
        x = floats(low, high)
        with np.errstate(under="ignore"):
            assert units_in_the_last_place(call(x), exact(x.astype(np.float64))).max() < limit


@pytest.mark.parametrize("c", [2.5, -3.0, 0.1, 7.0, -0.25, 30.0])
def test_errors_of_powers(c: float) -> None:
    below = 1.0 if c % 2 == 0 else -1.0 if c % 2 == 1 else np.nan
    exponent, sign = np.float32(c), np.float32(below)

    @jit  # type: ignore[untyped-decorator]
    def loop(x: Any, y: Any) -> None:
        for i in range(x.size):
            y[i] = elementary.power(x[i], exponent, sign)

    x = floats(1e-38, 3e38)[::7]
    x = x[np.abs(np.log(x) * c) < 86]
    x = np.concatenate([x, -x]) if below == below else x
    y = np.empty_like(x)
    loop(x, y)
    assert units_in_the_last_place(y, x.astype(np.float64) ** float(exponent)).max() < 0.6


def test_special_values() -> None:
    x = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 200, -200, 1e-42], np.float32)
    with np.errstate(all="ignore"):
        for function, exact in ((elementary.exp, np.exp), (elementary.log, np.log), (elementary.tanh, np.tanh)):
            np.testing.assert_allclose(looped(function)(x), exact(x.astype(np.float64)).astype(np.float32), rtol=2e-7)
    np.testing.assert_array_equal(looped(elementary.expm1)(np.array([-np.inf, -0.0, np.nan], "f4")), [-1, 0, np.nan])
    np.testing.assert_array_equal(looped(share)(np.array([-np.inf, np.inf, np.nan, 0], "f4")), [0, 1, np.nan, 0.5])


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "sigmoid", "log1p", "expm1"])
def test_loops_become_vector_instructions(name: str) -> None:
    """No call is left in the loop, and multiplications are of packed floats."""
    call: Any = looped(getattr(elementary, name))
    call(np.ones(3, np.float32))
    (assembly,) = call.loop.inspect_asm().values()
    assert not re.search(r"(call|b|bl)\w*\s+\S*\b(expf?|logf?|tanhf?|powf?)\b", assembly)
    packed = r"vmulps|vfmadd\w+ps|mulps|fmla\s+v|fmul\s+v"
    assert re.search(packed, assembly), "the loop is scalar"


SPECS = [
    None,
    Neuron("relu", a=0.25),
    Neuron("prelu", data=[0.5, -0.25, 2.0]),
    Neuron("gelu"),
    Neuron("power", a=0.5, b=5, c=2.5),
    Neuron("softplus", a=2, b=0.5),
]


def test_long_sums_do_not_drift() -> None:
    """2,000,000 equal terms: a running float32 sum would be off by percents."""
    x, g = np.full((2, 1000, 1000, 1), -0.1, np.float32), np.full((2, 1000, 1000, 1), 3.0, np.float32)
    found = Neuron("prelu", data=[0.5]).parameter_gradient(g, x, backend="cpu")
    assert found.item() == pytest.approx(2_000_000 * 3 * float(np.float32(-0.1)), rel=2e-6)


@pytest.mark.parametrize("count", [1, 7, 8, 9, 31, 32, 33, 100, 40_000])
def test_reductions(count: int) -> None:
    @jit  # type: ignore[untyped-decorator]
    def run(values: Any, others: Any, count: int) -> Any:
        return (
            reductions.total(values, 2, count),
            reductions.dot(values, others, 2, count),
            reductions.largest(values, 2, count),
        )

    rng = np.random.default_rng(3)
    values, others = rng.standard_normal((2, count + 4)).astype(np.float32)
    part = slice(2, 2 + count)
    total, dot, largest = run(values, others, count)
    assert total == pytest.approx(values[part].sum(dtype=np.float64), abs=1e-6 * float(np.abs(values).sum()))
    assert dot == pytest.approx(values[part].astype(np.float64) @ others[part], abs=1e-6 * count)
    assert largest == values[part].max()
    assert run(-np.abs(values) - 1, others, count)[2] == (-np.abs(values) - 1)[part].max()


def test_every_type_is_compiled() -> None:
    assert set(functions.VALUE) == set(functions.SLOPE)
    assert {type(functions.compiled_form(spec)) for spec in SPECS} <= set(functions.VALUE)
    assert neuron.block_of(functions.compiled_form(Neuron("prelu", data=[1.0] * 300))) == 300
    assert neuron.block_of(functions.compiled_form(Neuron("prelu", data=[1.0] * 3))) == 258
