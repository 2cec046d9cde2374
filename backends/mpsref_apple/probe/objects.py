"""Calls of the probe that no operation makes: objects of MPS with other properties than those that the backend sets."""

from __future__ import annotations

import array
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

import mpsref
from mpsref.arguments.arrays import Array, Shape
from mpsref_apple import normalization, training, weighted, windows
from mpsref_apple.mpsgraph import gradient_of_square as gradient_of_square
from mpsref_apple.mpsgraph import read_and_assigned as read_and_assigned
from mpsref_apple.runtime import Images, Object, Runtime, in_use


def pooling_gradient(spec: Any, g: Array, shape: Shape, kernel_offset: int, primary_offset: int = 0) -> Array:
    """Encode a pooling gradient with a destination of ``shape``, a kernel offset and a primary offset in x."""
    run = in_use()
    kernel = windows.pooling_kernel(run, spec, "Gradient")
    kernel.setSecondaryOffset_(windows.offset_of(spec.offset))
    kernel.setSecondaryEdgeMode_(run.constant(windows.EDGE_MODES[spec.edge_mode]))
    kernel.setKernelOffsetX_(kernel_offset)
    kernel.setPrimaryOffset_((primary_offset, 0, 0))
    return windows.binary_batch(run, kernel, run.upload(g), run.upload(np.zeros(shape)), shape)


def default_strides(width: int, height: int) -> list[int]:
    """Return the stride in x of a pooling kernel that is made from a size alone."""
    kernel = in_use().new("MPSCNNPoolingMax", "initWithDevice_kernelWidth_kernelHeight_", width, height)
    return [int(kernel.strideInPixelsX())]


def policy_offset(method: int, size: int, stride: int, length: int) -> list[int]:
    """Return the offset in x that a padding policy gives a pooling kernel."""
    return _placed(in_use().mps.MPSNNDefaultPadding.paddingWithMethod_(method), size, stride, length)


def _placed(policy: Object, size: int, stride: int, length: int) -> list[int]:
    run = in_use()
    name = "initWithDevice_kernelWidth_kernelHeight_strideInPixelsX_strideInPixelsY_"
    kernel = run.new("MPSCNNPoolingMax", name, size, 1, stride, 1)
    kernel.setPadding_(policy)
    sources = run.upload(np.zeros((1, 1, length, 1)))
    kernel.destinationImageDescriptorForSourceImages_sourceStates_(sources, None)
    offset = kernel.offset()
    return [int(offset[0])]


def tensorflow_valid_offset(size: int, stride: int, length: int) -> list[int]:
    """Return the offset in x of the policy for average pooling without padding."""
    policy = in_use().mps.MPSNNDefaultPadding.paddingForTensorflowAveragePoolingValidOnly()
    return _placed(policy, size, stride, length)


def reverse_kernel_offset(method: int, size: int, stride: int, length: int) -> list[int]:
    """Return the kernel offset in x that a padding policy gives a transposed convolution."""
    run, spec = in_use(), mpsref.ConvolutionTranspose((1, size), (1, stride))
    x = np.zeros((1, 1, length, 1), np.float32)
    problem = spec.problems["forward"](spec, x.shape, 1, (1, stride * length))
    filters = np.zeros((1, 1, size, 1), np.float32)
    kernel = weighted.forward_kernel(run, problem, weighted.source_of(run, problem, filters))
    kernel.setPadding_(run.mps.MPSNNDefaultPadding.paddingWithMethod_(method))
    kernel.destinationImageDescriptorForSourceImages_sourceStates_(run.upload(x), None)
    return [int(kernel.kernelOffsetX())]


def inverse_method(method: int) -> list[int]:
    """Return the bits of the inverse of a padding policy."""
    return [int(in_use().mps.MPSNNDefaultPadding.paddingWithMethod_(method).inverse().paddingMethod())]


def stored_in_float16(values: Any) -> Array:
    """Return numbers after a kernel stored them in a float16 image."""
    run = in_use()
    x = np.array(values, np.float32).reshape(1, 1, -1, 1)
    half, results = _in_float16(run, x), run.images(x.shape)
    with run.commands(results) as commands:
        _copying(run).encodeBatchToCommandBuffer_sourceImages_destinationImages_(commands, half, results)
    return run.download(results)


