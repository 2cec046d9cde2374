"""Descriptors: every row of their tables, the rules between properties, what is folded, and the enumerations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import mps
from mpsref.mps.convolution_descriptor import (
    InferenceBatchNormalization,
)

KINDS: list[Any] = [
    mps.MPSCNNConvolutionDescriptor,
    mps.MPSCNNDepthWiseConvolutionDescriptor,
    mps.MPSCNNSubPixelConvolutionDescriptor,
]
INTEGERS = (
    "kernel_width", "kernel_height", "input_feature_channels", "output_feature_channels", "stride_in_pixels_x",
    "stride_in_pixels_y", "dilation_rate_x", "dilation_rate_y", "groups",
)  # fmt: skip


def kernel(descriptor: Any) -> mps.MPSCNNConvolution:
    """The kernel that a descriptor makes, with weights of the right size."""
    size = int(np.prod(descriptor.weights_shape))
    return mps.MPSCNNConvolution(mps.ArrayConvolutionDataSource(descriptor, np.zeros(size), None))


@pytest.mark.parametrize("kind", KINDS)
def test_factory_and_defaults(kind: Any) -> None:
    descriptor = kind(5, 4, 2, 8)
    assert [getattr(descriptor, name) for name in INTEGERS] == [5, 4, 2, 8, 1, 1, 1, 1, 1]
    small = kind(input_feature_channels=2, output_feature_channels=8)
    assert (small.kernel_width, small.kernel_height) == (3, 3)
    assert descriptor.fused_neuron_descriptor.neuron_type is mps.MPSCNNNeuronType.NONE
    assert descriptor.batch_normalization is None
    with pytest.raises(TypeError, match="input_feature_channels is None"):
        kind(3, 3)


@pytest.mark.parametrize(
    ("channels", "groups", "words"),
    [
        ((8, 8), 3, "groups is 3; it must divide input_feature_channels, 8"),
        ((9, 8), 3, "groups is 3, which leaves 3 input channels in a group; .* multiple of 4"),
        ((12, 8), 3, "groups is 3; it must divide output_feature_channels, 8"),
        ((12, 6), 3, "groups is 3, which leaves 2 output channels in a group; .* multiple of 4"),
        ((8, 8), 8, "groups is 8, which leaves 1 input channels"),
    ],
)
def test_groups_are_checked_when_a_kernel_is_made(channels: tuple[int, int], groups: int, words: str) -> None:
    descriptor = mps.MPSCNNConvolutionDescriptor(1, 1, *channels, groups=groups)
    with pytest.raises(ValueError, match=words):
        kernel(descriptor)
    descriptor.input_feature_channels = descriptor.output_feature_channels = 4 * groups
    assert kernel(descriptor).weights_shape == (4 * groups, 1, 1, 4)


@pytest.mark.parametrize("channels", [(1, 1), (3, 5), (6, 7), (48, 47)])
def test_any_number_of_channels_is_legal_in_one_group(channels: tuple[int, int]) -> None:
    assert kernel(mps.MPSCNNConvolutionDescriptor(2, 3, *channels)).weights_shape == (channels[1], 3, 2, channels[0])


def test_depthwise() -> None:
    descriptor = mps.MPSCNNDepthWiseConvolutionDescriptor(3, 2, 5, 15)
    assert descriptor.channel_multiplier == kernel(descriptor).channel_multiplier == 3
    assert (descriptor.weights_shape, descriptor.effective_groups) == ((15, 2, 3), 5)
    assert kernel(mps.MPSCNNConvolutionDescriptor(3, 2, 5, 15)).channel_multiplier == 0
    with pytest.raises(AttributeError, match="channel_multiplier"):
        descriptor.channel_multiplier = 2
    descriptor.output_feature_channels = 14
    with pytest.raises(ValueError, match=r"output_feature_channels is 14; .* multiple of input_feature_channels, 5"):
        kernel(descriptor)
    with pytest.raises(ValueError, match="groups is 2; a depthwise convolution must have groups 1"):
        kernel(mps.MPSCNNDepthWiseConvolutionDescriptor(3, 3, 8, 8, groups=2))
    with pytest.raises(ValueError, match=r"output_feature_channels is 4; .* multiple"):
        kernel(mps.MPSCNNDepthWiseConvolutionDescriptor(3, 3, 8, 4))


def test_sub_pixel() -> None:
    descriptor = mps.MPSCNNSubPixelConvolutionDescriptor(3, 3, 4, 8)
    assert descriptor.sub_pixel_scale_factor == kernel(descriptor).sub_pixel_scale_factor == 1
    descriptor.sub_pixel_scale_factor = 2
    assert kernel(descriptor).sub_pixel_scale_factor == 2
    for bad, error in ((0, ValueError), (2.0, TypeError)):
        with pytest.raises(error, match="sub_pixel_scale_factor is"):
            descriptor.sub_pixel_scale_factor = bad
    descriptor.sub_pixel_scale_factor = 3
    with pytest.raises(ValueError, match=r"sub_pixel_scale_factor is 3; its square, 9, must divide .*, 8"):
        kernel(descriptor)
    grouped = mps.MPSCNNSubPixelConvolutionDescriptor(1, 1, 8, 8, groups=2, sub_pixel_scale_factor=2)
    with pytest.raises(ValueError, match="leaves 2 channels; with more than one group that must be a multiple of 4"):
        kernel(grouped)
    grouped.output_feature_channels = 16
    assert kernel(grouped).sub_pixel_scale_factor == 2


def test_fused_neuron() -> None:
    descriptor = mps.MPSCNNConvolutionDescriptor(1, 1, 2, 3)
    relu = mps.MPSNNNeuronDescriptor(mps.MPSCNNNeuronType.ReLU, 0.5)
    descriptor.fused_neuron_descriptor = relu
    assert descriptor.fused_neuron_descriptor == kernel(descriptor).fused_neuron_descriptor == relu
    descriptor.fused_neuron_descriptor = None
    assert descriptor.fused_neuron_descriptor.neuron_type is mps.MPSCNNNeuronType.NONE
    with pytest.raises(TypeError, match="fused_neuron_descriptor is of type str"):
        descriptor.fused_neuron_descriptor = "relu"
    prelu = mps.MPSNNNeuronDescriptor(mps.MPSCNNNeuronType.PReLU, data=(0.1, 0.2, 0.3))
    with pytest.raises(ValueError, match=r"is of type PReLU; set it with set_neuron_to_prelu"):
        descriptor.fused_neuron_descriptor = prelu


def test_prelu_has_one_slope_for_each_output_channel() -> None:
    descriptor = mps.MPSCNNConvolutionDescriptor(1, 1, 2, 3)
    slopes = np.array([0.25, 0.5, 0.75])
    descriptor.set_neuron_to_prelu(slopes)
    slopes[:] = 9
    assert descriptor.fused_neuron_descriptor.neuron_type is mps.MPSCNNNeuronType.PReLU
    assert descriptor.prelu_parameters_a == (0.25, 0.5, 0.75)
    assert mps.MPSCNNConvolutionDescriptor.from_json(descriptor.to_json()) == descriptor
    for bad, error in (
        ([1, 2], ValueError),
        ([[1, 2, 3]], ValueError),
        (["a"] * 3, TypeError),
        ([1, 2, np.inf], ValueError),
    ):
        with pytest.raises(error, match="parameters_a"):
            descriptor.set_neuron_to_prelu(bad)
    descriptor.output_feature_channels = 4
    with pytest.raises(ValueError, match="parameters_a has length 3; it must be 4"):
        kernel(descriptor)


def test_batch_normalization_is_copied_and_checked() -> None:
    descriptor = mps.MPSCNNConvolutionDescriptor(1, 1, 2, 3)
    mean = np.array([1.0, 2, 3])
    descriptor.set_batch_normalization_parameters_for_inference(mean, [1, 1, 4], None, None, 0.5)
    mean[:] = 9
    assert descriptor.batch_normalization == InferenceBatchNormalization((1, 2, 3), (1, 1, 4), None, None, 0.5)
    descriptor.set_batch_normalization_parameters_for_inference(variance=[0, 0, 1], epsilon=0.5)
    for arguments, words in [
        (([1, 2], None), "has length 2; it must be 3"),
        (([1, 2, 3], [1, 2]), r"have lengths \[2, 3\]"),
        ((None, [1, -1, 1]), r"variance\[1\] is -1.0; with epsilon .* it must make a sum > 0"),
        ((None, [1, 0, 1], None, None, 0.0), r"variance\[1\] is 0.0"),
        ((None, None, None, None, -1.0), "epsilon is -1.0"),
        ((None, None, None, None, float("nan")), "epsilon is nan"),
        (([[1, 2, 3]],), "mean has shape"),
        (([1, np.nan, 3],), "mean is not finite"),
    ]:
        with pytest.raises(ValueError, match=words):
            descriptor.set_batch_normalization_parameters_for_inference(*arguments)
    with pytest.raises(TypeError, match="gamma has dtype"):
        descriptor.set_batch_normalization_parameters_for_inference(gamma=["a", "b", "c"])
    with pytest.raises(TypeError, match="batch_normalization is of type dict"):
        descriptor.batch_normalization = {}
    descriptor.output_feature_channels = 4
    with pytest.raises(ValueError, match="batch normalization has length 3; it must be 4"):
        kernel(descriptor)


def test_missing_arrays_of_a_batch_normalization_are_neutral() -> None:
    w, b = np.arange(6.0).reshape(2, 3), np.array([1.0, -1])
    for part, scale, shift in [
        ({"mean": (1, 2)}, [1, 1], [-1, -2]),
        ({"variance": (4, 0.25)}, [0.5, 2], [0, 0]),
        ({"gamma": (3, 5)}, [3, 5], [0, 0]),
        ({"beta": (7, 8)}, [1, 1], [7, 8]),
    ]:
        arguments: Any = {"mean": None, "variance": None, "gamma": None, "beta": None, "epsilon": 0.0} | part
        weights, biases = InferenceBatchNormalization(**arguments).folded(w, b)
        np.testing.assert_array_equal(weights, w * np.array(scale)[:, None])
        np.testing.assert_array_equal(biases, b * scale + shift)
        without = InferenceBatchNormalization(**arguments).folded(w, None)[1]
        np.testing.assert_array_equal(without, shift, "missing biases count as 0")


def test_folding_is_the_normalization_of_the_result() -> None:
    generator = np.random.default_rng(0)
    w, b, x = generator.standard_normal((2, 3)), generator.standard_normal(2), generator.standard_normal(3)
    mean, variance, gamma, beta = generator.uniform(0.5, 2, (4, 2))
    made = InferenceBatchNormalization(tuple(mean), tuple(variance), tuple(gamma), tuple(beta), 0.25)
    weights, biases = made.folded(w, b)
    expected = gamma * (w @ x + b - mean) / np.sqrt(variance + 0.25) + beta
    np.testing.assert_allclose(weights @ x + biases, expected, rtol=1e-13)


def test_a_later_change_of_the_descriptor_has_no_effect() -> None:
    descriptor = mps.MPSCNNConvolutionDescriptor(3, 1, 1, 1)
    convolution = kernel(descriptor)
    descriptor.stride_in_pixels_x, descriptor.kernel_width = 2, 5
    convolution.descriptor.stride_in_pixels_x = 3
    assert (convolution.stride_in_pixels_x, convolution.kernel_width, convolution.descriptor.stride_in_pixels_x) == (
        1,
        3,
        1,
    )
    assert convolution.encode(np.ones((1, 1, 6, 1), np.float32)).shape == (1, 1, 6, 1)


def test_enumerations_have_apples_numbers() -> None:
    assert [(one.name, int(one)) for one in mps.MPSCNNConvolutionWeightsLayout] == [("OHWI", 0)]
    quantization = [(one.name, int(one)) for one in mps.MPSCNNWeightsQuantizationType]
    assert quantization == [("NONE", 0), ("Linear", 1), ("LookupTable", 2)]
    assert [(one.name, int(one)) for one in mps.MPSNNConvolutionAccumulatorPrecisionOption] == [
        ("Half", 0),
        ("Float", 1),
    ]
    options = {name: int(one) for name, one in mps.MPSCNNConvolutionGradientOption.__members__.items()}
    assert options == {"GradientWithData": 1, "GradientWithWeightsAndBias": 2, "All": 3}
