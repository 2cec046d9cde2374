"""The golden adapters: the cases that a relation draws, and their CPU side compared with PyTorch."""

from typing import Any

import numpy as np
import pytest

from mpsref.conformance import golden
from mpsref.conformance.families import pooling
from mpsref.conformance.families.convolution import golden as convolution
from mpsref.conformance.families.convolution.golden import LARGEST
from mpsref.conformance.families.pooling import pooling_cases
from mpsref.conformance.golden_entries import over_windows
from mpsref.kernels import Neuron

# Pooling


def test_pooling_cases_differ_between_axes_and_sides() -> None:
    cases = list(pooling_cases(golden.by_id("relation-caffe2-pool")))
    assert any(strides[0] != strides[1] for _, strides, _, _ in cases)
    assert any(pads[0] != pads[2] for _, _, pads, _ in cases)
    assert any(kernel == (8, 13) for kernel, *_ in cases)
    assert all(x.shape[1:] == (8, 13, 8) for *_, x in cases)


def test_pooling_cases_of_pytorch() -> None:
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
@pytest.mark.parametrize(("name", "options"), [("avg", {"count_include_pad": False}), ("max", {})])
def test_pooling_on_the_cpu_is_that_of_pytorch(name: str, options: dict[str, Any], stride: int) -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal((2, 8, 13, 3))
    function: Any = {"avg": np.mean, "max": np.max}[name]
    ours = over_windows(function, x, (5, 3), (stride, stride), [2, 1, 2, 1])
    source = torch.tensor(x.transpose(0, 3, 1, 2))
    theirs = getattr(torch.nn.functional, f"{name}_pool2d")(source, (5, 3), stride, (2, 1), **options)
    np.testing.assert_allclose(ours, theirs.numpy().transpose(0, 2, 3, 1), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("length", [6, 7, 8, 55])
def test_room_at_the_end_is_the_ceil_mode_of_pytorch(length: int) -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal((1, length, length, 2))
    configuration = {"kernel": 3, "stride": 2, "pad": 0, "ceil_mode": True}
    ours = over_windows(np.max, x, *pooling._of_pytorch(configuration))
    theirs = torch.nn.functional.max_pool2d(torch.tensor(x.transpose(0, 3, 1, 2)), 3, 2, ceil_mode=True)
    np.testing.assert_array_equal(ours, theirs.numpy().transpose(0, 2, 3, 1))


def test_means_of_uneven_padding() -> None:
    x = np.arange(1.0, 7.0).reshape(1, 1, 6, 1)
    means = over_windows(np.mean, x, (1, 3), (1, 2), [0, 1, 0, 0])
    assert means[0, 0, :, 0].tolist() == [1.5, 3, 5]


# Convolution


def test_convolution_cases_differ_between_axes_and_sides() -> None:
    entry = golden.by_id("relation-caffe2-conv")
    cases = [convolution._read(drawn, entry.parameters) for drawn, _ in entry.cases()]
    assert any(case.strides[0] != case.strides[1] for case in cases)
    assert any(case.pads[0] != case.pads[2] for case in cases)
    assert {case.kernel[0] for case in cases} == {1, 3, 8}
    assert {case.channels for case in cases} == {(12, 8)}


def test_large_images_are_cropped_to_at_least_a_window() -> None:
    entry = golden.by_id("relation-pytorch-conv2d")
    for drawn, _ in entry.cases():
        case = convolution._read(drawn, entry.parameters)
        for length, extent, before, after in zip(case.source, case.kernel, case.pads[:2], case.pads[2:], strict=True):
            assert length <= LARGEST
            assert length + before + after >= extent


def test_depthwise_and_neurons_of_a_source() -> None:
    entry = golden.by_id("relation-forge-depthwise")
    cases = [convolution._read(drawn, entry.parameters) for drawn, _ in entry.cases()]
    assert all(case.groups == case.channels[0] == case.channels[1] for case in cases)
    assert {case.neuron for case in cases} == {None, Neuron("relu"), Neuron("sigmoid")}


@pytest.mark.parametrize("groups", [1, 2])
def test_convolution_on_the_cpu_is_that_of_pytorch(groups: int) -> None:
    torch = pytest.importorskip("torch")
    case = convolution._Case((8, 9), (4, 6), (3, 2), (2, 1), (1, 0, 2, 1), groups, Neuron("relu", a=0.5))
    rng = np.random.default_rng(0)
    x, weights, biases = (rng.standard_normal(s) for s in ((2, 8, 9, 4), (6, 3, 2, 4 // groups), (6,)))
    padded = torch.nn.functional.pad(torch.tensor(x.transpose(0, 3, 1, 2)), (0, 1, 1, 2))
    theirs = torch.nn.functional.conv2d(
        padded, torch.tensor(weights.transpose(0, 3, 1, 2)), torch.tensor(biases), (2, 1), 0, 1, groups
    )
    theirs = torch.nn.functional.leaky_relu(theirs, 0.5).numpy().transpose(0, 2, 3, 1)
    np.testing.assert_allclose(convolution._on_the_cpu(case, x, weights, biases), theirs, rtol=1e-12, atol=1e-12)