def _in_float16(run: Runtime, x: Array) -> Images:
    """Return float16 images, written by a kernel."""
    half = run.images(x.shape, "Float16")
    with run.commands(half) as commands:
        _copying(run).encodeBatchToCommandBuffer_sourceImages_destinationImages_(commands, run.upload(x), half)
    return half


def l2_gradient_of_float16(spec: Any, g: Array, x: Array) -> Array:
    """Return the gradient of L2-norm pooling for float16 images, in a float32 image."""
    run = in_use()
    kernel = windows.pooling_kernel(run, spec, "Gradient")
    kernel.setSecondaryOffset_(windows.offset_of(spec.offset))
    return windows.binary_batch(run, kernel, _in_float16(run, g), _in_float16(run, x), x.shape)


def _copying(run: Runtime) -> Object:
    make = run.mps.MPSNNNeuronDescriptor.cnnNeuronDescriptorWithType_a_b_c_
    linear = make(run.constant("MPSCNNNeuronTypeLinear"), 1.0, 0.0, 0.0)
    return run.new("MPSCNNNeuron", "initWithDevice_neuronDescriptor_", linear)


def neuron_defaults(name: str) -> list[float]:
    """Return a, b and c of a neuron descriptor that is made from a type alone."""
    run = in_use()
    kind = run.mps.MPSNNNeuronDescriptor
    descriptor = kind.cnnNeuronDescriptorWithType_(run.constant(f"MPSCNNNeuronType{name}"))
    return [float(descriptor.a()), float(descriptor.b()), float(descriptor.c())]


def default_clip_bounds() -> list[float]:
    """Return the clip bounds of an optimizer descriptor that is made without them."""
    run = in_use()
    name = "optimizerDescriptorWithLearningRate_gradientRescale_regularizationType_regularizationScale_"
    make = getattr(run.mps.MPSNNOptimizerDescriptor, name)
    descriptor = make(0.1, 1.0, run.constant("MPSNNRegularizationTypeNone"), 0.0)
    return [float(descriptor.gradientClipMin()), float(descriptor.gradientClipMax())]


def time_step_after_adam(gradient: Array, value: Array) -> list[int]:
    """Return the time step of an Adam optimizer after one encode."""
    run = in_use()
    kernel = run.new("MPSNNOptimizerAdam", "initWithDevice_learningRate_", 0.1)
    out = tuple(np.zeros((3, value.size), np.float32))
    name = "inputGradientVector_inputValuesVector_inputMomentumVector_inputVelocityVector"
    training.encode_step(run, kernel, name, [gradient, value, value * 0, value * 0], out)
    return [int(kernel.timeStep())]


# --- weights ----------------------------------------------------------------------------------------------------------


def _problem(spec: Any, g: Array, x: Array) -> Any:
    return spec.problems["gradient_weights"](spec, x.shape, g.shape[3], g.shape[1:3])


def clamped_data_gradient(spec: Any, g: Array, weights: Array) -> Array:
    """Encode the data gradient of a convolution whose forward edge mode is Clamp."""
    run, x = in_use(), np.zeros_like(g)
    problem = _problem(spec, g, x)
    source = weighted.source_of(run, problem, weights)
    forward = weighted.forward_kernel(run, problem, source)
    forward.setEdgeMode_(run.constant("MPSImageEdgeModeClamp"))
    kernel = run.new("MPSCNNConvolutionGradient", "initWithDevice_weights_", source)
    kernel.setGradientOption_(run.constant("MPSCNNConvolutionGradientOptionGradientWithData"))
    return windows.gradient_batch(run, kernel, forward, g, run.upload(x), x.shape)


def transposed_data_gradient(spec: Any, g: Array, weights: Array, shape: Shape, kernel_offset: int) -> Array:
    """Return the data gradient of a transposed convolution whose gradient kernel has a kernel offset in x."""
    run, x = in_use(), np.zeros(shape, np.float32)
    problem = _problem(spec, g, x)
    source = weighted.source_of(run, problem, weights)
    kernel = run.new("MPSCNNConvolutionTransposeGradient", "initWithDevice_weights_", source)
    kernel.setGradientOption_(run.constant("MPSCNNConvolutionGradientOptionGradientWithData"))
    kernel.setKernelOffsetX_(kernel_offset)
    return _into(run, kernel, problem, source, g, x, x)


