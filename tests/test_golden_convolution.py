"""How published results of convolution become calls: the words of a relation, and its CPU side against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from mpsref.conformance import golden
from mpsref.conformance.families.convolution import golden as convolution
from mpsref.conformance.families.convolution.golden import ADAPTERS, LARGEST
from mpsref.kernels import Neuron

KERNELS = ADAPTERS.keys() - {"MPSCNNConvolutionTransposeNode"}  # tests/test_golden.py compares its sizes
ENTRIES = [entry for entry in golden.load() if set(entry.kernels) & KERNELS]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_entries_agree(backend: str, entry: golden.Entry) -> None:
    result = golden.compare(entry, backend)
    assert result.status == "agree", result.reason


def test_every_class_has_an_entry() -> None:
    assert {kernel for entry in ENTRIES for kernel in entry.kernels} == KERNELS


def test_cases_differ_between_axes_and_sides() -> None:
    entry = golden.by_id("relation-caffe2-conv")
    cases = [convolution._read(words, entry.parameters) for words, _ in entry.cases()]
    assert any(case.strides[0] != case.strides[1] for case in cases)
    assert any(case.pads[0] != case.pads[2] for case in cases)
    assert {case.kernel[0] for case in cases} == {1, 3, 8}
    assert {case.channels for case in cases} == {(12, 8)}


def test_large_images_are_cut_but_hold_a_window() -> None:
    entry = golden.by_id("relation-pytorch-conv2d")
    for words, _ in entry.cases():
        case = convolution._read(words, entry.parameters)
        for length, extent, before, after in zip(case.source, case.kernel, case.pads[:2], case.pads[2:], strict=True):
            assert length <= LARGEST
            assert length + before + after >= extent


def test_depthwise_and_neurons_in_the_words_of_a_source() -> None:
    entry = golden.by_id("relation-forge-depthwise")
    cases = [convolution._read(words, entry.parameters) for words, _ in entry.cases()]
    assert all(case.groups == case.channels[0] == case.channels[1] for case in cases)
    assert {case.neuron for case in cases} == {None, Neuron("relu"), Neuron("sigmoid")}


@pytest.mark.parametrize("groups", [1, 2])
def test_the_cpu_side_is_that_of_pytorch(groups: int) -> None:
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
