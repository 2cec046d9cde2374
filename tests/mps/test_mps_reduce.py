"""The reduction classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import Reduce, ShapeError, UnsupportedError, mps
from mpsref.kernels.reduce import OPERATIONS
from mpsref.mps import MPSKernel, MPSNNReduceFeatureChannelsSum, MPSNNReduceRowMean, MPSNNReduceUnary

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
def test_the_functional_form(kind: Any, backend: str) -> None:
    x = random(2, 5, 4, 6)
    kernel = kind(backend=backend)
    np.testing.assert_array_equal(kernel.encode(x), Reduce(*KINDS[kind]).forward(x, backend=backend))
    kernel.clip_rect_source = ((1, 2, 1), (2, 9, 9))
    expected = Reduce(*KINDS[kind], clip=((2, 1), (9, 2))).forward(x[1:], backend=backend)
    np.testing.assert_array_equal(kernel.encode(x), expected)
    assert MPSKernel.from_json(kernel.to_json()) == kind(clip_rect_source=((1, 2, 1), (2, 9, 9)))


def test_a_weight() -> None:
    x = random(1, 2, 2, 5)
    total = MPSNNReduceFeatureChannelsSum(weight=-2.0)
    np.testing.assert_allclose(total.encode(x), -2 * x.sum(3, keepdims=True), rtol=1e-5)
    with pytest.raises(ValueError, match="weight is inf"):
        total.weight = np.inf


def test_the_offset_is_ignored_and_nothing_else() -> None:
    x = random(1, 4, 4, 4)
    moved = MPSNNReduceRowMean(offset=(2, 1))
    np.testing.assert_array_equal(moved.encode(x), MPSNNReduceRowMean().encode(x))
    for name, value in (("edge_mode", "clamp"), ("source_feature_channel_offset", 4)):
        with pytest.raises(UnsupportedError, match=f"{name} is"):
            MPSNNReduceRowMean(**{name: value}).encode(x)


@pytest.mark.parametrize("clip", [((9, 0, 0), (1, 1, 1)), ((0, 0, 0), (1, 0, 1)), ((0, 0, 3), (1, 1, 1))])
def test_a_clip_beside_the_image(clip: Any) -> None:
    with pytest.raises(ValueError, match="nothing lies in both"):
        MPSNNReduceRowMean(clip_rect_source=clip).encode(random(2, 4, 4, 4))


def test_destinations() -> None:
    x = random(1, 3, 4, 2)
    target = np.empty((1, 3, 1, 2), F32)
    assert MPSNNReduceRowMean().encode(x, target) is target
    np.testing.assert_allclose(target, x.mean(2, keepdims=True), rtol=1e-5, atol=1e-6)
    with pytest.raises(ShapeError, match=r"has room for \(1, 3, 4, 2\); .* \(1, 3, 1, 2\)"):
        MPSNNReduceRowMean().encode(x, np.empty_like(x))
    with pytest.raises(TypeError, match="abstract"):
        MPSNNReduceUnary()