def _into(run: Runtime, kernel: Object, problem: Any, source: Object, g: Array, x: Array, before: Array) -> Array:
    """Return a destination with the pixels ``before`` after a gradient kernel."""
    results = run.upload(before)
    _encode_into(run, kernel, problem, source, g, x, results)
    return run.download(results)


def _encode_into(
    run: Runtime, kernel: Object, problem: Any, source: Object, g: Array, x: Array, results: Images
) -> Object:
    """Encode a gradient kernel, whose properties count since it has a destination; return the state."""
    images = run.upload(x)
    states = _states(run, problem, source, images, g)
    with run.commands(results, states[:1]) as commands:
        encode = kernel.encodeBatchToCommandBuffer_sourceGradients_sourceImages_gradientStates_destinationGradients_
        encode(commands, run.upload(g), images, states, results)
    return states[0]


def weight_gradient_by_hand(spec: Any, g: Array, x: Array, secondary_offset: int) -> Array:
    """Return the weight gradient of a kernel whose secondary offset in x was set."""
    run, problem = in_use(), _problem(spec, g, x)
    source = weighted.source_of(run, problem, np.zeros(problem.weights_shape, np.float32))
    kernel = run.new("MPSCNNConvolutionGradient", "initWithDevice_weights_", source)
    kernel.setSecondaryOffset_((secondary_offset, 0, 0))
    state = _encode_into(run, kernel, problem, source, g, x, run.images(x.shape))
    return run.values(state.gradientForWeights(), problem.weights_shape)


def _states(run: Runtime, problem: Any, source: Object, images: Images, g: Array) -> Images:
    make = weighted.forward_kernel(run, problem, source).resultStateBatchForSourceImage_sourceStates_destinationImage_
    states: Images = make(images, None, run.images(g.shape))
    return states


def weights_only_destination(spec: Any, g: Array, x: Array, weights: Array, fill: float) -> Array:
    """Return a destination after a gradient for weights and biases alone."""
    run, problem = in_use(), _problem(spec, g, x)
    source = weighted.source_of(run, problem, weights)
    kernel = run.new("MPSCNNConvolutionGradient", "initWithDevice_weights_", source)
    kernel.setGradientOption_(run.constant("MPSCNNConvolutionGradientOptionGradientWithWeightsAndBias"))
    return _into(run, kernel, problem, source, g, x, np.full_like(x, fill))


def twice_into_a_state(spec: Any, g: Array, x: Array) -> Array:
    """Return the weight gradient after encodes of ``g`` and ``2 g`` into one state."""
    run = in_use()
    state = _accumulated(run, spec, g, x, 2 * g)
    return run.values(state.gradientForWeights(), _problem(spec, g, x).weights_shape)


def _accumulated(run: Runtime, spec: Any, g: Array, x: Array, then: Array | None = None) -> Object:
    """Return a state with the gradients of a convolution."""
    problem = _problem(spec, g, x)
    source, images = weighted.source_of(run, problem, np.zeros(problem.weights_shape, np.float32)), run.upload(x)
    kernel = run.new("MPSCNNConvolutionGradient", "initWithDevice_weights_", source)
    states = _states(run, problem, source, images, g)
    more = None if then is None else run.upload(then)
    windows.encode_gradient(run, kernel, run.upload(g), images, states, states[:1], more)
    return states[0]


