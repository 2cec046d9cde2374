"""Batch, instance and group normalization."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpsref import BatchNormalization, GroupNormalization, InstanceNormalization
from mpsref.arguments.arrays import Array
from mpsref.errors import UnsupportedError
from mpsref_mps.pointwise import neuron_descriptor
from mpsref_mps.runtime import Images, Object, Runtime, Table
from mpsref_mps.windows import forward_batch

COMMON = {
    "numberOfFeatureChannels": b"Q@:",
    "gamma": b"^v@:",
    "beta": b"^v@:",
    "label": b"@@:",
    "epsilon": b"f@:",
    "load": b"Z@:",
    "purge": b"v@:",
    "copyWithZone_": b"@@:^{_NSZone=}",
}
BATCH = COMMON | {"mean": b"^v@:", "variance": b"^v@:"}
GROUP = COMMON | {"numberOfGroups": b"Q@:", "setNumberOfGroups_": b"v@:Q"}


def data_values(channels: int, epsilon: float, gamma: Array | None, beta: Array | None) -> dict[str, Any]:
    """Return what the methods of a data source return."""
    return {
        "numberOfFeatureChannels": channels,
        "gamma": np.ones(channels, np.float32) if gamma is None else gamma,
        "beta": np.zeros(channels, np.float32) if beta is None else beta,
        "label": "mpsref",
        "epsilon": float(epsilon),
        "load": True,
    }


# --- batch normalization ----------------------------------------------------------------------------------------------


def _kernel(run: Runtime, problem: Any, given: Any) -> Object:
    """Return the forward kernel, with the statistics of a call as those of its data source."""
    spec, channels = problem.spec, problem.channels
    values = data_values(channels, spec.epsilon, given.gamma, given.beta)
    values |= {
        "mean": np.zeros(channels, np.float32) if given.mean is None else given.mean,
        "variance": np.ones(channels, np.float32) if given.variance is None else given.variance,
    }
    source = run.sources.make("MPSCNNBatchNormalizationDataSource", BATCH, values)
    name = "initWithDevice_dataSource_fusedNeuronDescriptor_"
    kernel = run.new("MPSCNNBatchNormalization", name, source, _neuron(run, spec))
    kernel.setEpsilon_(float(spec.epsilon))
    return kernel


def _neuron(run: Runtime, spec: Any) -> Object:
    return None if spec.neuron is None else neuron_descriptor(run, spec.neuron)


def _state(run: Runtime, kernel: Object, images: Images, shape: tuple[int, ...]) -> Object:
    (result,) = run.images((1, *shape[1:]))
    return kernel.resultStateForSourceImage_sourceStates_destinationImage_(images[0], None, result)


def statistics(run: Runtime, problem: Any, *inputs: Array, out: tuple[Array, Array]) -> None:
    """Encode the statistics of a batch."""
    given = problem.named(inputs)
    images = run.upload(given.x)
    state = _state(run, _kernel(run, problem, given._replace(mean=None)), images, given.x.shape)
    kernel = run.new("MPSCNNBatchNormalizationStatistics")
    with run.commands(state) as commands:
        kernel.encodeBatchToCommandBuffer_sourceImages_batchNormalizationState_(commands, images, state)
    out[0][...] = run.values(state.mean(), out[0].shape)
    out[1][...] = run.values(state.variance(), out[1].shape) * np.float32(problem.pixels)


def forward(run: Runtime, problem: Any, *inputs: Array, out: Array) -> None:
    """Encode the normalization with the statistics of the data source."""
    given = problem.named(inputs)
    forward_batch(run, _kernel(run, problem, given), given.x, out)


def statistics_gradient(run: Runtime, problem: Any, *inputs: Array, out: tuple[Array, Array]) -> None:
    """Encode the gradients of gamma and beta, with the statistics of the data source."""
    given = problem.named(inputs)
    images = run.upload(given.x)
    state = _state(run, _kernel(run, problem, given), images, given.x.shape)
    _encode_sums(run, problem, state, run.upload(given.g), images)
    out[0][...] = run.values(state.gradientForBeta(), out[0].shape)
    out[1][...] = run.values(state.gradientForGamma(), out[1].shape)


def _encode_sums(run: Runtime, problem: Any, state: Object, gradients: Images, images: Images) -> None:
    name = "initWithDevice_fusedNeuronDescriptor_"
    kernel = run.new("MPSCNNBatchNormalizationStatisticsGradient", name, _neuron(run, problem.spec))
    with run.commands(state) as commands:
        encode = kernel.encodeBatchToCommandBuffer_sourceGradients_sourceImages_batchNormalizationState_
        encode(commands, gradients, images, state)


def gradient(run: Runtime, problem: Any, *inputs: Array, out: Array) -> None:
    """Encode the gradient for the source: with fixed statistics, or after statistics and sums of the same batch."""
    given = problem.named(inputs)
    images, gradients = run.upload(given.x), run.upload(given.g)
    state = _state(run, _kernel(run, problem, given), images, given.x.shape)
    if problem.count:
        _accumulate(run, problem, given, state, gradients, images)
    name = "initWithDevice_fusedNeuronDescriptor_"
    kernel = run.new("MPSCNNBatchNormalizationGradient", name, _neuron(run, problem.spec))
    results = run.images(out.shape)
    with run.commands(results) as commands:
        encode = (
            kernel.encodeBatchToCommandBuffer_sourceGradients_sourceImages_batchNormalizationState_destinationGradients_
        )
        encode(commands, gradients, images, state, results)
    out[...] = run.download(results)


def _accumulate(run: Runtime, problem: Any, given: Any, state: Object, gradients: Images, images: Images) -> None:
    """Encode statistics and their gradient; raise if they are not those of the call, which MPS cannot take."""
    kernel = run.new("MPSCNNBatchNormalizationStatistics")
    with run.commands(state) as commands:
        kernel.encodeBatchToCommandBuffer_sourceImages_batchNormalizationState_(commands, images, state)
    _encode_sums(run, problem, state, gradients, images)
    found = {"mean": state.mean(), "variance": state.variance()}
    found |= {"dbeta": state.gradientForBeta(), "dgamma": state.gradientForGamma()}
    for name, buffer in found.items():
        wanted = getattr(given, name)
        if problem.count != problem.pixels or not np.allclose(run.values(buffer, wanted.shape), wanted, 1e-3, 1e-4):
            raise UnsupportedError(
                f"{name} of the call is not that of its batch; a state of MPS takes no sums, its kernels compute them"
            )


def _earlier(problem: Any) -> str | None:
    if problem.method in ("statistics", "statistics_gradient") and problem.count:
        return "the call continues sums of earlier calls; a state of MPS takes no sums, its kernels compute them"
    return None


# --- instance and group normalization ---------------------------------------------------------------------------------


def _of_images(run: Runtime, problem: Any, gamma: Array | None, beta: Array | None) -> Object:
    spec, channels = problem.spec, problem.source_shape[3]
    values = data_values(channels, spec.epsilon, gamma, beta)
    kind, signatures = "Instance", COMMON
    if isinstance(spec, GroupNormalization):
        kind, signatures = "Group", GROUP
        values["numberOfGroups"] = spec.groups
    source = run.sources.make(f"MPSCNN{kind}NormalizationDataSource", signatures, values)
    kernel = run.new(f"MPSCNN{kind}Normalization", "initWithDevice_dataSource_", source)
    kernel.setEpsilon_(float(spec.epsilon))
    return kernel


def images_forward(run: Runtime, problem: Any, x: Array, *parameters: Array, out: Array) -> None:
    """Encode the normalization of each image by itself."""
    found = dict(zip((name for name in problem.arguments if name != "x"), parameters, strict=True))
    forward_batch(run, _of_images(run, problem, found.get("gamma"), found.get("beta")), x, out)


def images_gradient(run: Runtime, problem: Any, g: Array, x: Array, *gamma: Array, out: Any, encodes: int = 1) -> None:
    """Encode the gradient; the state of each image holds its gradients of gamma and beta."""
    forward = _of_images(run, problem, gamma[0] if gamma else None, None)
    kind = "Group" if isinstance(problem.spec, GroupNormalization) else "Instance"
    kernel = run.new(f"MPSCNN{kind}NormalizationGradient")
    run.returns_images(kernel)
    images, results = run.upload(x), run.images(x.shape)
    states = forward.resultStateBatchForSourceImage_sourceStates_destinationImage_(images, None, results)
    with run.commands() as commands:
        encode = forward.encodeBatchToCommandBuffer_sourceImages_destinationStates_destinationImages_
        encode(commands, images, states, results)
    gradients: Images = []
    with run.commands(gradients, states) as commands:
        for _ in range(encodes):
            encode = kernel.encodeBatchToCommandBuffer_sourceGradients_sourceImages_gradientStates_
            gradients[:] = encode(commands, run.upload(g), images, states)
    out[0][...] = run.download(gradients)
    channels = x.shape[3]
    out[1][...] = np.stack([run.values(state.gradientForGamma(), (channels,)) for state in states])
    out[2][...] = np.stack([run.values(state.gradientForBeta(), (channels,)) for state in states])


IMPLEMENTATIONS: Table = {
    (BatchNormalization, "statistics"): statistics,
    (BatchNormalization, "forward"): forward,
    (BatchNormalization, "statistics_gradient"): statistics_gradient,
    (BatchNormalization, "gradient"): gradient,
    **{(kind, "forward"): images_forward for kind in (InstanceNormalization, GroupNormalization)},
    **{(kind, "gradient"): images_gradient for kind in (InstanceNormalization, GroupNormalization)},
}

REFUSALS = {BatchNormalization: _earlier}
