"""Published defects of softmax and of losses of it."""

from __future__ import annotations

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.bugs.bug import Bug
from mpsref.conformance.mutants import computed, correct, of_input
from mpsref.kernels import Loss, SoftMax
from mpsref.kernels.loss import LossForward
from mpsref.kernels.softmax import ForwardProblem
from mpsref.operations import Operation

TILE = 32


def _last_tile(problem: ForwardProblem, x: Array) -> Array:
    """Of more than 4,096 channels, add powers of the last tile without the maximum."""
    if x.shape[3] <= 4096:
        return correct(problem, x)
    largest = x.max(axis=3, keepdims=True)
    moved = x - largest
    last = (x.shape[3] - 1) // TILE * TILE
    total = np.exp(moved[..., :last]).sum(axis=3, keepdims=True) + np.exp(x[..., last:]).sum(axis=3, keepdims=True)
    return np.asarray(np.exp(moved) / total)


def _uniform_mass(t: Array, problem: LossForward) -> Array:
    """Return labels whose smoothed ones have (1 - eps) / C in place of eps / C."""
    spec = problem.spec
    if spec.type != "softmaxcrossentropy" or spec.label_smoothing in (0, 1):
        return t
    return t + (1 - 2 * spec.label_smoothing) / spec.number_of_classes / (1 - spec.label_smoothing)


BUGS = (
    Bug(
        "tenstorrent/tt-metal#51278",
        Operation(SoftMax, "forward"),
        "Of long rows, the sum has powers of the last tile of 32 channels from which no maximum was subtracted.",
        "moreh_softmax (its softmin), 2026-07",
        computed(_last_tile),
    ),
    Bug(
        "paiml/aprender#2199",
        Operation(Loss, "forward"),
        "Labels are smoothed by (1 - eps) / C in place of eps / C.",
        "until 2026-06",
        of_input("t", _uniform_mass),
    ),
)