def biases_after_step(spec: Any, g: Array, x: Array, biases: Array) -> Array:
    """Return the biases after a step of an optimizer with a momentum for the weights alone."""
    run = in_use()
    gradients, weights = _accumulated(run, spec, g, x), np.zeros(_problem(spec, g, x).weights_shape, np.float32)
    make = run.mps.MPSCNNConvolutionWeightsAndBiasesState
    source = make.alloc().initWithWeights_biases_(run.buffer(weights), run.buffer(biases))
    result = make.alloc().initWithWeights_biases_(run.buffer(weights), run.buffer(biases * 0))
    kernel = run.new("MPSNNOptimizerStochasticGradientDescent", "initWithDevice_learningRate_", 0.1)
    with run.commands(result) as commands:
        name = "convolutionGradientState_convolutionSourceState_inputMomentumVectors_resultState_"
        encode = getattr(kernel, f"encodeToCommandBuffer_{name}")
        encode(commands, gradients, source, [training.vector(run, weights)], result)
    return run.values(result.biases(), biases.shape)


def paired_transpose(size: Any, strides: Any, offset: Any, x: Array, weights: Any, length: int) -> Array:
    """Return the result of a transposed convolution that takes the state of a convolution with an offset."""
    run = in_use()
    large = np.zeros((1, 1, length, 1), np.float32)
    convolution = mpsref.Convolution(size, strides, offset=offset)
    transpose = mpsref.ConvolutionTranspose(size, strides)
    filters = np.array(weights, np.float32).reshape(1, *convolution.size, 1)
    forward = _problem(convolution, x, large)
    images = run.upload(large)
    states = _states(run, forward, weighted.source_of(run, forward, filters), images, x)
    problem = transpose.problems["forward"](transpose, x.shape, 1, (1, length))
    kernel = weighted.forward_kernel(run, problem, weighted.source_of(run, problem, filters))
    run.returns_images(kernel)
    results: Images = []
    with run.commands(results) as commands:
        encode = kernel.encodeBatchToCommandBuffer_sourceImages_convolutionGradientStates_
        results += encode(commands, run.upload(x), states)
    return run.download(results)


# --- normalization and upsampling -------------------------------------------------------------------------------------


def clamped_spatial(size: int, x: Array) -> Array:
    """Return a spatial normalization with edge mode Clamp."""
    run, spec = in_use(), mpsref.SpatialNormalization(size)
    kernel = windows.windowed(run, spec)
    kernel.setEdgeMode_(run.constant("MPSImageEdgeModeClamp"))
    return windows.forward_batch(run, kernel, x, x.shape)


def aligned_upsampling_gradient(scale: Any, g: Array, shape: Shape) -> Array:
    """Encode the gradient of bilinear upsampling after an aligned forward pass."""
    run, out = in_use(), np.zeros(shape, np.float32)
    spec = mpsref.UpsamplingBilinear(scale, True)
    windows.upsampling_gradient(run, spec.problems["gradient"](spec, shape), g, out=out)
    return out


def without_parameters(x: Array, epsilon: float) -> Array:
    """Return an instance normalization whose data source returns nil for gamma and beta."""
    return _instance(x, {"gamma": None, "beta": None, "epsilon": epsilon}, epsilon)


def with_epsilon(x: Array, of_source: float, epsilon: float) -> Array:
    """Return an instance normalization whose epsilon is set after its construction."""
    return _instance(x, {"epsilon": of_source}, epsilon)


def _instance(x: Array, changed: dict[str, Any], epsilon: float) -> Array:
    run = in_use()
    values = normalization.data_values(x.shape[3], epsilon, None, None) | changed
    source = run.sources.make("MPSCNNInstanceNormalizationDataSource", normalization.COMMON, values)
    kernel = run.new("MPSCNNInstanceNormalization", "initWithDevice_dataSource_", source)
    kernel.setEpsilon_(epsilon)
    return windows.forward_batch(run, kernel, x, x.shape)


def twice_into_states(g: Array, x: Array, epsilon: float) -> Array:
    """Return the gradient of beta after encodes of ``g`` and ``2 g`` of instance normalization into the same states."""
    run, spec = in_use(), mpsref.InstanceNormalization(epsilon)
    out = np.zeros_like(x), *np.zeros((2, len(x), x.shape[3]), np.float32)
    problem = spec.problems["gradient"](spec, x.shape, False)
    normalization.images_gradient(run, problem, g, x, out=out, then=2 * g)
    found: Array = out[2]
    return found


