"""The reduction classes, and the reductions of an image with weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import Reduce, ShapeError, UnsupportedError, mps
from mpsref.kernels.reduce import OPERATIONS
from mpsref.mps import graph

F32 = np.float32

WORDS = {"Row": "row", "Column": "column", "FeatureChannels": "featurechannels"}

NAMES = {
    "Min": "min",
    "Max": "max",
    "Mean": "mean",
    "Sum": "sum",
    "ArgumentMin": "argumentmin",
    "ArgumentMax": "argumentmax",
}

KINDS: dict[Any, Any] = {
    getattr(mps, f"MPSNNReduce{over}{operation}"): (NAMES[operation], WORDS[over])
    for over in WORDS
    for operation in NAMES
    if hasattr(mps, f"MPSNNReduce{over}{operation}")
}


def random(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(F32)


def test_every_class_of_the_header_is_there() -> None:
    assert len(KINDS) == 14
    assert {operation for operation, _ in KINDS.values()} == set(OPERATIONS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_functional_form(kind: Any) -> None:
    x = random(2, 5, 4, 6)
    kernel = kind()
    np.testing.assert_array_equal(kernel.encode(x), Reduce(*KINDS[kind]).forward(x))
    kernel.clip_rect_source = ((1, 2, 1), (2, 9, 9))
    expected = Reduce(*KINDS[kind], clip=((2, 1), (9, 2))).forward(x[1:])
    np.testing.assert_array_equal(kernel.encode(x), expected)
    assert mps.MPSKernel.from_json(kernel.to_json()) == kind(clip_rect_source=((1, 2, 1), (2, 9, 9)))


def test_a_weight() -> None:
    x = random(1, 2, 2, 5)
    total = mps.MPSNNReduceFeatureChannelsSum(weight=-2.0)
    np.testing.assert_allclose(total.encode(x), -2 * x.sum(3, keepdims=True), rtol=1e-5)
    with pytest.raises(ValueError, match="weight is inf"):
        total.weight = np.inf


def test_the_offset_is_ignored() -> None:
    x = random(1, 4, 4, 4)
    moved = mps.MPSNNReduceRowMean(offset=(2, 1))
    np.testing.assert_array_equal(moved.encode(x), mps.MPSNNReduceRowMean().encode(x))


@pytest.mark.parametrize("clip", [((9, 0, 0), (1, 1, 1)), ((0, 0, 0), (1, 0, 1)), ((0, 0, 3), (1, 1, 1))])
def test_a_clip_beside_the_image(clip: Any) -> None:
    with pytest.raises(ValueError, match="nothing lies in both"):
        mps.MPSNNReduceRowMean(clip_rect_source=clip).encode(random(2, 4, 4, 4))


CLASSES = mps.MPSNNReduceFeatureChannelsAndWeightsSum, mps.MPSNNReduceFeatureChannelsAndWeightsMean


def two(*shape: int, dtype: Any = F32) -> tuple[Any, Any]:
    """Return an image, and weights of which every third is 0."""
    x, w = np.random.default_rng(0).standard_normal((2, *shape))
    w.reshape(-1)[::3] = 0
    return x.astype(dtype), w.astype(dtype)


@pytest.mark.parametrize("channels", [1, 3, 40])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_sums_and_means(channels: int, dtype: str, backend: str) -> None:
    x, w = two(2, 3, 4, channels, dtype=dtype)
    w[1, 2, 3] = 0  # a pixel without any weight
    products = x.astype(np.float64) * w
    total = products.sum(3, keepdims=True)
    used = np.count_nonzero(w, axis=3, keepdims=True)
    by_weights = np.divide(total, used, out=np.zeros_like(total), where=used > 0)
    scale = np.abs(products).sum(3, keepdims=True)
    kernels: Any = (
        (mps.MPSNNReduceFeatureChannelsAndWeightsSum(backend=backend), total, 1),
        (mps.MPSNNReduceFeatureChannelsAndWeightsSum(True, backend=backend), by_weights, np.maximum(used, 1)),
        (mps.MPSNNReduceFeatureChannelsAndWeightsMean(backend=backend), total / channels, channels),
    )
    for kernel, expected, divisor in kernels:
        result = kernel.encode(x, w)
        assert result.dtype == dtype
        # a rounding for each product, each addition and each division, and one more for the result as it is stored
        stored = np.finfo(dtype).eps / 2 * np.abs(expected) + np.finfo(dtype).smallest_subnormal
        bound = (channels + 6) * 2.0**-24 * scale / divisor + stored
        assert (np.abs(result - expected) <= bound).all()


def test_a_float16_sum_is_rounded_once(backend: str) -> None:
    x = np.array([2048, 1, 1, 1], np.float16).reshape(1, 1, 1, 4)
    total = mps.MPSNNReduceFeatureChannelsAndWeightsSum(backend=backend).encode(x, np.ones_like(x))
    assert total.item() == 2052  # 2051 to even; 2048 if each sum were stored


def test_clips_and_what_may_be_changed() -> None:
    x, w = two(3, 5, 6, 2)
    kernel = mps.MPSNNReduceFeatureChannelsAndWeightsSum(True)
    kernel.primary_source_clip_rect = ((1, 2, 1), (9, 2, 2))  # origin (x, y, z), size
    kernel.secondary_source_clip_rect = ((0, 0, 0), (5, 2, 2))
    expected = mps.MPSNNReduceFeatureChannelsAndWeightsSum(True).encode(x[1:3, 2:4, 1:], w[:2, :2, :5])
    np.testing.assert_array_equal(kernel.encode(x, w), expected)
    twin = mps.MPSKernel.from_json(kernel.to_json())
    assert twin == kernel
    assert isinstance(twin, mps.MPSNNReduceFeatureChannelsAndWeightsSum)
    assert twin.do_weighted_sum_by_non_zero_weights
    np.testing.assert_array_equal(twin.encode(x, w), expected)
    with pytest.raises(AttributeError):
        kernel.do_weighted_sum_by_non_zero_weights = False


@pytest.mark.parametrize("kind", CLASSES)
def test_bad_input(kind: Any) -> None:
    x, w = two(2, 3, 4, 5)
    kept = x.copy(), w.copy()
    with pytest.raises(ShapeError, match=r"reads \(2, 3, 4, 5\) .* and \(2, 3, 4, 1\) .*a weight for each element"):
        kind().encode(x, w[..., :1])
    with pytest.raises(ValueError, match=r"secondary_source_clip_rect is .* nothing lies in both"):
        kind(secondary_source_clip_rect=((4, 0, 0), (1, 1, 1))).encode(x, w)
    with pytest.raises(ShapeError, match=r"has room for \(2, 3, 4, 5\); .* \(2, 3, 4, 1\)"):
        kind().encode(x, w, np.empty_like(x))
    with pytest.raises(UnsupportedError, match="secondary_edge_mode is"):
        kind(secondary_edge_mode="clamp").encode(x, w)
    np.testing.assert_array_equal((x, w), kept)
    with pytest.raises(TypeError, match="abstract"):
        mps.MPSNNReduceBinary()


def test_the_spatial_mean_of_some_images_has_a_gradient_that_is_zero_for_the_others() -> None:
    image, x = graph.MPSNNImageNode("x"), np.arange(27, dtype=np.float32).reshape(3, 3, 3, 1)
    node = graph.MPSNNReductionSpatialMeanNode(image, clip_rect_source=((0, 0, 1), (2, 2, 1)))
    dx = graph.training_graph(graph.MPSNNInitialGradientNode(node.result_image)).gradient_image(image)
    run = graph.MPSNNGraph([node.result_image, dx]).run([x])
    assert run.images[0].tolist() == [[[[x[1, :2, :2].mean()]]]]
    expected = np.zeros_like(x)
    expected[1, :2, :2] = 0.25
    np.testing.assert_array_equal(run.images[1], expected)
