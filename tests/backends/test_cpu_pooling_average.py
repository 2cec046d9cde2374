"""The cpu backend's average pooling: agreement with the reference on problems of every shape, rounding, NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsref import Adam, PoolingAverage, registry
from mpsref.arguments.arrays import Array
from mpsref.conformance import families
from mpsref.conformance.case import Case
from mpsref.conformance.checker import cases
from mpsref.conformance.runner import run_case
from mpsref_cpu import backend
from mpsref_cpu.half import in_float32
from mpsref_cpu.pooling.pooling_average import _plan
from mpsref_cpu.threads import as_storage
from tests import examples

OPERATIONS = [registry.Operation(PoolingAverage, method) for method in ("forward", "gradient")]
FAR = 2**60


def agree(case: Case) -> None:
    """Guarded memory, the derived bound, equality where the answer is exact, and the properties."""
    outcome = run_case(case, backend, families.properties(case.problem.operation))
    assert outcome.status in ("passed", "mistrusted"), f"{case}: {outcome.message}"


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_random_problems(operation: registry.Operation) -> None:
    @examples(150)
    @given(cases(operation))
    def check(case: Case) -> None:
        agree(case)

    check()


@st.composite
def wide_cases(draw: st.DrawFn) -> Case:
    """Draw rows long enough for every vector loop and every grouping of columns, with 1 to 70 channels."""
    kernel, stride = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    offset = draw(st.integers(-3, 6))
    spec = PoolingAverage(
        (draw(st.integers(1, 4)), kernel),
        (draw(st.integers(1, 3)), stride),
        (draw(st.integers(-1, 2)), offset),
        draw(st.sampled_from(["clamp", "zero"])),
        draw(st.integers(0, 2)),
    )
    shape = draw(st.integers(1, 2)), draw(st.integers(1, 5)), draw(st.integers(1, 60)), draw(st.integers(1, 70))
    method = draw(st.sampled_from(["forward", "gradient"]))
    size = draw(st.integers(1, 5)), draw(st.integers(1, 60))
    dtype = draw(st.sampled_from(["float32", "float16"]))
    family = draw(st.sampled_from(["real", "exact", "hard"]))
    return Case(spec.problems[method](spec, shape, size), dtype, family, draw(st.integers(0, 999)))


@examples(150)
@given(wide_cases())
def test_wide_rows(case: Case) -> None:
    agree(case)


@pytest.mark.parametrize("method", ["forward", "gradient"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    ("spec", "size", "outputs"),
    [
        (PoolingAverage((31, 33), (4, 33), 16, "clamp"), 40, (4, 5)),  # 1,023 terms, all in float32
        (PoolingAverage(33, 4, 16, "clamp"), 40, (6, 6)),  # 1,089: in float64
        (PoolingAverage((40, 1), 1, (20, 0)), 40, (1, 40)),
        (PoolingAverage(2, FAR, 1), 4, (3, 3)),
        (PoolingAverage((2, 2), (1, FAR), (1, 3)), 4, (3, 3)),
        (PoolingAverage(9, 1, FAR), 4, (3, 3)),
        (PoolingAverage(9, 1, -FAR, "clamp", FAR), 4, (3, 3)),
        (PoolingAverage(FAR, 1, 0, "clamp"), 4, (3, 3)),
        (PoolingAverage(FAR, 1, 0, "clamp", FAR), 4, (3, 3)),
    ],
    ids=str,
)
def test_extreme_windows(spec: PoolingAverage, size: int, outputs: tuple[int, int], dtype: str, method: str) -> None:
    for family in ("real", "exact"):
        agree(Case(spec.problems[method](spec, (2, size, size, 3), outputs), dtype, family, seed=5))


@pytest.mark.parametrize("size", [31, 32, 33, 300])
def test_long_sums_lose_nothing(size: int) -> None:
    """In one running float32 sum all but the first pixel would vanish: 2**24 + 1 rounds to 2**24."""
    x = np.ones((1, size, size, 2), np.float32)
    x[0, 0, 0] = 2**24
    y = PoolingAverage(size, 1, size // 2).forward(x, (1, 1), backend=backend)
    # The first row and the first column may each lose their own 1s while they are still float32.
    lost = 2 * size if size * size <= 1024 else 0
    assert np.all(np.abs(y.astype(np.float64) * size**2 - (2**24 + size**2 - 1)) <= lost + 4)


NAN, INFINITY = float("nan"), float("inf")


@examples(150)
@given(
    wide_cases(),
    st.lists(st.tuples(st.integers(0, 2**16), st.sampled_from([NAN, INFINITY, -INFINITY])), min_size=1, max_size=6),
)
def test_nan_and_infinity_reach_their_windows_and_no_others(case: Case, specials: list[tuple[int, float]]) -> None:
    (values,) = case.inputs()
    for place, special in specials:
        values.flat[place % values.size] = special
    expected = np.empty(case.problem.result_shapes[0], values.dtype)
    with np.errstate(invalid="ignore"):
        registry.run(case.problem, values, out=expected, backend="reference")
    actual = registry.run(case.problem, values, backend=backend)
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    np.testing.assert_array_equal(actual[np.isinf(expected)], expected[np.isinf(expected)])
    assert np.isfinite(actual[np.isfinite(expected)]).all()


def test_empty_windows_are_zero_whatever_the_image_holds() -> None:
    x = np.full((1, 6, 6, 3), NAN, np.float32)
    pool = PoolingAverage(2, 3, offset=-30, edge_mode="clamp", zero_pad_size=1)
    assert not pool.forward(x, (3, 3), backend=backend).any()
    assert not pool.gradient(x, (1, 6, 6, 3), backend=backend).any()
    skipped = PoolingAverage(1, 2).gradient(x, (1, 12, 12, 3), backend=backend)
    assert np.isnan(skipped[:, ::2, ::2]).all()
    assert not skipped[:, 1::2].any()
    assert not skipped[:, :, 1::2].any()


# float16


def every_half() -> npt.NDArray[np.float16]:
    return np.arange(2**16, dtype=np.uint16).view(np.float16)


def same_bits(actual: Array, expected: Array) -> None:
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(actual), nan)
    word = f"u{expected.itemsize}"
    np.testing.assert_array_equal(actual[~nan].view(word), expected[~nan].view(word))


def converted(values: Array, dtype: Any) -> Array:
    """Return what a function of float32 images that returns its input makes of an image, as a result of ``dtype``."""
    out = np.empty(values.shape, dtype)
    in_float32(lambda problem, x, out: np.copyto(out, x))(None, values, out=out)
    return out


def test_every_half_is_loaded_exactly() -> None:
    same_bits(converted(every_half(), np.float32), every_half().astype(np.float32))


def around_every_tie() -> npt.NDArray[np.float32]:
    """Return what lies half-way between neighbouring halves, its neighbours in float32, and the ends of the range."""
    halves = np.sort(every_half()[np.isfinite(every_half())].astype(np.float32))
    ties = (halves[1:] + halves[:-1]) / 2
    ends = np.float32([65504, 65519.996, 65520, 65536, 3e38, 2.0**-24, 2.0**-25, 2.0**-26, 1e-45, 0, np.inf, np.nan])
    return np.concatenate(
        [halves, ties, np.nextafter(ties, np.float32(9e9)), np.nextafter(ties, -np.float32(9e9)), ends, -ends]
    )


def any_bits() -> npt.NDArray[np.float32]:
    return np.random.default_rng(0).integers(0, 2**32, 2**20, dtype=np.uint32).view(np.float32)


@pytest.mark.parametrize("values", [around_every_tie(), any_bits()], ids=["ties", "random"])
def test_floats_are_stored_as_numpy_rounds_them(values: npt.NDArray[np.float32]) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        same_bits(converted(values, np.float16), values.astype(np.float16))


def test_every_half_passes_a_window_of_one_pixel() -> None:
    x = every_half().reshape(1, 64, 64, 16)
    same_bits(PoolingAverage(1).forward(x, backend=backend), x)
    same_bits(PoolingAverage(1).gradient(x, x.shape, backend=backend), x)


def test_means_of_two_neighbouring_halves_round_to_even() -> None:
    halves = np.sort(every_half()[np.isfinite(every_half())])
    x = np.ascontiguousarray(np.stack([halves[:-1], halves[1:]])[None, :, :, None])
    y = PoolingAverage((2, 1), (2, 1), (1, 0)).forward(x, backend=backend)
    same_bits(y[0, 0, :, 0], ((halves[1:].astype(np.float64) + halves[:-1]) / 2).astype(np.float16))


# what makes it fast


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("method", ["forward", "gradient"])
def test_columns_are_grouped(method: str, stride: int) -> None:
    """A wide row is a few long segments: its borders, and one for each column of a period of the gradient."""
    spec = PoolingAverage(3, stride, edge_mode="clamp")
    problem = spec.problems[method](spec, (1, 9, 500, 8), (9 // stride, 500 // stride))
    (_, columns), *_ = _plan(problem)
    assert columns.length.sum() == problem.result_shapes[0][2]
    assert columns.length.size <= 2 * stride + 3


@pytest.mark.parametrize(("size", "dtype"), [(32, np.float32), (33, np.float64)])
def test_sums_of_many_terms_are_float64(size: int, dtype: Any) -> None:
    spec = PoolingAverage(size, edge_mode="clamp")
    for method in ("forward", "gradient"):
        (rows, columns), *_ = _plan(spec.problems[method](spec, (1, 90, 90, 1), (90, 90)))
        assert {rows.weights.dtype, columns.weights.dtype} == {np.dtype(dtype)}


def test_a_read_only_view_of_memory_that_may_be_written_stays_one() -> None:
    """Kernels are compiled for arrays that may be written; what they are lent is another view of the same memory."""
    gradient = np.ones(8, np.float32)
    view = gradient.view()
    view.flags.writeable = False
    lent = as_storage(view)
    assert np.shares_memory(lent, gradient)
    assert lent.flags.writeable
    assert not view.flags.writeable
    moment = np.zeros(8, np.float32)
    Adam(0.1).step(view, view, moment, moment, backend="cpu")
    assert not view.flags.writeable
    assert (gradient == 1).all()