def _batch_kernel(run: Runtime, mean: float, variance: float, epsilon: float) -> Object:
    values = normalization.data_values(1, epsilon, None, None)
    values |= {"mean": np.full(1, mean, np.float32), "variance": np.full(1, variance, np.float32)}
    source = run.sources.make("MPSCNNBatchNormalizationDataSource", normalization.BATCH, values)
    return run.new("MPSCNNBatchNormalization", "initWithDevice_dataSource_", source)


def _batch_state(kernel: Object, images: Images, results: Images) -> Object:
    return kernel.resultStateForSourceImage_sourceStates_destinationImage_(images[0], None, results[0])


def statistics_in_calls(parts: list[Array], used: bool = False) -> Array:
    """Return the mean of a state after statistics of several calls; ``used``: after the first one it normalizes."""
    run = in_use()
    kernel = _batch_kernel(run, 0, 1, 1e-3)
    images, results = [run.upload(part) for part in parts], [run.images(part.shape) for part in parts]
    state = _batch_state(kernel, images[0], results[0])
    statistics = run.new("MPSCNNBatchNormalizationStatistics")
    for n, part in enumerate(images):
        with run.commands(state) as commands:
            statistics.encodeBatchToCommandBuffer_sourceImages_batchNormalizationState_(commands, part, state)
        if used and n == 0:
            with run.commands() as commands:
                encode = kernel.encodeToCommandBuffer_sourceImage_batchNormalizationState_destinationImage_
                encode(commands, part[0], state, results[0][0])
    return run.values(state.mean(), (1,))


def sums_after_other_gradients(spec: Any, g: Array, x: Array) -> Array:
    """Return the gradient of gamma after the statistics gradient of ``g`` and the gradient of ``3 g``."""
    run = in_use()
    images, gradients, other, results = run.upload(x), run.upload(g), run.upload(3 * g), run.images(x.shape)
    state = _batch_state(_batch_kernel(run, 3, 2.5, spec.epsilon), images, results)
    normalization.encode_sums(run, spec, state, gradients, images)
    normalization.encode_gradients(run, spec, state, other, images, results)
    return run.values(state.gradientForGamma(), (1,))


def batch_barrier() -> list[int]:
    """Return whether the statistics gradient has a batch barrier."""
    kernel = in_use().new("MPSCNNBatchNormalizationStatisticsGradient", "initWithDevice_fusedNeuronDescriptor_", None)
    return [int(kernel.appendBatchBarrier())]


# --- the loss of YOLO ------------------------------------------------------------------------------------------


def yolo_gradient(y: Array, t: Array, anchors: Any, channels: Sequence[int], **scales: float) -> Array:
    """Return channels of the gradient of a YOLO loss of squared errors for an image of one row."""
    run = in_use()
    squared = run.constant("MPSCNNLossTypeMeanSquaredError")
    name = "XYLossType_WHLossType_confidenceLossType_classesLossType_reductionType_anchorBoxes_numberOfAnchorBoxes_"
    make = getattr(run.mps.MPSCNNYOLOLossDescriptor, f"cnnLossDescriptorWith{name}")
    boxes = np.array(anchors, np.float32)
    reduction = run.constant("MPSCNNReductionTypeSum")
    descriptor = make(squared, squared, squared, squared, reduction, boxes.tobytes(), len(boxes))
    for scale, value in scales.items():
        getattr(descriptor, f"set{scale}_")(value)
    layout = run.constant("MPSDataLayoutHeightxWidthxFeatureChannels")
    describe = run.mps.MPSCNNLossDataDescriptor.cnnLossDataDescriptorWithData_layout_size_
    data = describe(np.ascontiguousarray(t, np.float32).tobytes(), layout, (t.shape[2], *t.shape[1::2]))
    labels = run.new("MPSCNNLossLabels", "initWithDevice_labelsDescriptor_", data)
    kernel = run.new("MPSCNNYOLOLoss", "initWithDevice_lossDescriptor_", descriptor)
    results = run.images(y.shape)
    with run.commands(results) as commands:
        encode = kernel.encodeBatchToCommandBuffer_sourceImages_labels_destinationImages_
        encode(commands, run.upload(y), [labels], results)
    found: Array = run.download(results)[0, 0][:, list(channels)]
    return found


