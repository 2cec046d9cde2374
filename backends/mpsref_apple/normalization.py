"""Batch, instance and group normalization."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpsref import BatchNormalization, GroupNormalization, InstanceNormalization
from mpsref.arguments.arrays import Array
from mpsref.errors import UnsupportedError
from mpsref_apple.pointwise import neuron_descriptor
from mpsref_apple.runtime import Images, Object, Runtime, Table
from mpsref_apple.windows import encode_gradient, forward_batch

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


ONLY_KERNELS = (
    "MPSCNNBatchNormalizationState cannot initialize the size of its own underlying resources "
    "(MPSCNNBatchNormalization.h): kernels write its numbers, from images"
)
WIDEST = 16384
"""The maximum width of a Metal texture."""


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


def _encode_statistics(run: Runtime, state: Object, images: Images) -> None:
    kernel = run.new("MPSCNNBatchNormalizationStatistics")
    with run.commands(state) as commands:
        kernel.encodeBatchToCommandBuffer_sourceImages_batchNormalizationState_(commands, images, state)


def encode_sums(run: Runtime, spec: Any, state: Object, gradients: Images, images: Images) -> None:
    """Encode the statistics gradient into a state."""
    name = "initWithDevice_fusedNeuronDescriptor_"
    kernel = run.new("MPSCNNBatchNormalizationStatisticsGradient", name, _neuron(run, spec))
    with run.commands(state) as commands:
        encode = kernel.encodeBatchToCommandBuffer_sourceGradients_sourceImages_batchNormalizationState_
        encode(commands, gradients, images, state)


# Only kernels write a state. Images with the statistics of a call are encoded to put them into it.


def pixels_with(count: int, mean: Array, variance: Array, tolerance: float = 2.0**-21) -> Array:
    """Return an image (1, 1, count, C) with a mean and a variance, made of pairs of pixels around the mean.

    Some pairs are rounded up and the others down to float32, so that the variance is near. Raise if the deviation of
    the pixels is not that of the variance within ``tolerance``.
    """
    mean, variance, pairs = mean.astype(np.float64), variance.astype(np.float64), count // 2
    exact = mean + np.sqrt(variance * (count / max(2 * pairs, 1)))
    nearest = exact.astype(np.float32)
    below = np.where(nearest > exact, np.nextafter(nearest, np.float32(-np.inf)), nearest).astype(np.float64)
    above = np.where(nearest < exact, np.nextafter(nearest, np.float32(np.inf)), nearest).astype(np.float64)
    low, high = (below - mean) ** 2, (above - mean) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):  # equal where the number is exact
        rounded_up = np.arange(pairs)[:, None] < np.rint((variance * count / 2 - pairs * low) / (high - low))
    first = np.where(rounded_up, above, below)
    rows = np.stack([first, 2 * mean - first], axis=1).reshape(-1, len(mean))
    pixels = np.concatenate([rows, mean[None][: count % 2]]).astype(np.float32)
    made, deviation = pixels.astype(np.float64), np.sqrt(variance)
    shifted = abs(made.mean(axis=0) - mean) > tolerance / 2 * deviation
    if shifted.any() or not np.allclose(np.sqrt(((made - mean) ** 2).mean(axis=0)), deviation, tolerance, 0):
        raise UnsupportedError(f"no {count} float32 numbers have the mean and the variance of the call; {ONLY_KERNELS}")
    return pixels[None, None]


def gradients_with(x: Array, given: Any, epsilon: float) -> Array:
    """Return gradients for ``x`` whose sums are dbeta and dgamma; those of the first two pixels are not 0."""
    normalized = (np.float64(x[0, 0]) - given.mean) / np.sqrt(np.float64(given.variance) + epsilon)
    last = min(1, len(normalized) - 1)
    apart = normalized[last] - normalized[0]
    rest = given.dgamma - normalized[0] * given.dbeta
    if rest[apart == 0].any():
        raise UnsupportedError(f"dgamma of pixels that are all equal is 0, in the call it is not; {ONLY_KERNELS}")
    of_last = np.divide(rest, apart, where=apart != 0, out=np.zeros(len(rest)))
    g = np.zeros(x.shape)
    g[0, 0, 0] = given.dbeta - of_last
    g[0, 0, last] += of_last
    return g.astype(np.float32)


def _encode_earlier_sums(run: Runtime, problem: Any, given: Any, state: Object, pixels: Array) -> None:
    gradients = gradients_with(pixels, given, problem.spec.epsilon)
    encode_sums(run, problem.spec, state, run.upload(gradients), run.upload(pixels))


def encode_gradients(
    run: Runtime, spec: Any, state: Object, gradients: Images, images: Images, results: Images
) -> None:
    """Encode the gradient for the source; before it ran, the state has no gradients of gamma and beta."""
    name = "initWithDevice_fusedNeuronDescriptor_"
    kernel = run.new("MPSCNNBatchNormalizationGradient", name, _neuron(run, spec))
    with run.commands(results, state) as commands:
        encode = (
            kernel.encodeBatchToCommandBuffer_sourceGradients_sourceImages_batchNormalizationState_destinationGradients_
        )
        encode(commands, gradients, images, state, results)


def _check_own_sums(run: Runtime, problem: Any, given: Any, state: Object) -> None:
    """Raise if the statistics and sums in a state are not those of the call."""
    found = {"mean": state.mean(), "variance": state.variance()}
    found |= {"dbeta": state.gradientForBeta(), "dgamma": state.gradientForGamma()}
    for name, buffer in found.items():
        wanted = getattr(given, name)
        if problem.count != problem.pixels or not np.allclose(run.values(buffer, wanted.shape), wanted, 1e-3, 1e-4):
            raise UnsupportedError(f"{name} of a call with a neuron is not that of its batch; {ONLY_KERNELS}")


def statistics(run: Runtime, problem: Any, *inputs: Array, out: tuple[Array, Array]) -> None:
    """Encode the statistics of a batch, after those of an image that has the statistics of earlier calls."""
    given = problem.named(inputs)
    images = run.upload(given.x)
    state = _state(run, _kernel(run, problem, given._replace(mean=None)), images, given.x.shape)
    if problem.count:  # the error bound allows no error if x is the mean of the earlier pixels
        earlier = pixels_with(problem.count, given.mean, given.m2 / np.float32(problem.count), 2.0**-26)
        _encode_statistics(run, state, run.upload(earlier))
    _encode_statistics(run, state, images)
    out[0][...] = run.values(state.mean(), out[0].shape)
    out[1][...] = run.values(state.variance(), out[1].shape) * np.float32(problem.count + problem.pixels)


def forward(run: Runtime, problem: Any, *inputs: Array, out: Array) -> None:
    """Encode the normalization with the statistics of the data source."""
    given = problem.named(inputs)
    out[...] = forward_batch(run, _kernel(run, problem, given), given.x, out.shape)


def statistics_gradient(run: Runtime, problem: Any, *inputs: Array, out: tuple[Array, Array]) -> None:
    """Encode the gradients of gamma and beta, with the statistics of the data source.

    The state gives them after the gradient for the source, which is encoded too.
    """
    given = problem.named(inputs)
    images = run.upload(given.x)
    state = _state(run, _kernel(run, problem, given), images, given.x.shape)
    if problem.count:  # from the pixels of the call
        earlier = pixels_with(2, given.mean, given.variance + np.float32(problem.spec.epsilon), 2.0**-12)
        _encode_earlier_sums(run, problem, given, state, earlier)
    gradients = run.upload(given.g)
    encode_sums(run, problem.spec, state, gradients, images)
    encode_gradients(run, problem.spec, state, gradients, images, run.images(given.x.shape))
    out[0][...] = run.values(state.gradientForBeta(), out[0].shape)
    out[1][...] = run.values(state.gradientForGamma(), out[1].shape)


def gradient(run: Runtime, problem: Any, *inputs: Array, out: Array) -> None:
    """Encode the gradient for the source: with fixed statistics, or after images that have the statistics and sums."""
    given = problem.named(inputs)
    images, gradients = run.upload(given.x), run.upload(given.g)
    state = _state(run, _kernel(run, problem, given), images, given.x.shape)
    if problem.count and problem.spec.neuron is None:
        pixels = pixels_with(problem.count, given.mean, given.variance)
        _encode_statistics(run, state, run.upload(pixels))
        _encode_earlier_sums(run, problem, given, state, pixels)
    elif problem.count:
        _encode_statistics(run, state, images)
        encode_sums(run, problem.spec, state, gradients, images)
    results = run.images(out.shape)
    encode_gradients(run, problem.spec, state, gradients, images, results)
    if problem.count and problem.spec.neuron is not None:
        _check_own_sums(run, problem, given, state)
    out[...] = run.download(results)


def _earlier(problem: Any) -> str | None:
    count = getattr(problem, "count", 0)
    if count > WIDEST:
        return f"the sums are over {count} pixels, and a texture of Metal is at most {WIDEST} wide; {ONLY_KERNELS}"
    if count and problem.method == "statistics_gradient" and problem.spec.neuron is not None:
        return f"sums of earlier calls with a neuron; {ONLY_KERNELS}"
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
    kernel = _of_images(run, problem, found.get("gamma"), found.get("beta"))
    out[...] = forward_batch(run, kernel, x, out.shape)


def images_gradient(
    run: Runtime, problem: Any, g: Array, x: Array, *gamma: Array, out: Any, then: Array | None = None
) -> None:
    """Encode the gradient; the state of each image holds its gradients of gamma and beta.

    With ``then`` it is encoded once more, with this source gradient and the same states.
    """
    forward = _of_images(run, problem, gamma[0] if gamma else None, None)
    kind = "Group" if isinstance(problem.spec, GroupNormalization) else "Instance"
    kernel = run.new(f"MPSCNN{kind}NormalizationGradient")
    images, results = run.upload(x), run.images(x.shape)
    states = forward.resultStateBatchForSourceImage_sourceStates_destinationImage_(images, None, results)
    with run.commands() as commands:
        encode = forward.encodeBatchToCommandBuffer_sourceImages_destinationStates_destinationImages_
        encode(commands, images, states, results)
    more = None if then is None else run.upload(then)
    out[0][...] = run.download(encode_gradient(run, kernel, run.upload(g), images, states, states, more))
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
