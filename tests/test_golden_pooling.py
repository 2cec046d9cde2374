"""How published results become calls: the cases that a relation draws, and the CPU side of it against PyTorch."""

from typing import Any

import numpy as np
import pytest

from mpsref.conformance import golden
from mpsref.conformance.families import pooling
from mpsref.conformance.families.pooling import over_windows, pooling_cases


def test_pooling_cases_differ_between_axes_and_sides() -> None:
    cases = list(pooling_cases(golden.by_id("relation-caffe2-pool")))
    assert any(strides[0] != strides[1] for _, strides, _, _ in cases)
    assert any(pads[0] != pads[2] for _, _, pads, _ in cases)
    assert any(kernel == (8, 13) for kernel, *_ in cases)
    assert all(x.shape[1:] == (8, 13, 8) for *_, x in cases)


def test_pooling_cases_in_words_of_pytorch() -> None:
    cases = list(pooling_cases(golden.by_id("relation-pytorch-max-pool")))
    assert {(kernel, strides, *pads, x.shape) for kernel, strides, pads, x in cases} == {
        ((2, 2), (2, 2), 0, 0, 0, 0, (1, 4, 4, 3)),
        ((2, 2), (2, 2), 1, 1, 1, 1, (1, 4, 4, 3)),
        ((3, 3), (2, 2), 0, 0, 1, 1, (1, 55, 55, 96)),  # sizes rounded up: room for one more window
    }


def test_pooling_cases_without_a_size() -> None:
    cases = list(pooling_cases(golden.by_id("relation-bnns-pool-offset")))
    assert {(kernel, strides, *pads, x.shape) for kernel, strides, pads, x in cases} == {
        ((2, 2), (2, 2), 0, 0, 0, 0, (1, 8, 12, 4))
    }


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize(("name", "words"), [("avg", {"count_include_pad": False}), ("max", {})])
def test_pooling_on_the_cpu_is_that_of_pytorch(name: str, words: dict[str, Any], stride: int) -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal((2, 8, 13, 3))
    function: Any = {"avg": np.mean, "max": np.max}[name]
    ours = over_windows(function, x, (5, 3), (stride, stride), [2, 1, 2, 1])
    source = torch.tensor(x.transpose(0, 3, 1, 2))
    theirs = getattr(torch.nn.functional, f"{name}_pool2d")(source, (5, 3), stride, (2, 1), **words)
    np.testing.assert_allclose(ours, theirs.numpy().transpose(0, 2, 3, 1), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("length", [6, 7, 8, 55])
def test_room_at_the_end_is_the_ceil_mode_of_pytorch(length: int) -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal((1, length, length, 2))
    words = {"kernel": 3, "stride": 2, "pad": 0, "ceil_mode": True}
    ours = over_windows(np.max, x, *pooling._in_words_of_pytorch(words))
    theirs = torch.nn.functional.max_pool2d(torch.tensor(x.transpose(0, 3, 1, 2)), 3, 2, ceil_mode=True)
    np.testing.assert_array_equal(ours, theirs.numpy().transpose(0, 2, 3, 1))


def test_means_of_uneven_padding() -> None:
    x = np.arange(1.0, 7.0).reshape(1, 1, 6, 1)
    means = over_windows(np.mean, x, (1, 3), (1, 2), [0, 1, 0, 0])
    assert means[0, 0, :, 0].tolist() == [1.5, 3, 5]