# --- dropout ----------------------------------------------------------------------------------------------------------


def dropped(p: float, x: Array, seed: int = 1) -> tuple[Array, Array]:
    """Return the results of dropout and of its gradient, for the same array."""
    array = np.asarray(x, np.float32)
    return training.dropped(in_use(), mpsref.Dropout(p, seed=seed), array, array)


def kept_value(p: float, x: float) -> list[float]:
    """Return the value of an element that is kept."""
    y, _ = dropped(p, np.full((1, 16, 16, 4), x))
    return [float(y.max())]


def distribution(p: float) -> list[int]:
    """Return whether a share p is kept, within 5 standard deviations, whether two encodes draw different masks, and
    whether the first one is that of mpsref.
    """
    run, ones, spec = in_use(), np.ones((1, 64, 64, 4), np.float32), mpsref.Dropout(p, seed=1)
    kernel = training.dropout_kernel(run, spec)
    images, found = run.upload(ones), list[Array]()
    for _ in range(2):
        results = run.images(ones.shape)
        with run.commands(results) as commands:
            kernel.encodeBatchToCommandBuffer_sourceImages_destinationImages_(commands, images, results)
        found.append(run.download(results) > 0)
    near = abs(found[0].mean() - p) < 5 * np.sqrt(p * (1 - p) / ones.size)
    guessed = np.array_equal(found[0], spec.mask(ones.shape, backend="reference") > 0)
    return [int(near), int(not np.array_equal(found[0], found[1])), int(guessed)]


# --- kernels that the backend does not run ----------------------------------------------------------------------------


def unary(name: str, x: Array, shape: Shape, initializer: str = "initWithDevice_", *arguments: object) -> Array:
    """Return the result of a kernel with one source."""
    return windows.forward_batch(in_use(), in_use().new(name, initializer, *arguments), x, shape)


def resized(x: Array, width: int) -> Array:
    """Return one row, resized with bilinear interpolation."""
    name = "initWithDevice_resizeWidth_resizeHeight_alignCorners_"
    return unary("MPSNNResizeBilinear", x, (1, 1, width, 1), name, width, 1, False)


def compared(x: Array, y: Array, kind: str, threshold: float) -> Array:
    """Return a comparison of two images."""
    run = in_use()
    kernel = run.new("MPSNNCompare")
    kernel.setComparisonType_(run.constant(f"MPSNNComparisonType{kind}"))
    kernel.setThreshold_(threshold)
    return windows.binary_batch(run, kernel, run.upload(x), run.upload(y), x.shape)


def weighted_mean(x: Array, weights: Array) -> Array:
    """Return the mean over channels with an image of weights."""
    run = in_use()
    kernel = run.new("MPSNNReduceFeatureChannelsAndWeightsMean")
    return windows.binary_batch(run, kernel, run.upload(x), run.upload(weights), (*x.shape[:3], 1))


def reshaped(x: Array, width: int, height: int, channels: int) -> Array:
    """Return an image in another shape."""
    run = in_use()
    kernel = run.new("MPSNNReshape")
    run.returns_images(kernel)
    results: Images = []
    with run.commands(results) as commands:
        name = "encodeToCommandBuffer_sourceImage_reshapedWidth_reshapedHeight_reshapedFeatureChannels_"
        results.append(getattr(kernel, name)(commands, run.upload(x)[0], width, height, channels))
    return run.download(results)


def reloaded(x: Array, weights: Array, biases: Array) -> Array:
    """Return a convolution after a reload from a state with other weights and without biases."""
    run, spec = in_use(), mpsref.Convolution(1)
    problem = spec.problems["forward"](spec, x.shape, 1, x.shape[1:3], True)
    filters = np.ones((1, 1, 1, 1), np.float32)
    kernel = weighted.forward_kernel(run, problem, weighted.source_of(run, problem, filters, biases))
    make = run.mps.MPSCNNConvolutionWeightsAndBiasesState.alloc().initWithWeights_biases_
    state = make(run.buffer(weights), None)
    with run.commands() as commands:
        kernel.reloadWeightsAndBiasesWithCommandBuffer_state_(commands, state)
    return windows.forward_batch(run, kernel, x, x.shape)


