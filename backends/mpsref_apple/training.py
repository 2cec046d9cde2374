"""Dropout, losses and optimizers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpsref import Adam, Dropout, Loss, RMSProp, StochasticGradientDescent
from mpsref.arguments.arrays import Array
from mpsref.errors import UnsupportedError
from mpsref_apple.runtime import Object, Runtime, Table
from mpsref_apple.windows import encode_gradient

# --- dropout ----------------------------------------------------------------------------------------------------------


def dropout_kernel(run: Runtime, spec: Dropout, suffix: str = "") -> Object:
    """Return the kernel of a spec."""
    y, x, channel = spec.mask_strides
    name = "initWithDevice_keepProbability_seed_maskStrideInPixels_"
    return run.new(f"MPSCNNDropout{suffix}", name, float(spec.keep_probability), spec.seed, (x, y, channel))


def dropped(run: Runtime, spec: Dropout, x: Array, g: Array) -> tuple[Array, Array]:
    """Return the results of a dropout kernel and of its gradient kernel, with one mask that MPS draws."""
    forward, backward = dropout_kernel(run, spec), dropout_kernel(run, spec, "Gradient")
    images, results = run.upload(x), run.images(x.shape)
    state = forward.resultStateBatchForSourceImage_sourceStates_destinationImage_(images, None, results)
    states = list(state) if isinstance(state, Sequence) else [state] * len(images)  # the header declares one
    with run.commands(results) as commands:
        encode = forward.encodeBatchToCommandBuffer_sourceImages_destinationStates_destinationImages_
        encode(commands, images, states, results)
    return run.download(results), run.download(encode_gradient(run, backward, run.upload(g), images, states))


def drawn_inside(run: Runtime, problem: Any, *inputs: Array, out: Array) -> None:
    """Raise: a mask cannot be given."""
    raise UnsupportedError(
        "MPSCNNDropout draws its mask: it is stored internally, and accessible for debugging purposes via an accessor "
        "(MPSCNNDropout.h), which only reads it; `mpsref probe` compares the distribution of its zeros"
    )


# --- losses -----------------------------------------------------------------------------------------------------------

OPERANDS = "sourceImages_labels_weights_sourceStates"


def loss_descriptor(run: Runtime, spec: Loss) -> Object:
    """Return the descriptor of a loss."""
    kind = run.constant_of("MPSCNNLossType", spec.type)
    reduction = run.constant_of("MPSCNNReductionType", spec.reduction)
    descriptor = run.mps.MPSCNNLossDescriptor.cnnLossDescriptorWithType_reductionType_(kind, reduction)
    descriptor.setReduceAcrossBatch_(bool(spec.reduce_across_batch))
    descriptor.setWeight_(float(spec.weight))
    descriptor.setLabelSmoothing_(float(spec.label_smoothing))
    descriptor.setNumberOfClasses_(spec.number_of_classes)
    descriptor.setEpsilon_(float(spec.epsilon))
    descriptor.setDelta_(float(spec.delta))
    return descriptor


def loss_forward(run: Runtime, problem: Any, y: Array, t: Array, *weights: Array, out: Array) -> None:
    """Encode the loss image."""
    kernel = run.new("MPSNNForwardLoss", "initWithDevice_lossDescriptor_", loss_descriptor(run, problem.spec))
    images, results = [run.upload(one) for one in (y, t, *weights)], run.images(out.shape)
    with run.commands(results) as commands:
        encode = kernel.encodeBatchToCommandBuffer_sourceImages_labels_weights_destinationStates_destinationImages_
        encode(commands, *(images if weights else [*images, None]), None, results)
    out[...] = run.download(results)


def _loss_gradient(run: Runtime, problem: Any, inputs: tuple[Array, ...], of_labels: bool, out: Array) -> None:
    g, y, t, weights = problem.named_inputs(inputs)
    kernel = run.new("MPSNNLossGradient", "initWithDevice_lossDescriptor_", loss_descriptor(run, problem.spec))
    kernel.setComputeLabelGradients_(of_labels)
    ones = np.ones(problem.loss_shape, np.float32)
    images = [run.upload(one) for one in (ones if g is None else g, y, t)]
    results = run.images(out.shape)
    with run.commands(results) as commands:
        encode = getattr(kernel, f"encodeBatchToCommandBuffer_sourceGradients_{OPERANDS}_destinationGradients_")
        encode(commands, *images, None if weights is None else run.upload(weights), None, results)
    out[...] = run.download(results)


def loss_gradient(run: Runtime, problem: Any, *inputs: Array, out: Array) -> None:
    """Encode the gradient of a loss for the predictions."""
    _loss_gradient(run, problem, inputs, False, out)


def loss_gradient_labels(run: Runtime, problem: Any, *inputs: Array, out: Array) -> None:
    """Encode the gradient of a loss for the labels."""
    _loss_gradient(run, problem, inputs, True, out)


# --- optimizers -------------------------------------------------------------------------------------------------------


def _optimizer(run: Runtime, spec: Any, kind: str, initializer: str, *arguments: object) -> Object:
    largest = float(np.finfo(np.float32).max)
    low, high = (
        min(max(float(bound), -largest), largest) for bound in (spec.gradient_clip_min, spec.gradient_clip_max)
    )
    name = (
        "optimizerDescriptorWithLearningRate_gradientRescale_applyGradientClipping_gradientClipMax_gradientClipMin_"
        "regularizationType_regularizationScale_"
    )
    descriptor = getattr(run.mps.MPSNNOptimizerDescriptor, name)(
        float(spec.learning_rate),
        float(spec.gradient_rescale),
        bool(spec.apply_gradient_clipping),
        high,
        low,
        run.constant_of("MPSNNRegularizationType", spec.regularization_type),
        float(spec.regularization_scale),
    )
    return run.new(f"MPSNNOptimizer{kind}", f"initWithDevice_{initializer}optimizerDescriptor_", *arguments, descriptor)


def vector(run: Runtime, values: Array) -> Object:
    """Return a vector with float32 values."""
    flat = values.reshape(-1)
    kind = run.constant("MPSDataTypeFloat32")
    descriptor = run.mps.MPSVectorDescriptor.vectorDescriptorWithLength_dataType_(flat.size, kind)
    return run.mps.MPSVector.alloc().initWithBuffer_descriptor_(run.buffer(flat), descriptor)


def encode_step(run: Runtime, kernel: Object, name: str, inputs: list[Array | None], out: Any) -> None:
    """Encode a step on vectors; moments are updated in place."""
    vectors = [None if one is None else vector(run, one) for one in inputs]
    result = vector(run, np.zeros_like(inputs[1]))
    read = [result, *(one for one in vectors[2:] if one is not None)]
    with run.commands(read) as commands:
        getattr(kernel, f"encodeToCommandBuffer_{name}_resultValuesVector_")(commands, *vectors, result)
    for target, one in zip(out if isinstance(out, tuple) else (out,), read, strict=True):
        target[...] = run.values(one.data(), target.shape)


def sgd(run: Runtime, problem: Any, gradient: Array, value: Array, *m: Array, out: Any) -> None:
    """Encode a step of stochastic gradient descent."""
    spec, name = problem.spec, "momentumScale_useNesterovMomentum_"
    arguments = float(spec.momentum_scale), bool(spec.use_nesterov_momentum)
    kernel = _optimizer(run, spec, "StochasticGradientDescent", name, *arguments)
    inputs = [gradient, value, m[0] if m else None]
    encode_step(run, kernel, "inputGradientVector_inputValuesVector_inputMomentumVector", inputs, out)


def rmsprop(run: Runtime, problem: Any, gradient: Array, value: Array, s: Array, out: Any) -> None:
    """Encode a step of RMSProp."""
    spec = problem.spec
    kernel = _optimizer(run, spec, "RMSProp", "decay_epsilon_", float(spec.decay), float(spec.epsilon))
    name = "inputGradientVector_inputValuesVector_inputSumOfSquaresVector"
    encode_step(run, kernel, name, [gradient, value, s], out)


def adam(run: Runtime, problem: Any, gradient: Array, value: Array, *moments: Array, out: Any) -> None:
    """Encode a step of Adam; the kernel first adds 1 to its time step."""
    spec = problem.spec
    arguments = float(spec.beta1), float(spec.beta2), float(spec.epsilon), problem.time_step - 1
    kernel = _optimizer(run, spec, "Adam", "beta1_beta2_epsilon_timeStep_", *arguments)
    name = "inputGradientVector_inputValuesVector_inputMomentumVector_inputVelocityVector"
    if len(moments) > 2:
        name += "_maximumVelocityVector"
    encode_step(run, kernel, name, [gradient, value, *moments], out)


IMPLEMENTATIONS: Table = {
    **{(Dropout, name): drawn_inside for name in ("mask", "forward", "gradient")},
    (Loss, "forward"): loss_forward,
    (Loss, "gradient"): loss_gradient,
    (Loss, "gradient_labels"): loss_gradient_labels,
    (StochasticGradientDescent, "step"): sgd,
    (RMSProp, "step"): rmsprop,
    (Adam, "step"): adam,
}
