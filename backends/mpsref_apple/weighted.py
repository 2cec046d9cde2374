"""Convolution, its transpose, and fully connected layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpsref import Convolution, ConvolutionTranspose, FullyConnected
from mpsref.arguments.arrays import Array
from mpsref_apple.pointwise import neuron_descriptor
from mpsref_apple.runtime import Images, Object, Runtime, Table
from mpsref_apple.windows import EDGE_MODES, encode_gradient, forward_batch, offset_of

CLASSES = {
    Convolution: "MPSCNNConvolution",
    ConvolutionTranspose: "MPSCNNConvolutionTranspose",
    FullyConnected: "MPSCNNFullyConnected",
}

SIGNATURES = {
    "dataType": b"I@:",
    "descriptor": b"@@:",
    "weights": b"^v@:",
    "biasTerms": b"^v@:",
    "load": b"Z@:",
    "purge": b"v@:",
    "label": b"@@:",
    "kernelWeightsDataType": b"I@:",
    "copyWithZone_": b"@@:^{_NSZone=}",
    "updateWithCommandBuffer_gradientState_sourceState_": b"@@:@@@",
}


def _depthwise(problem: Any) -> bool:
    channels = problem.source_shape[3]
    return isinstance(problem.spec, Convolution) and problem.spec.groups == channels > 1


def _descriptor(run: Runtime, problem: Any) -> Object:
    spec, (height, width) = problem.spec, problem.spec.size
    kind = "MPSCNNDepthWiseConvolutionDescriptor" if _depthwise(problem) else "MPSCNNConvolutionDescriptor"
    make = "cnnConvolutionDescriptorWithKernelWidth_kernelHeight_inputFeatureChannels_outputFeatureChannels_"
    sizes = width, height, problem.source_shape[3], problem.output_channels
    descriptor = getattr(getattr(run.mps, kind), make)(*sizes)
    if not isinstance(spec, FullyConnected):
        sy, sx = spec.strides
        descriptor.setStrideInPixelsX_(sx)
        descriptor.setStrideInPixelsY_(sy)
        if not _depthwise(problem):
            descriptor.setGroups_(spec.groups)
    if isinstance(spec, Convolution):
        dy, dx = spec.dilations  # type: ignore[misc]  # a spec holds pairs
        descriptor.setDilationRateX_(dx)
        descriptor.setDilationRateY_(dy)
    if spec.neuron is not None and spec.neuron.data is not None:  # the header allows PReLU by this method alone
        descriptor.setNeuronToPReLUWithParametersA_(np.asarray(spec.neuron.data, np.float32).tobytes())
    elif spec.neuron is not None:
        descriptor.setFusedNeuronDescriptor_(neuron_descriptor(run, spec.neuron))
    return descriptor


def source_of(run: Runtime, problem: Any, weights: Array, biases: Array | None = None) -> Object:
    """Return a data source with float32 weights, in the order OHWI, and biases."""
    kind = run.constant("MPSDataTypeFloat32")
    values = {
        "dataType": kind,
        "descriptor": _descriptor(run, problem),
        "weights": weights,
        "biasTerms": biases,
        "load": True,
        "label": "mpsref",
        "kernelWeightsDataType": kind,
    }
    return run.sources.make("MPSCNNConvolutionDataSource", SIGNATURES, values)


def forward_kernel(run: Runtime, problem: Any, source: Object) -> Object:
    """Return the forward kernel of a data source."""
    spec = problem.spec
    kernel = run.new(CLASSES[type(spec)], "initWithDevice_weights_", source)
    kernel.setAccumulatorPrecisionOption_(run.constant("MPSNNConvolutionAccumulatorPrecisionOptionFloat"))
    if isinstance(spec, FullyConnected):
        return kernel
    kernel.setOffset_(offset_of(spec.offset))
    if isinstance(spec, ConvolutionTranspose):
        y, x = spec.kernel_offset  # type: ignore[misc]  # a spec holds pairs
        kernel.setKernelOffsetX_(x)
        kernel.setKernelOffsetY_(y)
    else:
        kernel.setEdgeMode_(run.constant(EDGE_MODES[spec.edge_mode]))
    return kernel


def forward(run: Runtime, problem: Any, x: Array, weights: Array, *biases: Array, out: Array) -> None:
    """Encode the layer."""
    source = source_of(run, problem, weights, *biases)
    out[...] = forward_batch(run, forward_kernel(run, problem, source), x, out.shape)


def _gradient(
    run: Runtime, problem: Any, weights: Array, g: Array, sources: Images, option: str
) -> tuple[Images, Object]:
    """Encode the gradient of one batch; return its images and the state."""
    source = source_of(run, problem, weights)
    kernel = run.new(f"{CLASSES[type(problem.spec)]}Gradient", "initWithDevice_weights_", source)
    kernel.setGradientOption_(run.constant(f"MPSCNNConvolutionGradientOptionGradientWith{option}"))
    make = forward_kernel(run, problem, source).resultStateBatchForSourceImage_sourceStates_destinationImage_
    states = make(sources, None, run.images(g.shape))
    return encode_gradient(run, kernel, run.upload(g), sources, states, states[:1]), states[0]


def gradient_data(run: Runtime, problem: Any, g: Array, weights: Array, out: Array) -> None:
    """Encode the gradient for the data alone."""
    images, _ = _gradient(run, problem, weights, g, run.upload(np.zeros(out.shape)), "Data")
    out[...] = run.download(images)


def gradient_weights(run: Runtime, problem: Any, g: Array, x: Array, out: tuple[Array, Array]) -> None:
    """Encode the gradients for weights and biases alone: the state holds their sums over the batch."""
    _, state = _gradient(run, problem, np.zeros(out[0].shape, np.float32), g, run.upload(x), "WeightsAndBias")
    out[0][...] = run.values(state.gradientForWeights(), out[0].shape)
    out[1][...] = run.values(state.gradientForBiases(), out[1].shape)


def refuses(problem: Any) -> str | None:
    """Return why the channels of a problem are illegal by the documentation of MPS, or ``None``."""
    channels, outputs, groups = problem.source_shape[3], problem.output_channels, problem.spec.groups
    if _depthwise(problem):
        if outputs != channels:
            return (
                f"there are {channels} input and {outputs} output channels; MPS supports depthwise convolutions with a "
                "channel multiplier of 1 only"
            )
        return None
    if groups > 1 and (channels // groups % 4 or outputs // groups % 4):
        return (
            f"groups is {groups} with {channels} input and {outputs} output channels; MPS requires that each group has "
            "a multiple of 4 of both"
        )
    return None


IMPLEMENTATIONS: Table = {
    (kind, name): function
    for kind in CLASSES
    for name, function in (
        ("forward", forward),
        ("gradient_data", gradient_data),
        ("gradient_weights", gradient_weights),
    )
}

REFUSALS = dict.fromkeys(CLASSES, refuses)