def state_kernel_offset(spec: Any, g: Array, x: Array) -> list[int]:
    """Return the kernel offset in x that a state gives a pooling gradient."""
    run = in_use()
    kernel, forward = windows.pooling_kernel(run, spec, "Gradient"), windows.forward_pooling(run, spec)
    windows.gradient_batch(run, kernel, forward, g, run.upload(x), x.shape)
    return [int(kernel.kernelOffsetX())]


# --- calls of data sources, and weights -------------------------------------------------------------------------------

ONE = np.ones((1, 1, 1, 1), np.float32)


def _pointwise(spec: Any = None) -> Any:
    """Return the problem of a 1 x 1 convolution of one channel."""
    spec = spec or mpsref.Convolution(1)
    return spec.problems["forward"](spec, ONE.shape, 1, (1, 1))


def order_of_calls() -> list[int]:
    """Return the positions of the calls of a data source for load, descriptor, weights, biasTerms and purge."""
    run, problem = in_use(), _pointwise()
    source = weighted.source_of(run, problem, ONE, ONE.ravel())
    weighted.forward_kernel(run, problem, source)
    first = [source.calls.index(name) for name in ("load", "descriptor", "weights", "biasTerms", "purge")]
    return [sorted(first).index(call) for call in first]


def reloaded_between(before: float, after: float) -> list[float]:
    """Return two results of 1 x 1 convolutions in one command buffer, with a reload between them."""
    run, problem, images = in_use(), _pointwise(), in_use().upload(ONE)
    kernel = weighted.forward_kernel(run, problem, weighted.source_of(run, problem, ONE * before))
    state = run.mps.MPSCNNConvolutionWeightsAndBiasesState.alloc().initWithWeights_biases_(
        run.buffer(ONE * after), None
    )
    results = run.images((2, 1, 1, 1))
    with run.commands(results) as commands:
        encode = kernel.encodeBatchToCommandBuffer_sourceImages_destinationImages_
        encode(commands, images, results[:1])
        kernel.reloadWeightsAndBiasesWithCommandBuffer_state_(commands, state)
        encode(commands, images, results[1:])
    return [float(value) for value in run.download(results).ravel()]


def folded(weight: float, gamma: float) -> Array:
    """Return a weight that a convolution in float16 multiplies by the factor of a batch normalization."""
    run, problem = in_use(), _pointwise()
    source = weighted.source_of(run, problem, ONE * np.float32(weight))
    source.values["kernelWeightsDataType"] = run.constant("MPSDataTypeFloat16")
    name = "setBatchNormalizationParametersForInferenceWithMean_variance_gamma_beta_epsilon_"
    numbers = [array.array("f", [value]) for value in (0.0, 1.0, gamma, 0.0)]
    getattr(source.values["descriptor"], name)(*numbers, 0.0)
    return windows.forward_batch(run, weighted.forward_kernel(run, problem, source), ONE, ONE.shape)


def cropped(x: Array, origin: float, width: float, size: int) -> Array:
    """Return a box of one row, resized."""
    name = "initWithDevice:resizeWidth:resizeHeight:numberOfRegions:regions:"
    regions = {"arguments": {6: {"type_modifier": b"n", "c_array_length_in_arg": 5}}}  # 0 and 1 are self and _cmd
    in_use().objc.registerMetaDataForSelector(b"MPSNNCropAndResizeBilinear", name.encode(), regions)
    region = (origin, 0.0, 0.0), (width, 1.0, 1.0)
    arguments = size, 1, 1, [region]
    return unary("MPSNNCropAndResizeBilinear", x, (1, 1, size, 1), name.replace(":", "_"), *arguments)


# --- graphs -----------------------------------------------------------------------------------------------------------

Nodes: TypeAlias = Callable[..., Object]
"""A function ``(run, *inputs)`` that returns the image node of a result."""


