"""Losses through ``msl/loss.metal``; the sums of chunks of an image are added here in float64."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.loss import LOSS_TYPES, Loss, LossForward, LossGradient, LossProblem
from mpsref_metal.launch import Launcher, typedef
from mpsref_metal.softmax import lanes_of

FILES = "lanes", "loss"

IN_A_RUN, LANES = 1024, 32
"""Number of elements of a chunk, and of the threads of a SIMD group that share it."""

COUNTS = "count", "channels", "label_channels", "result_channels", "size", "run", "runs"
CHOICES = "loss_type", "wanted", "has_weights", "has_gradients"
NUMBERS = "a", "b", "epsilon", "delta"
SIZES = np.dtype([*((name, "u4") for name in COUNTS + CHOICES), *((name, "f4") for name in NUMBERS)])

ELEMENT, SLOPE, LABEL_SLOPE = range(3)


def forward(
    launch: Launcher, problem: LossForward, y: Array, t: Array, weights: Array | None = None, *, out: Array
) -> None:
    """Run ``values`` for the reduction "none", else ``sums``."""
    if problem.spec.reduction == "none":
        _values(launch, problem, ELEMENT, None, y, t, weights, out)
        return
    n, *_, channels = y.shape
    size = y.size // n
    run, lanes = _run(problem, channels)
    runs = -(-size // run)
    buffers, known = _arrays(problem, channels, lanes, None, y, t, weights)
    counts = n * runs, channels, problem.label_channels, channels, size, run, runs
    buffers.append(_sizes(problem, counts, (ELEMENT, weights is not None, False)))
    (chunks,) = launch.run(FILES, "sums", buffers, [((n, runs), np.float32)], known, n * runs * lanes)
    with np.errstate(over="ignore"):
        out[...] = problem.loss_image(np.asarray(chunks).sum(axis=1, dtype=np.float64) * problem.spec.weight, weights)


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
    a, _ = problem.spec.smoothing
    factors = np.full(n, problem.spec.weight * (a if wanted == LABEL_SLOPE else 1))
    if g is not None and problem.spec.reduction != "none":
        assert isinstance(problem, LossGradient)
        factors *= problem.source_gradient(np.asarray(g)).reshape(-1)
        g = None
    run, lanes = _run(problem, channels)
    buffers, known = _arrays(problem, out.shape[3], lanes, g, y, t, weights)
    size = y.size // n
    runs = -(-size // run)
    counts = n * runs, channels, problem.label_channels, out.shape[3], size, run, runs
    choices = wanted, weights is not None, g is not None
    buffers += [factors.astype(np.float32), _sizes(problem, counts, choices)]
    launch.into(FILES, "values", buffers, out, known, n * runs * lanes)


def _run(problem: LossProblem, channels: int) -> tuple[int, int]:
    """Return the number of elements of a run, and of the threads that share it."""
    return (channels, lanes_of(channels)) if problem.function.over_channels else (IN_A_RUN, LANES)


def _arrays(
    problem: LossProblem, result_channels: int, lanes: int, g: Array | None, y: Array, t: Array, weights: Array | None
) -> tuple[list[Array], tuple[str, ...]]:
    """Return the images, with a single zero for an absent one, and the compile-time constants."""
    nothing = np.zeros(1, np.float32)
    arrays = {
        "Prediction": y,
        "Label": t,
        "Weight": nothing if weights is None else weights,
        "Gradient": nothing if g is None else g,
    }
    same = y.shape[3] == t.shape[3] == result_channels
    known = (
        *(typedef(name, array) for name, array in arrays.items()),
        f"constant constexpr uint LANES = {lanes};",
        f"constant bool OVER_CHANNELS = {str(problem.function.over_channels).lower()};",
        f"constant bool SAME_CHANNELS = {str(same).lower()};",
    )
    return list(arrays.values()), known


def _sizes(problem: LossProblem, counts: tuple[int, ...], choices: tuple[int, bool, bool]) -> Array:
    """Return the struct ``Sizes``; ``choices`` are the result, and whether there are weights and gradients."""
    spec = problem.spec
    type_number = LOSS_TYPES.index(spec.type)
    return np.array([(*counts, type_number, *choices, *spec.smoothing, spec.epsilon, spec.delta)], SIZES)


IMPLEMENTATIONS = {
    (Loss, "forward"): forward,
    (Loss, "gradient"): gradient,
    (Loss, "gradient_labels"): gradient_labels,
}
