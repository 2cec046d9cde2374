"""Losses through ``msl/loss.metal``; the sums of chunks of an image are added here in float64."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.loss import LOSS_TYPES, Loss, LossForward, LossGradient, LossProblem
from mpsref_metal.launch import Launcher, typedef

IN_A_RUN = 256
"""Number of elements of a chunk, which one thread adds up."""

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
    run = channels if problem.function.over_channels else IN_A_RUN
    runs = -(-size // run)
    buffers, known = _arrays(None, y, t, weights)
    counts = n * runs, channels, problem.label_channels, channels, size, run, runs
    buffers.append(_sizes(problem, counts, (ELEMENT, weights is not None, False)))
    (chunks,) = launch.run(("loss",), "sums", buffers, [((n, runs), np.float32)], known)
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
    run = channels if problem.function.over_channels else 1
    buffers, known = _arrays(g, y, t, weights)
    size = y.size // n
    counts = y.size // run, channels, problem.label_channels, out.shape[3], size, run, size // run
    choices = wanted, weights is not None, g is not None
    buffers += [factors.astype(np.float32), _sizes(problem, counts, choices)]
    launch.into(("loss",), "values", buffers, out, known, y.size // run)


def _arrays(g: Array | None, y: Array, t: Array, weights: Array | None) -> tuple[list[Array], tuple[str, ...]]:
    """Return the images, with a single zero for an absent one, and their typedefs."""
    nothing = np.zeros(1, np.float32)
    arrays = {
        "Prediction": y,
        "Label": t,
        "Weight": nothing if weights is None else weights,
        "Gradient": nothing if g is None else g,
    }
    return list(arrays.values()), tuple(typedef(name, array) for name, array in arrays.items())


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
