"""The comparator: what it flags, what it says, and that its bound is neither too wide nor too narrow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from mpsref import PoolingAverage
from mpsref.arguments.arrays import Array
from mpsref.conformance import comparator
from mpsref.conformance.comparator import Mismatch, check
from mpsref.conformance.families import pooling
from mpsref.kernels.reference import ErrorBound, gamma
from tests import examples
from tests.kernels import oracle_pooling as oracle

SHAPE = (1, 2, 2, 3)
EXPECTED = np.arange(1.0, 13).reshape(SHAPE) / 7
ACTUAL = EXPECTED.astype(np.float32)
TERMS = ErrorBound.of_terms(np.abs(EXPECTED), np.full(SHAPE, 9))
LIMIT = comparator.bound(ACTUAL, EXPECTED, TERMS)
U = 2.0**-24


def with_error(error: float, index: tuple[int, ...] = (0, 1, 0, 2)) -> Array:
    """ACTUAL as float64 would have it, but for one element that is off."""
    actual = ACTUAL.copy()
    actual[index] += np.float32(error)
    return actual


def test_the_right_answer_passes() -> None:
    assert check(ACTUAL, EXPECTED, TERMS, "float32") == 0
    assert check(ACTUAL[:0], EXPECTED[:0], ErrorBound(TERMS.limit[:0]), "float32") == 0


def test_the_bound_is_the_formula() -> None:
    assert gamma(np.array(9)) == 9 * U / (1 - 9 * U)
    spacing = np.spacing(ACTUAL).astype(np.float64)
    np.testing.assert_allclose(LIMIT, 9 * U / (1 - 9 * U) * EXPECTED + spacing / 2, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_spacing_is_that_of_numpy(dtype: str) -> None:
    about = np.finfo(dtype)
    last = np.nextafter(about.max, about.dtype.type(0))
    values = np.array([0, about.smallest_subnormal, about.tiny, 1, 1 - about.epsneg, 3, last], dtype)
    spacing = np.spacing(values).astype(np.float64)
    np.testing.assert_array_equal(comparator.ulp(-values, about.dtype), spacing)
    beyond = np.array([about.max, np.inf, np.nan], dtype)
    np.testing.assert_array_equal(comparator.ulp(beyond, about.dtype), [spacing[-1], spacing[-1], np.nan])


def test_the_fraction_is_that_of_the_worst_element() -> None:
    error = 3 * float(np.spacing(ACTUAL[0, 1, 0, 2]))
    actual = with_error(error)
    exact_error = abs(float(actual[0, 1, 0, 2]) - EXPECTED[0, 1, 0, 2])
    fraction = check(actual, EXPECTED, TERMS, "float32")
    assert fraction == pytest.approx(exact_error / LIMIT[0, 1, 0, 2], rel=1e-6)
    actual[0, 0, 0, 0] += np.spacing(actual[0, 0, 0, 0])
    assert check(actual, EXPECTED, TERMS, "float32") == pytest.approx(fraction)


@pytest.mark.parametrize(
    ("right", "words"), [(255, "255]. It"), (256, "256], after 2**8 right ones. It"), (257, "257]. It")]
)
def test_a_power_of_two_of_right_elements_is_named(right: int, words: str) -> None:
    actual = (np.arange(300) >= right).astype(np.float32)
    with pytest.raises(Mismatch) as caught:
        check(actual, np.zeros(300), ErrorBound(np.zeros(300)), "float32")
    assert words in str(caught.value)


@pytest.mark.parametrize("expected", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("actual", [np.nan, np.inf, -np.inf, 0.0, 65504.0])
@pytest.mark.parametrize("magnitude", [1.0, np.inf, np.nan])
def test_nan_and_infinities_must_be_equal(expected: float, actual: float, magnitude: float) -> None:
    """However wide the bound is."""
    arrays = np.full((1,), actual, np.float32), np.full((1,), expected)
    terms = ErrorBound.of_terms(np.full((1,), magnitude), 9)
    if np.array_equal(*arrays, equal_nan=True):
        assert check(*arrays, terms, "float32") == 0
    else:
        with pytest.raises(Mismatch, match="must be equal"):
            check(*arrays, terms, "float32")


@pytest.mark.parametrize("sign", [-1, 1])
def test_just_inside_and_just_outside(sign: int) -> None:
    limit = LIMIT[0, 1, 0, 2]
    assert 0.8 < check(with_error(sign * 0.9 * limit), EXPECTED, TERMS, "float32") <= 1
    for factor in (1.1, 3, 1e30):
        with pytest.raises(Mismatch):
            check(with_error(sign * factor * limit), EXPECTED, TERMS, "float32")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_wrong(value: float) -> None:
    with pytest.raises(Mismatch, match=r"1 of 12 elements are wrong; the first is \[0, 1, 0, 2\]") as caught:
        check(with_error(value), EXPECTED, TERMS, "float32")
    assert ("never written" in str(caught.value)) == np.isnan(value)
    with pytest.raises(Mismatch, match="12 of 12"):
        check(np.full(SHAPE, value, np.float32), EXPECTED, TERMS, "float32", exact=True)


def test_nan_is_wrong_where_the_bound_is_infinite() -> None:
    terms = ErrorBound(np.full(SHAPE, np.inf))
    with pytest.raises(Mismatch):
        check(with_error(np.nan), EXPECTED, terms, "float32")


def test_shape_and_dtype_come_first() -> None:
    nan = np.full(SHAPE, np.nan)
    with pytest.raises(Mismatch, match=r"^shape \(2, 2, 3\), expected \(1, 2, 2, 3\)$"):
        check(nan[0], EXPECTED, TERMS, "float32")
    with pytest.raises(Mismatch, match=r"shape \(1, 2, 2, 1\)"):
        check(ACTUAL[..., :1], EXPECTED, TERMS, "float32")
    with pytest.raises(Mismatch, match=r"^dtype float64, expected float32$"):
        check(nan, EXPECTED, TERMS, "float32")
    with pytest.raises(Mismatch, match=r"dtype >f4"):
        check(ACTUAL.astype(">f4"), EXPECTED, TERMS, "float32")


def test_the_message_says_where_and_what() -> None:
    actual = with_error(1)
    actual[0, 1, 1, 1] = -1
    with pytest.raises(Mismatch) as caught:
        check(actual, EXPECTED, TERMS, "float32", where=lambda index: f"window {index[1:3]}")
    assert caught.value.index == (0, 1, 0, 2)
    assert str(caught.value).startswith("2 of 12 elements are wrong; the first is [0, 1, 0, 2]: window (1, 0). It is ")
    said = f"It is {actual[0, 1, 0, 2]!s}, the reference says 1.28571429; they may differ by "
    assert said in str(caught.value)


def test_exact_demands_equality_where_nothing_is_rounded() -> None:
    some = np.zeros(SHAPE, bool)
    some[0, 1] = True
    terms = TERMS._replace(exact=some)
    step = float(np.spacing(np.float32(1)))
    assert check(with_error(step), EXPECTED, terms, "float32") > 0
    with pytest.raises(Mismatch, match=r"\[0, 1, 0, 2\].*they must be equal"):
        check(with_error(step), EXPECTED, terms, "float32", exact=True)
    elsewhere = with_error(step, (0, 0, 1, 0))
    assert check(elsewhere, EXPECTED, terms, "float32", exact=True) > 0
    assert check(ACTUAL, EXPECTED, TERMS._replace(exact=True), "float32", exact=True) == 0


def test_signs_of_zero_are_not_compared() -> None:
    zeros = np.zeros(SHAPE)
    terms = ErrorBound(zeros, True)
    assert check(np.full(SHAPE, -0.0, np.float32), zeros, terms, "float32", exact=True) == 0
    with pytest.raises(Mismatch):  # but zero is: there is no term to be wrong about
        check(np.full(SHAPE, 1e-45, np.float32), zeros, terms, "float32")


def test_what_is_only_selected_must_be_equal() -> None:
    """m = 0: no arithmetic, no tolerance, in any family of data."""
    terms = ErrorBound(np.zeros(SHAPE))
    assert check(ACTUAL, ACTUAL.astype(np.float64), terms, "float32") == 0
    with pytest.raises(Mismatch, match="they must be equal"):
        check(np.nextafter(ACTUAL, np.float32(0)), ACTUAL.astype(np.float64), terms, "float32")


# ---- float16 --------------------------------------------------------------------------------------------------------


def half(value: float) -> Array:
    return np.full((1, 1, 1, 1), value, np.float16)


def test_float16_may_round_once() -> None:
    """Half a spacing at 1000 is 0.25; float32 arithmetic before it may tip a near tie over, and no more."""
    expected = np.full((1, 1, 1, 1), 1000.2499)
    terms = ErrorBound.of_terms(expected, 5)
    assert check(half(1000), expected, terms, "float16") == 0
    assert 0.99 < check(half(1000.5), expected, terms, "float16") < 1
    for wrong in (999.5, 1001):
        with pytest.raises(Mismatch):
            check(half(wrong), expected, terms, "float16")
    with pytest.raises(Mismatch):
        check(half(1000.5), expected - 0.001, terms, "float16")


@pytest.mark.parametrize(("expected", "actual"), [(65540.0, np.inf), (-1e9, -np.inf), (65519.0, 65504.0)])
def test_float16_overflow_follows_ieee(expected: float, actual: float) -> None:
    answer = np.full((1, 1, 1, 1), expected)
    terms = ErrorBound.of_terms(np.abs(answer), 5)
    assert check(half(actual), answer, terms, "float16") == 0
    for wrong in {np.inf, -np.inf, 65504.0, np.nan} - {actual}:
        with pytest.raises(Mismatch):
            check(half(wrong), answer, terms, "float16")


# ---- the bound of average pooling -----------------------------------------------------------------------------------


def line(values: Array) -> tuple[Any, Array]:
    """The problem of one window over one row of pixels, and that row."""
    pool = PoolingAverage((1, len(values)), offset=(0, len(values) // 2), edge_mode="clamp")
    return PoolingAverage.problems["forward"](pool, (1, 1, len(values), 1), (1, 1)), values.reshape(1, 1, -1, 1)


def in_sequence(values: Array) -> Array:
    """Add up in float32, from left to right, and multiply by a float32 reciprocal."""
    total = np.cumsum(values, dtype=np.float32)[-1]
    return np.full((1, 1, 1, 1), total * np.float32(1 / len(values)))


def compare(actual: Array, problem: Any, x: Array) -> float:
    x = x.astype(np.float64)
    operation = problem.operation
    return check(actual, operation.formula(problem, x), operation.error_bound(problem, x), actual.dtype.name)


@pytest.mark.parametrize("n", [8, 64, 1024])
def test_the_worst_order_stays_within_the_bound_and_gets_near(n: int) -> None:
    """1 + u + u + ... loses every u; added from the small end, nothing is lost."""
    values = np.full(n, U, np.float32)
    values[0] = 1
    problem, x = line(values)
    lost = in_sequence(values)
    assert lost.item() == 1 / n
    assert compare(in_sequence(values[::-1]), problem, x) < 0.2
    fraction = compare(lost, problem, x)
    assert (n - 2) / (n + 6) < fraction < 1
    for factor in (3, -3):
        reference = float(values.astype(np.float64).mean())
        limit = abs(float(lost.item()) - reference) / fraction
        with pytest.raises(Mismatch):
            compare(np.float32(reference + factor * limit).reshape(1, 1, 1, 1), problem, x)


@pytest.mark.parametrize("family", ["normal", "positive", "cancelling", "wide"])
@pytest.mark.parametrize("n", [3, 49, 1000])
def test_any_order_of_float32_sums_stays_within_the_bound(family: str, n: int) -> None:
    generator = np.random.default_rng(n)
    values = generator.standard_normal(n)
    values = {
        "normal": values,
        "positive": 1 + np.abs(values),
        "cancelling": values + 4096 * (-1.0) ** np.arange(n),
        "wide": values * 2.0 ** generator.integers(-20, 12, n),
    }[family].astype(np.float32)
    problem, x = line(values)
    orders = [values, values[::-1], np.sort(values), values[np.argsort(np.abs(values))], generator.permutation(values)]
    worst = max(compare(in_sequence(order), problem, x) for order in orders)
    assert worst < 1


@pytest.mark.parametrize("n", [3, 49, 1000])
def test_float16_sums_do_not(n: int) -> None:
    values = 1 + np.abs(np.random.default_rng(n).standard_normal(n)).astype(np.float32)
    problem, x = line(values)
    coarse = np.cumsum(values, dtype=np.float16)[-1].astype(np.float32) / n
    with pytest.raises(Mismatch):
        compare(np.full((1, 1, 1, 1), coarse, np.float32), problem, x)


@pytest.mark.parametrize("method", ["forward", "gradient"])
def test_terms_are_counted_as_brute_force_counts(method: str) -> None:
    @examples(60)
    @given(problem=pooling.problems(PoolingAverage, method))
    def agree(problem: Any) -> None:
        (shape,) = problem.input_shapes.values()
        source = np.random.default_rng(0).integers(1, 9, shape).astype(np.float64)
        if method == "forward":
            answer = oracle.forward(problem.spec, source, problem.output_size)
        else:
            call = (problem.primary_offset, problem.source_size, problem.kernel_offset, problem.clip)
            answer = oracle.gradient(problem.spec, source, problem.source_shape, *call)
        found = problem.operation.error_bound(problem, -source)
        np.testing.assert_allclose(found.magnitude, answer.magnitude, rtol=1e-12)
        assert np.array_equal(np.broadcast_to(found.roundings, answer.terms.shape), answer.terms + 4)
        # "exact" promises that float32 sums in any order, scaled afterwards or before, give the exact result.
        exact = np.broadcast_to(found.exact, answer.value.shape)
        assert np.array_equal(answer.value[exact], answer.value[exact].astype(np.float32))

    agree()


@pytest.mark.parametrize(("kernel", "edge", "expected"), [(2, "zero", True), (3, "zero", False), (4, "clamp", None)])
def test_where_the_answer_is_exact(kernel: int, edge: Any, expected: bool | None) -> None:
    """Where every divisor is a power of two, for small integers; a shrinking window of four has three pixels too."""
    pool = PoolingAverage((1, kernel), (1, 2), (0, kernel // 2), edge)
    for method, shape in [("forward", (1, 1, 9, 1)), ("gradient", (1, 1, 5, 1))]:
        problem: Any = PoolingAverage.problems[method](pool, (1, 1, 9, 1), (1, 5))
        x = np.arange(1.0, 1 + shape[2]).reshape(shape)
        exact = np.asarray(problem.operation.error_bound(problem, x).exact)
        assert exact.all() == bool(expected)
        assert exact.any() == (expected is not False)
        assert not np.any(problem.operation.error_bound(problem, x * 2**27).exact), "too large for float32 sums"
