"""Reductions: worked numbers, NumPy, ties and NaN, clips, the gradient of the spatial mean, bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import set_num_threads

from mpsref import NoGradientError, Reduce, ShapeError
from mpsref.arguments.arrays import Array
from mpsref.kernels.reduce import AXES, FORMULAS, OPERATIONS, OVER, is_legal

F32 = np.float32
X = np.arange(1, 13, dtype=F32).reshape(1, 2, 3, 2)
LEGAL = [(operation, over) for operation in OPERATIONS for over in OVER if is_legal(operation, over)]


@pytest.mark.parametrize(
    ("operation", "over", "expected"),
    [
        ("sum", "row", [[[9, 12]], [[27, 30]]]),
        ("sum", "column", [[[8, 10], [12, 14], [16, 18]]]),
        ("sum", "featurechannels", [[[3], [7], [11]], [[15], [19], [23]]]),
        ("mean", "spatial", [[[6, 7]]]),
        ("max", "row", [[[5, 6]], [[11, 12]]]),
        ("min", "column", [[[1, 2], [3, 4], [5, 6]]]),
        ("argumentmin", "featurechannels", [[[0], [0], [0]], [[0], [0], [0]]]),
        ("argumentmax", "featurechannels", [[[1], [1], [1]], [[1], [1], [1]]]),
    ],
)
def test_worked_examples(backend: str, operation: Any, over: Any, expected: Any) -> None:
    assert Reduce(operation, over).forward(X, backend=backend)[0].tolist() == expected


def by_numpy(spec: Reduce, x: Array) -> Array:
    (y, x0), (height, width) = spec.clip or ((0, 0), x.shape[1:3])
    axes = AXES[spec.over]
    part = x[:, y : y + height, x0 : x0 + width].astype(np.float64)
    return (
        np.asarray(FORMULAS[spec.operation](part, axis=axes if len(axes) > 1 else axes[0], keepdims=True)) * spec.weight
    )


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("operation", "over"), LEGAL)
def test_numpy(backend: str, operation: Any, over: Any, dtype: str) -> None:
    rng = np.random.default_rng(0)
    for shape in ((2, 9, 7, 5), (1, 1, 1, 1), (3, 20, 3, 17)):
        x = rng.integers(-9, 9, shape).astype(dtype)
        for clip in (None, ((0, 0), (1, 1)), ((shape[1] // 2, shape[2] // 3), (99, 4))):
            spec = Reduce(operation, over, clip=clip)
            result = spec.forward(x, backend=backend)
            assert result.dtype == dtype
            np.testing.assert_allclose(result, by_numpy(spec, x), rtol=1e-6 if dtype == "float32" else 1e-3)


def test_a_weight(backend: str) -> None:
    y = Reduce("sum", "featurechannels", weight=-0.5).forward(X, backend=backend)
    assert y.ravel().tolist() == [-1.5, -3.5, -5.5, -7.5, -9.5, -11.5]


def test_the_lowest_index_of_equal_extrema(backend: str) -> None:
    x = np.array([[3, 1, 3, 1], [2, 2, 2, 2], [-1, -4, -4, -1]], F32).reshape(1, 1, 3, 4)
    assert Reduce("argumentmax", "featurechannels").forward(x, backend=backend).ravel().tolist() == [0, 0, 0]
    assert Reduce("argumentmin", "featurechannels").forward(x, backend=backend).ravel().tolist() == [1, 0, 1]


NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([1, NAN, 3, NAN], [1, 3, 0, 2]),
        ([NAN, 1, 2, 3], [1, 3, 1, 3]),
        ([NAN] * 4, [INF, -INF, -1, -1]),
        ([NAN, -INF, INF, NAN], [-INF, INF, 1, 2]),
        ([NAN, -INF], [-INF, -INF, 1, 1]),
        ([INF, INF], [INF, INF, 0, 0]),
    ],
)
@pytest.mark.parametrize("repeated", [1, 3, 9, 50])  # vectors of each length
def test_extrema_skip_nan(ieee_backend: str, values: list[float], found: list[float], repeated: int) -> None:
    x = np.array(values * repeated, F32).reshape(1, 1, 1, -1)
    images = {"featurechannels": x, "column": x.reshape(1, -1, 1, 1), "row": x.reshape(1, 1, -1, 1)}
    operations: tuple[Any, ...] = ("min", "max", "argumentmin", "argumentmax")
    for operation, expected in zip(operations, found, strict=True):
        for over, image in images.items():
            if is_legal(operation, over):  # type: ignore[arg-type]
                assert Reduce(operation, over).forward(image, backend=ieee_backend).item() == expected  # type: ignore[arg-type]
    for operation in ("sum", "mean"):
        sums = Reduce(operation, "featurechannels").forward(x, backend=ieee_backend)
        np.testing.assert_array_equal(sums.item(), x.sum())


@pytest.mark.parametrize("clip", [None, ((1, 2), (2, 9))])
def test_the_gradient_of_the_spatial_mean(backend: str, clip: Any) -> None:
    rng = np.random.default_rng(1)
    x, direction = rng.standard_normal((2, 2, 4, 5, 3))
    spec = Reduce("mean", "spatial", clip=clip)
    g = rng.standard_normal((2, 1, 1, 3))
    dx = spec.gradient(g, x)
    np.testing.assert_allclose((g * spec.forward(direction)).sum(), (dx * direction).sum(), rtol=1e-12)
    narrow = spec.gradient(g.astype(F32), x.shape, backend=backend)
    np.testing.assert_allclose(narrow, dx, rtol=1e-6)
    if clip:
        assert np.count_nonzero(dx[0, :, :, 0]) == 2 * 3


def test_long_sums_stay_accurate_and_do_not_depend_on_threads(backend: str) -> None:
    if backend == "reference:input-dtype":
        pytest.skip("this backend sums in the dtype of its inputs, on purpose")
    x = np.random.default_rng(3).uniform(0.5, 1.5, (2, 500, 300, 2)).astype(F32)
    results = []
    for threads in (1, 2):
        set_num_threads(threads)
        results.append(
            [Reduce(op, over).forward(x, backend=backend) for op, over in (("mean", "spatial"), ("sum", "row"))]
        )
    for one, two in zip(*results, strict=True):
        np.testing.assert_array_equal(one, two)
    # Metal adds up to 1,024 numbers in sequence, as its error bounds allow; the others fewer, or in float64.
    rtol = 2e-6 if backend.startswith("metal") else 5e-7
    np.testing.assert_allclose(results[0][0], x.mean((1, 2), keepdims=True, dtype=np.float64), rtol=rtol)


def test_bad_calls() -> None:
    for clip in (((2, 0), (1, 1)), ((0, 0), (0, 3))):
        with pytest.raises(ValueError, match="nothing lies in both"):
            Reduce("sum", "row", clip=clip).forward(X)
    with pytest.raises(NoGradientError, match="has no gradient kernel in MPS"):
        Reduce("mean", "row").gradient(X, X)
    with pytest.raises(ShapeError, match=r"g has shape \(1, 2, 3, 2\);.* it must have shape \(1, 1, 1, 2\)"):
        Reduce("mean", "spatial").gradient(X, X)
