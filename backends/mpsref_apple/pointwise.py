"""Neurons, softmax and arithmetic."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpsref import Arithmetic, LogSoftMax, Neuron, SoftMax
from mpsref.arguments.arrays import Array
from mpsref_apple.runtime import Images, Object, Runtime, Table
from mpsref_apple.windows import binary_batch, encode_gradient, forward_batch, gradient_batch


def neuron_descriptor(run: Runtime, neuron: Neuron) -> Object:
    """Return the descriptor of a neuron."""
    kind = run.mps.MPSNNNeuronDescriptor
    if neuron.data is not None:
        memory = np.asarray(neuron.data, np.float32).tobytes()
        return kind.cnnNeuronPReLUDescriptorWithData_noCopy_(memory, False)
    a, b, c = (0.0 if value is None else float(value) for value in (neuron.a, neuron.b, neuron.c))
    number = run.constant_of("MPSCNNNeuronType", neuron.type)
    return kind.cnnNeuronDescriptorWithType_a_b_c_(number, a, b, c)


def _neuron(run: Runtime, spec: Neuron, suffix: str = "") -> Object:
    return run.new(f"MPSCNNNeuron{suffix}", "initWithDevice_neuronDescriptor_", neuron_descriptor(run, spec))


def neuron_forward(run: Runtime, problem: Any, x: Array, out: Array) -> None:
    """Encode a neuron."""
    out[...] = forward_batch(run, _neuron(run, problem.spec), x, out.shape)


def neuron_gradient(run: Runtime, problem: Any, g: Array, x: Array, out: Array) -> None:
    """Encode the gradient of a neuron."""
    kernel, forward = _neuron(run, problem.spec, "Gradient"), _neuron(run, problem.spec)
    out[...] = gradient_batch(run, kernel, forward, g, run.upload(x), out.shape)


SOFTMAX = {SoftMax: "MPSCNNSoftMax", LogSoftMax: "MPSCNNLogSoftMax"}


def softmax_forward(run: Runtime, problem: Any, x: Array, out: Array) -> None:
    """Encode softmax or its logarithm."""
    out[...] = forward_batch(run, run.new(SOFTMAX[type(problem.spec)]), x, out.shape)


def softmax_gradient(run: Runtime, problem: Any, g: Array, y: Array, out: Array) -> None:
    """Encode the gradient, whose secondary image is the forward result."""
    kernel = run.new(f"{SOFTMAX[type(problem.spec)]}Gradient")
    out[...] = binary_batch(run, kernel, run.upload(g), run.upload(y), out.shape)


# --- arithmetic -------------------------------------------------------------------------------------------------------

ARITHMETIC = {name: f"MPSCNN{name.title()}" for name in ("add", "subtract", "multiply", "divide")}
SIDES = ("primary", "secondary")


def _forward_arithmetic(run: Runtime, spec: Arithmetic) -> Object:
    kernel = run.new(ARITHMETIC[spec.operation])
    kernel.setPrimaryScale_(spec.primary_scale)
    kernel.setSecondaryScale_(spec.secondary_scale)
    kernel.setBias_(spec.bias)
    _set_bounds(kernel, spec)
    for side, operand in zip(SIDES, spec.operands, strict=True):
        (ty, tx, tc), (oy, ox, oc) = operand
        name = side.title()
        getattr(kernel, f"set{name}StrideInPixelsX_")(tx)
        getattr(kernel, f"set{name}StrideInPixelsY_")(ty)
        getattr(kernel, f"set{name}StrideInFeatureChannels_")(tc)
        getattr(kernel, f"set{name}Offset_")((ox, oy, 0))
        getattr(kernel, f"set{name}SourceFeatureChannelOffset_")(oc)
    return kernel


def _set_bounds(kernel: Object, spec: Arithmetic) -> None:
    if math.isfinite(spec.minimum_value):
        kernel.setMinimumValue_(spec.minimum_value)
    if math.isfinite(spec.maximum_value):
        kernel.setMaximumValue_(spec.maximum_value)


def arithmetic_forward(run: Runtime, problem: Any, x: Array, y: Array, out: Array) -> None:
    """Encode arithmetic on two images."""
    kernel = _forward_arithmetic(run, problem.spec)
    out[...] = binary_batch(run, kernel, run.upload(x), run.upload(y), out.shape)


def arithmetic_gradient(run: Runtime, problem: Any, g: Array, *operands: Array, out: Any) -> None:
    """Encode the gradient kernel of each operand, after the forward kernel, whose state may hold a mask."""
    spec: Arithmetic = problem.spec
    read = dict(zip(problem.reads, operands, strict=True))
    shapes = problem.source_shape, problem.secondary_shape
    sources = [run.upload(read[k]) if k in read else run.upload(np.zeros(shapes[k])) for k in (0, 1)]
    forward, results = _forward_arithmetic(run, spec), run.images(g.shape)
    make = forward.resultStateBatchForPrimaryImage_secondaryImage_sourceStates_destinationImage_
    states = make(*sources, None, results)
    with run.commands() as commands:
        encode = forward.encodeBatchToCommandBuffer_primaryImages_secondaryImages_destinationStates_destinationImages_
        encode(commands, *sources, states, results)
    for k, target in zip(problem.of, out if isinstance(out, tuple) else (out,), strict=True):
        target[...] = run.download(_of_operand(run, spec, k, run.upload(g), sources, states))


def _of_operand(run: Runtime, spec: Arithmetic, k: int, g: Images, sources: list[Images], states: Images) -> Images:
    kernel = run.new(f"{ARITHMETIC[spec.operation]}Gradient", "initWithDevice_isSecondarySourceFilter_", k == 1)
    p, q = spec.primary_scale, spec.secondary_scale
    if spec.operation == "multiply":
        kernel.setPrimaryScale_(p)
        kernel.setSecondaryScale_(q)
    else:
        kernel.setPrimaryScale_(p if k == 0 else -q if spec.operation == "subtract" else q)
    source = 1 - k if spec.operation == "multiply" else k
    ty, tx, tc = spec.operands[source].strides
    kernel.setSecondaryStrideInPixelsX_(tx)
    kernel.setSecondaryStrideInPixelsY_(ty)
    kernel.setSecondaryStrideInFeatureChannels_(tc)
    return encode_gradient(run, kernel, g, sources[source], states)


def _channel_offsets(problem: Any) -> str | None:
    for side, operand in zip(SIDES, problem.spec.operands, strict=True):
        if operand.offset[2] % 4:
            return (
                f"{side}_offset begins at channel {operand.offset[2]}; offsets of feature channels in MPS are "
                "multiples of 4"
            )
    return None


IMPLEMENTATIONS: Table = {
    (Neuron, "forward"): neuron_forward,
    (Neuron, "gradient"): neuron_gradient,
    **{(kind, "forward"): softmax_forward for kind in SOFTMAX},
    **{(kind, "gradient"): softmax_gradient for kind in SOFTMAX},
    (Arithmetic, "forward"): arithmetic_forward,
    (Arithmetic, "gradient"): arithmetic_gradient,
}

REFUSALS = {Arithmetic: _channel_offsets}
