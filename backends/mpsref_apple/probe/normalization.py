"""Choices about normalization."""

from __future__ import annotations

import numpy as np

from mpsref import (
    BatchNormalization,
    CrossChannelNormalization,
    GroupNormalization,
    InstanceNormalization,
    LocalContrastNormalization,
    SpatialNormalization,
)
from mpsref.arguments.arrays import Array
from mpsref_apple.probe.declare import Choice, ProbeProblem, image, operation, pixel, row

ONE = np.ones(1, np.float32)
ZERO = np.zeros(1, np.float32)
X, G = image([1, 2, 0], [0, 1, 3], [2, 0, 1]), image([1, 0, 1], [0, 2, 0], [1, 0, -1])
SPATIAL = SpatialNormalization(2, alpha=4.0, beta=0.5, delta=1.0)
CONTRAST = LocalContrastNormalization(2, alpha=1.0, beta=0.5, delta=1.0)
CHANNEL = CrossChannelNormalization(3, alpha=3.0, beta=0.5, delta=1.0)
CHANNELS, CHANNEL_G = pixel(1, 2, 3, 0, 1), pixel(1, 0, 1, 2, 1)
CORNER = image(*np.arange(1, 17, dtype=np.float32).reshape(4, 4).tolist())


def window_sums(values: Array, size: int, transposed: bool = False) -> Array:
    """Return the sums over windows of a plane, or over the windows that contain each pixel."""
    before, after = (size // 2, (size - 1) // 2)[:: -1 if transposed else 1]
    padded = np.pad(values, ((before, after), (before, after)))
    found: Array = np.lib.stride_tricks.sliding_window_view(padded, (size, size)).sum(axis=(2, 3))
    return found


def printed_spatial(spec: SpatialNormalization, x: Array, g: Array) -> Array:
    """Return the gradient that the header prints for spatial normalization."""
    size = spec.kernel_size[0]  # type: ignore[index]
    t = spec.delta + spec.alpha / size**2 * window_sums(x * x, size)
    return t**-spec.beta * (g - 2 * spec.alpha * spec.beta * x / t * window_sums(g * x, size, True))


def printed_contrast(spec: LocalContrastNormalization, x: Array, g: Array) -> Array:
    """Return the gradient that the header prints for local contrast normalization."""
    size = spec.kernel_size[0]  # type: ignore[index]
    n = size**2
    mean = window_sums(x, size) / n
    variance = window_sums(x * x, size) / n - mean**2
    t = spec.delta + spec.alpha * variance
    factor = 2 * spec.alpha * spec.beta / n * (x - spec.p0 * mean) / t
    inner = window_sums(g, size, True) * spec.p0 / n + window_sums(g * (x - 1), size, True) * factor
    return spec.ps * t**-spec.beta * (g - inner)  # type: ignore[no-any-return]


def printed_channel(spec: CrossChannelNormalization, x: Array, g: Array) -> Array:
    """Return the gradient that the header prints for cross-channel normalization."""
    n, channels = spec.kernel_size, len(x)

    def sums(values: Array, before: int, after: int) -> Array:
        return np.array([values[max(0, k - before) : min(channels, k + after + 1)].sum() for k in range(channels)])

    scale = spec.delta + spec.alpha / n * sums(x * x, n // 2, (n - 1) // 2)
    rest = sums(g * x * scale ** (-spec.beta - 1), (n - 1) // 2, n // 2)
    return g * scale**-spec.beta - 2 * spec.alpha * spec.beta * x * rest


def _printed(spec: object, x: Array, g: Array) -> Array:
    plane, gradient = (one.astype(np.float64).reshape(-1, x.shape[2]) for one in (x, g))
    if isinstance(spec, SpatialNormalization):
        return printed_spatial(spec, plane, gradient)
    if isinstance(spec, LocalContrastNormalization):
        return printed_contrast(spec, plane, gradient)
    assert isinstance(spec, CrossChannelNormalization)
    return printed_channel(spec, x.astype(np.float64).ravel(), g.astype(np.float64).ravel())


def _windowed_gradient(
    id: str, name: str, spec: object, x: Array, g: Array, text: str, lines: tuple[str, ...]
) -> Choice:
    kind = type(spec).__name__
    exact = spec.gradient(g.astype(np.float64), x.astype(np.float64))  # type: ignore[attr-defined]
    return Choice(
        id,
        f"The gradient of {name} normalization is the exact derivative.",
        f"The formula in the header is not the derivative of the documented result: {text}.",
        {"windowed_normalization": lines} if lines else {},
        {"derivative": "the exact derivative", "printed": "the formula in the header"},
        operation(
            f"MPSCNN{kind}Gradient",
            spec,  # type: ignore[arg-type]
            "gradient",
            {"g": g, "x": x},
            {"derivative": exact, "printed": _printed(spec, x, g)},
        ),
    )


BATCH_X = np.array([1, 2, 4, 5], np.float32).reshape(2, 1, 2, 1)
BATCH_G = np.array([1, 2, 3, 4], np.float32).reshape(2, 1, 2, 1)
FROZEN = BatchNormalization(1.5)
FAR = np.float32(54321.12)
R = np.float32(1 / np.sqrt(np.float32(1e-2)))
NEAR = np.float32(FAR + np.float32(0.3))
FOLDED = np.float32(R * NEAR) + np.float32(-FAR * R)
GROUPED = pixel(1, 3, 2, 6)


def _kinds(y: Array) -> list[float]:
    """Return whether elements are not 0, are NaN, and differ from each other."""
    return [float(y.any()), float(np.isnan(y).any()), float(np.ptp(y) > 0)]


def _grouped(order: tuple[int, ...]) -> Array:
    """Return groups of two channels, in an order, normalized with epsilon 1."""
    x = GROUPED.ravel().astype(np.float64)[list(order)].reshape(2, 2)
    y = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1)
    found = np.empty(4)
    found[list(order)] = y.ravel()
    return found


CHOICES = (
    _windowed_gradient(
        "spatial-gradient",
        "spatial",
        SPATIAL,
        X,
        G,
        "the divisor of the pixel is taken out of the sum, and 1/N is missing",
        ("the gradients are exact derivatives", "mpsref computes the derivatives"),
    ),
    _windowed_gradient("contrast-gradient", "local contrast", CONTRAST, X, G, "two factors are exchanged", ()),
    _windowed_gradient("channel-gradient", "cross-channel", CHANNEL, CHANNELS, CHANNEL_G, "1/N is missing", ()),
    Choice(
        "channel-divisor",
        "The divisor of cross-channel normalization is the kernel size, also where the window is cut.",
        "Documented, and measured on a Mac. A network uses it with a kernel larger than its number of channels.",
        {},
        {"size": "the kernel size", "cut": "the number of channels in the window"},
        operation(
            "MPSCNNCrossChannelNormalization",
            CrossChannelNormalization(3, alpha=3.0, beta=1.0, delta=1.0),
            "forward",
            {"x": pixel(1, 2)},
            {"size": [1 / 6, 1 / 3], "cut": [1 / 8.5, 2 / 8.5]},
        ),
        tag="obs",
    ),
    Choice(
        "windowed-edge-mode",
        "Spatial and local contrast normalization accept only edge mode Zero.",
        "Apple says nothing about other edge modes here; for the average Clamp means a smaller window.",
        {"windowed_normalization": "only edge mode `Zero` for windows of pixels"},
        {"zero": "pixels outside are 0 with every edge mode", "clamp": "with Clamp the nearest pixel is read"},
        ProbeProblem(
            "MPSCNNSpatialNormalization",
            "forward",
            {"x": row(1, 2, 3)},
            lambda machine: machine.apple.clamped_spatial(3, row(1, 2, 3)),
            {
                "zero": np.array([1, 2, 3]) / (1 + np.array([5, 14, 13]) / 9) ** 5,
                "clamp": np.array([1, 2, 3]) / (1 + np.array([6, 14, 22]) / 3) ** 5,
            },
            {"kernelWidth": 3, "kernelHeight": 3, "edgeMode": 1},
        ),
        ours="",
    ),
    Choice(
        "contrast-centred",
        "The variance of local contrast normalization is computed from centred values.",
        "It cannot be negative then.",
        {"windowed_normalization": "the variance is computed from centred values"},
        {
            "centred": "the mean of the squares of centred values",
            "moments": "the mean of squares less the squared mean",
        },
        operation(
            "MPSCNNLocalContrastNormalization",
            LocalContrastNormalization(2, alpha=3.0, beta=0.5, delta=1.0, offset=(1, 1)),
            "forward",
            {"x": image([2**20 + 1, 2**20 - 1], [2**20 + 1, 2**20 - 1])},  # in float32 their variance cancels
            {"centred": [-0.5], "moments": [-1]},
            output_size=(1, 1),
        ),
    ),
    Choice(
        "channel-default-size",
        "The default kernel size of cross-channel normalization is 5.",
        "It is the documented default of the property.",
        {"windowed_normalization": "default kernel size 5 for the channel kernel"},
        {"five": "5", "one": "1", "three": "3"},
        ProbeProblem(
            "MPSCNNCrossChannelNormalizationNode",
            "property",
            {},
            lambda machine: machine.apple.default_kernel_size(),
            {"five": [5], "one": [1], "three": [3]},
            writes="kernelSizeInFeatureChannels",
        ),
    ),
    Choice(
        "contrast-outside",
        "Mean and variance of local contrast normalization include the zeros outside.",
        "A measured corner of an image is the mean over the whole window.",
        {
            "windowed_normalization": (
                "mean and variance of local contrast include zeros outside",
                "pixels outside the image are 0",
            )
        },
        {"counted": "zeros outside are counted", "shrunk": "only pixels inside are counted"},
        operation(
            "MPSCNNLocalContrastNormalization",
            LocalContrastNormalization(3),
            "forward",
            {"x": CORNER},
            {"counted": [(1 - 14 / 9) * 32], "shrunk": [(1 - 14 / 4) * 32]},
            output_size=(1, 1),
        ),
        tag="obs",
    ),
    Choice(
        "windowed-even",
        "Even windows extend one pixel further to the top left.",
        "Measured on a Mac for spatial normalization.",
        {"windowed_normalization": "even spatial and local contrast windows extend"},
        {"top-left": "to the top left", "bottom-right": "to the bottom right"},
        operation(
            "MPSCNNSpatialNormalization",
            SpatialNormalization(2, alpha=4.0, beta=1.0, delta=1.0),
            "forward",
            {"x": row(1, 2, 3)},
            {
                "top-left": np.array([1, 2, 3]) / (1 + np.array([1, 5, 13])),
                "bottom-right": np.array([1, 2, 3]) / (1 + np.array([5, 13, 9])),
            },
        ),
        tag="obs",
    ),
    Choice(
        "batch-gamma",
        "gamma of nil is 1.",
        "It is the neutral number; the header allows NULL.",
        {
            "batch_normalization": "`gamma=None` is 1",
            "instance_and_group_normalization": (
                "scale; `None` is 1",
                "shift; `None` is 0",
                "`gamma=None` is 1, `beta=None` is 0",
            ),
        },
        {"one": "gamma is 1 and beta is 0", "zero": "the result is beta"},
        ProbeProblem(
            "MPSCNNInstanceNormalization",
            "forward",
            {"x": row(1, 3)},
            lambda machine: machine.apple.without_parameters(row(1, 3), 3.0),
            {"one": [-0.5, 0.5], "zero": [0, 0]},
            {"epsilon": 3, "gamma": None, "beta": None},
        ),
    ),
    Choice(
        "batch-weighting",
        "Statistics are weighted by pixels over calls with images of different size.",
        "They are then those of all pixels, however a batch is divided.",
        {"batch_normalization": "weighting by pixels"},
        {"pixels": "the mean of all pixels", "calls": "the mean of the means of the calls"},
        ProbeProblem(
            "MPSCNNBatchNormalizationStatistics",
            "forward",
            {"first": row(1, 3), "second": row(8)},
            lambda machine: machine.apple.statistics_in_calls([row(1, 3), row(8)]),
            {"pixels": [4], "calls": [5]},
            writes="mean",
            planted={"pixels": lambda values: values, "calls": lambda values: np.where(values == 2, values, 5)},
        ),
    ),
    Choice(
        "batch-restart",
        "Statistics that were used start a new batch at the next call.",
        "Apple documents reset, but not when it must be called; Turi Create never calls it.",
        {
            "batch_normalization_classes": (
                "the first statistics after a step start a new batch",
                "used statistics and sums are reset by the next call",
                "A chunk that is missing in the statistics gradient",
            )
        },
        {"restart": "the next call starts a new batch", "accumulate": "the next call adds until reset is called"},
        ProbeProblem(
            "MPSCNNBatchNormalizationStatistics",
            "forward",
            {"first": row(1, 3), "second": row(8, 8)},
            lambda machine: machine.apple.statistics_in_calls([row(1, 3), row(8, 8)], used=True),
            {"restart": [8], "accumulate": [5]},
            writes="mean",
            planted={
                "restart": lambda values: np.where(values == 2, values, 8),
                "accumulate": lambda values: np.where(values == 2, values, 5),
            },
        ),
    ),
    Choice(
        "batch-variance",
        "The variance of a batch is divided by the number of pixels.",
        "The paper that the header cites does. A data source that wants the other one multiplies by n / (n - 1).",
        {"batch_normalization_classes": "the formula of the running statistics"},
        {"n": "divided by n", "n-1": "divided by n - 1"},
        ProbeProblem(
            "MPSCNNBatchNormalizationStatistics",
            "forward",
            {"x": row(1, 2, 4, 5)},
            lambda machine: machine.call(BatchNormalization(), "statistics", row(1, 2, 4, 5)).variance,
            {"n": [2.5], "n-1": [10 / 3]},
            writes="variance",
        ),
        tag="obs",
    ),
    Choice(
        "batch-sums",
        "The statistics gradient produces the gradients for gamma and beta.",
        "They are the sums that the other gradient kernel needs. Apple names both kernels, and that the state has none before "
        "the other one ran.",
        {"batch_normalization": "`statistics_gradient` produces dgamma and dbeta"},
        {
            "statistics": "the statistics gradient produces them",
            "gradient": "the other kernel does, from the gradients that it gets",
        },
        ProbeProblem(
            "MPSCNNBatchNormalizationGradient",
            "gradient",
            {"g": BATCH_G, "x": BATCH_X, "mean": ONE * 3, "variance": ONE * 2.5},
            lambda machine: machine.apple.sums_after_other_gradients(FROZEN, BATCH_G, BATCH_X),
            {"statistics": [3.5], "gradient": [10.5]},
            {"epsilon": 1.5, "call": "statistics gradient of g, gradient of 3 g, then gradientForGamma"},
            "gradientForGamma",
        ),
    ),
    Choice(
        "batch-frozen",
        "Without statistics of a batch, mean and variance are constants in the gradient.",
        "It is the derivative; Apple does not describe training with fixed statistics.",
        {"batch_normalization": "| `sums=None` |"},
        {"constants": "gamma r g", "batch": "as if they were the statistics of the batch"},
        operation(
            "MPSCNNBatchNormalizationGradient",
            FROZEN,
            "gradient",
            {"g": BATCH_G, "x": BATCH_X, "mean": ONE * 3, "variance": ONE * np.float32(2.5), "gamma": ONE * 2},
            {"constants": [1, 2, 3, 4], "batch": [-0.625, -0.0625, 0.0625, 0.625]},
        ),
    ),
    Choice(
        "batch-evaluation",
        "The mean is subtracted first; the result is not folded into a x + b.",
        "a x + b loses the digits of a small deviation from a large mean.",
        {"batch_normalization": "the state between chunks, and the order of the forward evaluation"},
        {"centred": "(x - mean) r", "folded": "a x + b"},
        operation(
            "MPSCNNBatchNormalization",
            BatchNormalization(0.0),
            "forward",
            {"x": pixel(float(NEAR)), "mean": ONE * FAR, "variance": ONE * np.float32(1e-2)},
            {"centred": [(float(NEAR) - float(FAR)) / np.sqrt(float(np.float32(1e-2)))], "folded": [float(FOLDED)]},
            tolerance=1e-3,
        ),
    ),
    Choice(
        "batch-zero-variance",
        "epsilon 0 with variance 0 gives infinities and NaN.",
        "It is the result of IEEE 754; MPS raises no errors.",
        {"batch_normalization": "epsilon 0 and variance 0"},
        {"ieee": "NaN and infinity", "guarded": "the smallest normal number is added"},
        operation(
            "MPSCNNBatchNormalization",
            BatchNormalization(0.0),
            "forward",
            {"x": row(1, 2), "mean": ONE, "variance": ZERO},
            {"ieee": [np.nan, np.inf], "guarded": [0, 2.0**63]},
            tolerance=1e-3,
        ),
    ),
    Choice(
        "batch-epsilon",
        "The epsilon of a kernel can be set after its construction.",
        "Turi Create sets it, and a measurement shows that it counts.",
        {"batch_normalization_classes": "`epsilon` can be set later"},
        {"set": "the number that was set", "source": "the number of the data source"},
        [
            ProbeProblem(
                "MPSCNNInstanceNormalization",
                "forward",
                {"x": row(1, 3), "epsilon": [later], "source": [source]},
                lambda machine, later=later, source=source: machine.apple.with_epsilon(  # type: ignore[misc]
                    row(1, 3), source, later
                ),
                {name: np.array([-1, 1]) / np.sqrt(1 + e) for name, e in (("set", later), ("source", source))},
            )
            for later, source in ((3.0, 8.0), (8.0, 3.0))
        ],
        tag="obs",
    ),
    Choice(
        "batch-neuron-parameters",
        "The slopes of a PReLU in a batch normalization get no gradient.",
        "No object of MPS holds one.",
        {"batch_normalization": "no gradient for the parameters of the neuron"},
        tag="design",
    ),
    Choice(
        "batch-barrier",
        "The statistics gradient has a batch barrier, as the statistics have.",
        "Its sums need the whole batch.",
        {"batch_normalization_classes": "`append_batch_barrier` of the statistics"},
        {"yes": "YES", "no": "NO"},
        ProbeProblem(
            "MPSCNNBatchNormalizationStatisticsGradient",
            "property",
            {},
            lambda machine: machine.apple.batch_barrier(),
            {"yes": [1], "no": [0]},
            writes="appendBatchBarrier",
        ),
    ),
    Choice(
        "batch-errors",
        "A state of another kernel, another neuron, another number of channels or of pixels raises.",
        "The result would be wrong without a message.",
        {"batch_normalization_classes": "a state of another kernel object"},
        tag="design",
    ),
    Choice(
        "batch-no-images",
        "A call without images has no effect.",
        "It is the neutral meaning. MPS does not describe it, and may end the process.",
        {"batch_normalization_classes": "a call without images has no effect"},
        tag="design",
    ),
    Choice(
        "normalization-whole-images",
        "Offset, clip rectangle and channel ranges of these kernels have their defaults.",
        "Statistics over all pixels with a result on a part of them have no documented gradient.",
        {
            "batch_normalization_classes": "offset, clip rectangle and channel ranges must have their defaults",
            "instance_and_group_normalization": "offset, clip rectangle and channel ranges other than the defaults raise",
        },
        tag="design",
    ),
    Choice(
        "batch-early-reads",
        "The host may read a state before the first kernel writes it.",
        "It holds its initial values then.",
        {"batch_normalization_classes": "before the first kernel writes a state"},
        tag="design",
    ),
    Choice(
        "instance-variance",
        "The variance is divided by the number of pixels.",
        "All three normalizations share one formula.",
        {"instance_and_group_normalization": "the variance is divided by M, not by M - 1"},
        {"M": "divided by M", "M-1": "divided by M - 1"},
        operation(
            "MPSCNNInstanceNormalization",
            InstanceNormalization(2.0),
            "forward",
            {"x": row(1, 3)},
            {"M": np.array([-1, 1]) / np.sqrt(3), "M-1": [-0.5, 0.5]},
        ),
    ),
    Choice(
        "normalization-constant",
        "A channel whose pixels are all equal is 0 after normalization, without any error.",
        "Values are taken relative to the first one before anything is averaged. A plain sum has rounding errors, which a "
        "small epsilon makes large.",
        {},
        {"exact": "0", "rounded": "rounding errors"},
        ProbeProblem(
            "MPSCNNInstanceNormalization",
            "forward",
            {"x": np.full((1, 1, 1000, 1), 0.1, np.float32)},
            lambda machine: _kinds(
                machine.call(InstanceNormalization(), "forward", np.full((1, 1, 1000, 1), 0.1, np.float32))
            ),
            {"exact": [0, 0, 0], "rounded": [1, 0, 0]},
            {"epsilon": "2**-126", "result": "whether elements are not 0, are NaN, differ"},
            planted={"exact": lambda values: values, "rounded": lambda values: values + 1},
        ),
    ),
    Choice(
        "group-order",
        "Groups are contiguous blocks of channels.",
        "It is the definition of the paper and of every framework.",
        {
            "instance_and_group_normalization": (
                "groups are contiguous blocks of channels",
                "contiguous blocks of C / groups channels",
            )
        },
        {"blocks": "contiguous blocks", "interleaved": "every G-th channel"},
        operation(
            "MPSCNNGroupNormalization",
            GroupNormalization(2, 1.0),
            "forward",
            {"x": GROUPED},
            {"blocks": _grouped((0, 1, 2, 3)), "interleaved": _grouped((0, 2, 1, 3))},
        ),
    ),
    Choice(
        "instance-overwrites",
        "A gradient overwrites the gradients of gamma and beta in its state.",
        "Headers leave the sum over images to the callback.",
        {"instance_and_group_normalization": "a gradient overwrites the values in the state"},
        {"overwrites": "a second encode overwrites", "adds": "a second encode adds"},
        ProbeProblem(
            "MPSCNNInstanceNormalizationGradient",
            "gradient",
            {"g": row(1, 2), "x": row(1, 3)},
            lambda machine: machine.apple.twice_into_states(row(1, 2), row(1, 3), 3.0),
            {"overwrites": [6], "adds": [9]},
            {"encodes": "of g and 2 g", "epsilon": 3},
            "gradientForBeta",
        ),
    ),
    Choice(
        "instance-state",
        "One state object holds the gradients of all images, a row for each.",
        "An array is a batch in mpsref.",
        {"instance_and_group_normalization": "one state object for the batch"},
        tag="design",
    ),
)