def _graph(nodes: Nodes, count: int) -> Object:
    """Return a graph with ``count`` inputs, whose handles have their numbers as labels."""
    run = in_use()
    # "Handle" is not a protocol: a class that adopts MPSHandle has to implement NSSecureCoding too
    handles = [run.sources.make("Handle", {"label": b"@@:"}, {"label": str(n)}) for n in range(count)]
    result = nodes(run, *map(run.mps.MPSNNImageNode.nodeWithHandle_, handles))
    graph = run.new("MPSNNGraph", "initWithDevice_resultImage_resultImageIsNeeded_", result, True)
    graph.setFormat_(run.constant("MPSImageFeatureChannelFormatFloat32"))
    run.returns_images(graph)
    return graph


def _inputs(graph: Object) -> list[int]:
    return [int(handle.label()) for handle in graph.sourceImageHandles()]


def _of_graph(nodes: Nodes, *sources: Array) -> Images:
    """Return the result of a graph."""
    run, graph, results = in_use(), _graph(nodes, len(sources)), list[Object]()
    images = [run.upload(sources[number])[0] for number in _inputs(graph)]
    with run.commands(results) as commands:
        results.append(graph.encodeToCommandBuffer_sourceImages_(commands, images))
    return results


def _sum(run: Runtime, first: Object, second: Object) -> Object:
    return run.mps.MPSNNAdditionNode.nodeWithLeftSource_rightSource_(first, second).resultImage()


def _gradient_of(run: Runtime, result: Object) -> Object:
    """Return the gradient for the input of the nodes that lead to a result, whose gradient is 1."""
    start = run.mps.MPSNNInitialGradientNode.nodeWithSource_(result)
    (last,) = start.trainingGraphWithSourceGradient_nodeHandler_(None, None)
    return last.resultImage()


def order_of_inputs() -> list[int]:
    """Return the order of the inputs 0, 1 and 2 of the graph 2 + (1 + 0)."""
    return _inputs(_graph(lambda run, x0, x1, x2: _sum(run, x2, _sum(run, x1, x0)), 3))


def concatenated(*sources: Array) -> Array:
    """Return the concatenation of images."""

    def nodes(run: Runtime, *inputs: Object) -> Object:
        return run.mps.MPSNNConcatenationNode.nodeWithSources_(inputs).resultImage()

    return in_use().download(_of_graph(nodes, *sources))


def reduced_size(node: str, shape: Shape) -> list[int]:
    """Return height, width and channels of the result of a reduction."""
    (made,) = _of_graph(lambda run, x: getattr(run.mps, node).nodeWithSource_(x).resultImage(), np.ones(shape))
    return [int(made.height()), int(made.width()), int(made.featureChannels())]


def gradient_of_branches(slopes: Any) -> Array:
    """Return the gradient for -1 of three PReLU nodes whose results are added; ``slopes`` by channel and node."""

    def nodes(run: Runtime, x: Object) -> Object:
        made = run.mps.MPSCNNNeuronPReLUNode.nodeWithSource_aData_
        first, second, third = (made(x, column.tobytes()).resultImage() for column in np.array(slopes, np.float32).T)
        return _gradient_of(run, _sum(run, _sum(run, first, second), third))

    return in_use().download(_of_graph(nodes, -np.ones((1, 1, 1, len(slopes)))))


def updates_with_two_branches() -> list[int]:
    """Return the number of updates of a convolution whose result two nodes read."""
    source = weighted.source_of(in_use(), _pointwise(), ONE, ONE.ravel())

    def nodes(run: Runtime, x: Object) -> Object:
        y = run.mps.MPSCNNConvolutionNode.nodeWithSource_weights_(x, source).resultImage()
        made = run.mps.MPSCNNNeuronLinearNode.nodeWithSource_a_b_
        return _gradient_of(run, _sum(run, *(made(y, slope, 0.0).resultImage() for slope in (1.0, 2.0))))

    _of_graph(nodes, ONE)
    return [source.calls.count("updateWithCommandBuffer_gradientState_sourceState_")]


def default_kernel_size() -> list[int]:
    """Return the kernel size of a node for cross-channel normalization that is made without one."""
    mps = in_use().mps
    node = mps.MPSCNNCrossChannelNormalizationNode.nodeWithSource_(mps.MPSNNImageNode.nodeWithHandle_(None))
    return [int(node.kernelSizeInFeatureChannels())]
