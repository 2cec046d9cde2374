"""Losses through ``msl/loss.metal``."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.loss import LOSS_TYPES, Loss, LossForward, LossGradient, LossProblem
from mpsref_metal.fold import fold
from mpsref_metal.launch import WIDE, Launcher, divisor, short_sums, typedef, width_of
from mpsref_metal.softmax import lanes_of

FILES = "lanes", "loss"

IN_A_RUN, LANES = 1024, 32
"""Numbers of elements of a run, and of the threads of a SIMD group that share it."""

LARGE = 512
"""Minimum number of elements of an image whose packs are neighbouring elements. Small images share one program."""

COUNTS = "count", "size", "run"
CHOICES = "type", "wanted", "has_weights", "gradients"
NUMBERS = "a", "b", "epsilon", "delta", "factor"
SIZES = np.dtype(
    [
        *((name, "u4") for name in COUNTS),
        ("runs", "u4", (4,)),
        *((name, "u4") for name in CHOICES),
        *((name, "f4") for name in NUMBERS),
    ]
)
FINISH = np.dtype(
    [*((name, "u4") for name in ("images", "losses", "by_counts")), *((name, "f4") for name in ("offset", "factor"))]
)

ELEMENT, SLOPE, LABEL_SLOPE = range(3)
NONE, OF_ELEMENTS, OF_IMAGES, OF_ALL = range(4)


def forward(
    launch: Launcher, problem: LossForward, y: Array, t: Array, weights: Array | None = None, *, out: Array
) -> None:
    """Run ``values`` for the reduction "none", else ``sums``, ``fold`` and ``finish``."""
    if problem.spec.reduction == "none":
        _values(launch, problem, ELEMENT, None, y, t, weights, out)
        return
    loss, (n, *_, channels) = problem.spec, y.shape
    size = y.size // n
    run, lanes = _run(problem, channels)
    runs = -(-size // run)
    buffers, known = _arrays(problem, (), None, y, t, weights)
    buffers.append(_sizes(problem, (n * runs, size, run), runs, (ELEMENT, weights is not None, NONE), loss.weight))
    partial = launch.run(FILES, "sums", buffers, [((n, runs), np.float32)] * 2, known, n * runs * lanes)
    across, by_counts = loss.reduce_across_batch, weights is not None and loss.reduction == "sumbynonzeroweights"
    images = 1 if across else n
    sums = fold(launch, partial[0].reshape(images, -1, 1))
    numbers = fold(launch, partial[1].reshape(images, -1, 1)) if by_counts else sums
    offset = loss.weight * (n if across else 1) if loss.type == "cosinedistance" else 0  # an image has 1 - sum of y t
    number = 1 if by_counts or loss.reduction == "sum" else problem.divisors(None)[0]
    finish = np.array([(n, images, by_counts, offset, 1 / number if number else 0)], FINISH)
    launch.into(FILES, "finish", [sums, numbers, finish], out, known, n)


def gradient(launch: Launcher, problem: LossGradient, *inputs: Array, out: Array) -> None:
    """Run ``values``: dy."""
    _values(launch, problem, SLOPE, *problem.named_inputs(inputs), out)


def gradient_labels(launch: Launcher, problem: LossGradient, *inputs: Array, out: Array) -> None:
    """Run ``values``: dt."""
    _values(launch, problem, LABEL_SLOPE, *problem.named_inputs(inputs), out)


def _values(
    launch: Launcher,
    problem: LossProblem,
    wanted: int,
    g: Array | None,
    y: Array,
    t: Array,
    weights: Array | None,
    out: Array,
) -> None:
    n, *_, channels = y.shape
    loss = problem.spec
    a, _ = loss.smoothing
    gradients = NONE if g is None else OF_ELEMENTS if loss.reduction == "none" else OF_IMAGES
    if gradients == OF_IMAGES and loss.reduce_across_batch:
        gradients = OF_ALL
    run, lanes = _run(problem, channels)
    target = out if out.shape[3] == channels else launch.empty(y.shape)
    buffers, known = _arrays(problem, (target,), g, y, t, weights)
    size = y.size // n
    runs = -(-size // run)
    factor = loss.weight * (a if wanted == LABEL_SLOPE else 1)
    buffers.append(_sizes(problem, (n * runs, size, run), runs, (wanted, weights is not None, gradients), factor))
    launch.into(FILES, "values", buffers, target, known, n * runs * lanes)
    if target is not out:  # the slopes by labels that predictions do not have are 0
        out[..., :channels] = target
        out[..., channels:] = 0


def _run(problem: LossProblem, channels: int) -> tuple[int, int]:
    """Return the number of elements of a run, and of the threads that share it."""
    return (channels, lanes_of(channels)) if problem.function.over_channels else (IN_A_RUN, LANES)


def _arrays(
    problem: LossProblem, results: tuple[Array, ...], g: Array | None, y: Array, t: Array, weights: Array | None
) -> tuple[list[Array], tuple[str, ...]]:
    """Return the images, with a single zero of the type of y for an absent one, and the compile-time constants.

    ``results`` are the images that the function stores.
    """
    nothing, channels = np.zeros(1, y.dtype), y.shape[3]
    if t.shape[3] > channels:  # the others are not read
        t = np.ascontiguousarray(np.asarray(t)[..., :channels])
    arrays = {
        "Prediction": y,
        "Label": t,
        "Weight": nothing if weights is None else weights,
        "Gradient": nothing if g is None else g,
    }
    run, lanes = _run(problem, channels)
    size = y.size // y.shape[0]
    whole = size >= LARGE and size % WIDE == run % WIDE == 0
    packed = whole and width_of(WIDE, *arrays.values(), *results) == WIDE
    known = (
        *(typedef(name, array) for name, array in arrays.items()),
        f"constant constexpr uint LANES = {lanes};",
        f"constant bool PACKED = {str(packed).lower()};",
        f"constant bool OVER_CHANNELS = {str(problem.function.over_channels).lower()};",
        *short_sums(run / lanes),
    )
    return list(arrays.values()), known


def _sizes(
    problem: LossProblem, counts: tuple[int, ...], runs: int, choices: tuple[int, bool, int], factor: float
) -> Array:
    """Return the struct ``Loss``; ``choices`` are the result, whether there are weights, and the source gradients."""
    spec = problem.spec
    numbers = *spec.smoothing, spec.epsilon, spec.delta, factor
    with np.errstate(over="ignore"):
        return np.array([(*counts, divisor(runs), LOSS_TYPES.index(spec.type), *choices, *numbers)], SIZES)


IMPLEMENTATIONS = {
    (Loss, "forward"): forward,
    (Loss, "gradient"): gradient,
    (Loss, "gradient_labels"): gradient_labels,
}
