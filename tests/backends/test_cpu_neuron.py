"""Neurons on the cpu backend: the errors of the elementary functions, fused use, vector instructions."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from scipy import special

from mpsref.arguments.arrays import Array
from mpsref.kernels.neuron import Neuron
from mpsref_cpu.activation import functions, neuron
from mpsref_cpu.simd import elementary, reductions
from tests import few

jit = numba.njit(nogil=True, fastmath={"contract"}, error_model="numpy")


@cache
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


NORMAL: list[tuple[Any, Callable[[Array], Array], list[tuple[float, float]], float]] = [
    (share, special.ndtr, [(1e-3, 13), (-1e-3, -13)], 7.0),
    (density, lambda x: np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi), [(1e-3, 13)], 2.7),
]


@pytest.mark.parametrize(("function", "exact", "ranges", "limit"), NORMAL, ids=["share", "density"])
def test_errors_of_the_normal_distribution(
    function: Any, exact: Callable[[Array], Array], ranges: list[tuple[float, float]], limit: float
) -> None:
    call = looped(function)
    for low, high in ranges:
        x = floats(low, high)
        with np.errstate(under="ignore"):
            assert units_in_the_last_place(call(x), exact(x.astype(np.float64))).max() < limit


STATED = {
    "exp": 1.02,
    "expm1": 1.51,
    "log": 0.81,
    "log1p_below": 1.28,
    "tanh": 1.46,
    "sigmoid": 1.97,
    "reciprocal_root": 1.5,
    "power 0.6": 0.55,
    "power -3": 0.55,
    "-0.5": 1.5,
    "-0.75": 1.6,
    "-1": 0.5,
    "-2": 1.91,
    "-3": 0.51,
    "-5": 0.51,
    "-8": 0.51,
}
"""Those in the documentation of elementary.py."""


@pytest.fixture(scope="module")
def script() -> Any:
    """The script that tries all float32, as a module."""
    place = Path(__file__).parents[2] / "scripts" / "elementary.py"
    spec = importlib.util.spec_from_file_location("elementary_errors", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def functions_of_the_script(script: Any) -> Any:
    return script.functions()


@pytest.mark.parametrize("name", few([*STATED][::2] + [*STATED][1::2], 7))
def test_errors_of_elementary_functions(name: str, script: Any, functions_of_the_script: Any) -> None:
    """One argument of 10,007, a prime, so that all patterns of low bits occur."""
    error, x = script.largest_error(functions_of_the_script[name], 10_007)
    assert error <= STATED[name], f"at {x!r}"


ENDS = np.array(
    [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 200, -200, 1e-42, -1e-42, 1.2e-38, 3.4e38, -3.4e38, 88.72284, 88.7229],
    np.float32,
)


def test_special_values(functions_of_the_script: Any) -> None:
    """Those of NumPy, with the signs of zeros."""
    for name, function in functions_of_the_script.items():
        low, high = function.domain
        x = ENDS[np.isnan(ENDS) | ((low <= ENDS) & (high >= ENDS))]
        y = np.empty_like(x)
        function.loop(x, y)
        with np.errstate(all="ignore"):
            exact = function.exact(x.astype(np.float64)).astype(np.float32)
        np.testing.assert_allclose(y, exact, rtol=2e-7, atol=3e-45, err_msg=name)
        np.testing.assert_array_equal(np.signbit(y)[exact == 0], np.signbit(exact)[exact == 0], err_msg=name)
    np.testing.assert_array_equal(looped(share)(np.array([-np.inf, np.inf, np.nan, 0], "f4")), [0, 1, np.nan, 0.5])


def test_powers_of_float64() -> None:
    """Correct to float32, and to float64 where a base is out of the range of float32."""

    @jit  # type: ignore[untyped-decorator]
    def run(exponent: float, x: Any, y: Any) -> None:
        elementary.raise_to_minus(exponent, x, y, x.size)

    for base in (np.linspace(0.3, 3e4, 100), np.array([1e-50, 1.0, 1e60]), np.array([0.0, np.inf])):
        found = np.empty_like(base)
        for exponent in (0.5, 0.75, 1.0, 2.0, 0.6, 0.0):
            run(exponent, base, found)
            with np.errstate(divide="ignore"):
                np.testing.assert_allclose(found, base**-exponent, rtol=3e-7)


@pytest.mark.parametrize("name", few(["tanh", "log1p_below", "reciprocal_root", "exp", "log", "sigmoid", "expm1"], 3))
def test_loops_become_vector_instructions(name: str) -> None:
    """No call is left in the loop, and multiplications are of packed floats."""
    call: Any = looped(getattr(elementary, name))
    call(np.ones(3, np.float32))
    (assembly,) = call.loop.inspect_asm().values()
    assert not re.search(r"(call|b|bl)\w*\s+\S*\b(expf?|logf?|tanhf?|powf?)\b", assembly)
    packed = r"vmulps|vfmadd\w+ps|mulps|fmla\s+v|fmul\s+v|v?sqrtps|fsqrt\s+v"
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


@jit  # type: ignore[untyped-decorator]
def reduced(values: Any, others: Any, count: int) -> Any:
    return (
        reductions.total(values, 2, count),
        reductions.dot(values, others, np.uintp(2), count) if count >= reductions.FEW else np.float32(0),
        reductions.largest(values, 2, count),
    )


@pytest.mark.parametrize("count", [1, 7, 8, 9, 31, 32, 33, 100, 40_000])
def test_reductions(count: int) -> None:
    rng = np.random.default_rng(3)
    values, others = rng.standard_normal((2, count + 4)).astype(np.float32)
    part = slice(2, 2 + count)
    total, dot, largest = reduced(values, others, count)
    assert total == pytest.approx(values[part].sum(dtype=np.float64), abs=1e-6 * float(np.abs(values).sum()))
    if count >= reductions.FEW:
        assert dot == pytest.approx(values[part].astype(np.float64) @ others[part], abs=1e-6 * count)
    assert largest == values[part].max()
    assert reduced(-np.abs(values) - 1, others, count)[2] == (-np.abs(values) - 1)[part].max()


def test_every_type_is_compiled() -> None:
    assert set(functions.VALUE) == set(functions.SLOPE)
    assert {type(functions.compiled_form(spec)) for spec in SPECS} <= set(functions.VALUE)
    assert neuron.block_of(functions.compiled_form(Neuron("prelu", data=[1.0] * 300))) == 300
    assert neuron.block_of(functions.compiled_form(Neuron("prelu", data=[1.0] * 3))) == 258
