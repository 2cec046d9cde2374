"""Rules of MPSGraph that no choice lists, as functions of what the fake computes and of what it is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

NAN, INF = np.nan, np.inf


def _always(*values: float) -> Any:
    return lambda _, given: list(values)


def _by_direction(forward: list[float], gradient: list[float]) -> Any:
    return lambda _, given: gradient if given.direction == "gradient" else forward


def _at_0(factor: float) -> Any:
    return lambda values, given: np.where(given.source == 0, factor * given.incoming_gradient, values)


def _softmax(x: Any) -> Any:
    return np.exp(x) / np.exp(x).sum()


def _layer(given: Any, variance_is_constant: bool, count: int) -> ArrayLike:
    """Return the gradient of a layer normalization with sums divided by a count."""
    r = 1 / np.sqrt(given.variance)
    h, own = (given.source - given.mean) * r, given.incoming_gradient * given.gamma
    of_variance = 0 if variance_is_constant else h * (own * h).sum() / count
    return r * (own - own.sum() / count - of_variance)


def _adam(kind: str) -> Any:
    m, u, rate = 1.25, 1.75, 0.5 * np.sqrt(1 - 0.75**2) / (1 - 0.5**2)
    step = {"none": m / np.sqrt(u), "squared": m / (np.sqrt(u) + 0.25)}[kind]
    return _always(1 - rate * step)


POSITIONS = (np.arange(11) + 0.5) * 20 / 11 - 0.5

WRITES: Mapping[str, Mapping[str, Any]] = {
    "mpsgraph-relu-slope": {"the slope at 0 is -1": _at_0(-1), "the slope at 0 is 2": _at_0(2)},
    "mpsgraph-softmax-source": {
        "that of log-softmax": lambda _, of: of.incoming_gradient - _softmax(of.source) * of.incoming_gradient.sum(),
        "the sum is missing": lambda _, of: _softmax(of.source) * of.incoming_gradient,
    },
    "mpsgraph-max-tie": {
        "the first in the order of columns": _always(4, 0, 0, 0, 0, 0, 8, 0),
        "windows with a tie have no gradient": _always(*[0] * 8),
    },
    "mpsgraph-max-nan": {
        "NaN counts as 0": _by_direction([2, 0], [0, 0, 4, 8, 0, 0]),
        "NaN counts at the first tap alone": _by_direction([2, NAN], [0, 0, 4, 8, 0, 0]),
    },
    "mpsgraph-empty-window": {"the nearest pixel": _always(-3, -3, 2), "NaN": _always(NAN, -3, 2)},
    "mpsgraph-empty-average": {"the nearest pixel": _always(-3, -3, 2), "infinity": _always(INF, -3, 2)},
    "mpsgraph-ceil-mode": {"kept in y alone": _always(1, 1, 3, 3), "kept in x alone": _always(1, 1, 2, 4)},
    "mpsgraph-average-overhang": {
        "the last pixel is repeated": _always(6, 11),
        "the window is moved into the image": _always(6, 9),
    },
    "mpsgraph-indices-nhwc": {"columns before rows": _always(3, 1), "channels before rows": _always(3, 6)},
    "mpsgraph-local-indices": {"counted from 1": _always(2, 1), "counted from the last tap": _always(0, 1)},
    "mpsgraph-foreign-index": {
        "clamped to the window": _always(0, 4, 8, 0),
        "the whole gradient is 0": _always(0, 0, 0, 0),
    },
    "mpsgraph-normalization-sums": {
        "the variance is a constant": lambda _, given: _layer(given, True, 3),
        "sums are divided by N - 1": lambda _, given: _layer(given, False, 2),
    },
    "mpsgraph-resize-positions": {
        "rounded down": lambda *_: np.floor(POSITIONS),
        "rounded up": lambda *_: np.ceil(POSITIONS),
    },
    "mpsgraph-resize-clamp": {"the first pixel": _always(2, 4, 4, 2), "extrapolated": _always(2, 4, 4, 6)},
    "mpsgraph-resize-one": {"the mean": _always(5), "the last pixel": _always(9)},
    "mpsgraph-reduction-nan": {"NaN counts as 0": _always(0), "NaN counts as infinity": _always(INF)},
    "mpsgraph-labels-sum": {
        "labels are divided by their sum": lambda _, of: _softmax(of.source) - of.labels / of.labels.sum(),
        "divided by the classes": lambda values, _: values / 3,
    },
    "mpsgraph-loss-shape": {"the sum of the rows": _always(1), "one for each class": _always(3)},
    "mpsgraph-log-softmax": {"from the smallest float32": _always(87.33654), "NaN of 0 times infinity": _always(NAN)},
    "mpsgraph-adam-epsilon": {"no epsilon": _adam("none"), "its square is added": _adam("squared")},
    "mpsgraph-dropout-scale": {
        "multiplied by 1 / rate": lambda values, _: (values > 0) / 0.75,
        "multiplied by the rate": lambda values, _: (values > 0) * 0.75,
    },
    "mpsgraph-seed": {"of the first element": _always(2, 0), "of the last element": _always(0, 6)},
    "mpsgraph-variables": {"the sum of both": _always(6), "0": _always(0)},
    "mpsgraph-weights-shape": {"without the taps": _always(1, 1, 1, 1), "of the gradient": _always(1, 1, 2, 1)},
    "mpsgraph-depthwise-order": {"weights are transposed": _always(1, 3, 20, 40), "backwards": _always(40, 30, 2, 1)},
    "mpsgraph-variance": {"the deviation": _always(np.sqrt(8)), "not divided": _always(24)},
    "mpsgraph-gradient-epsilon": {"added to the root": _always(0.25), "added twice": _always(1 / np.sqrt(7))},
    "mpsgraph-resize-input": {"multiplied": _always(55, 7700), "the mean": _always(5.5, 550)},
    "mpsgraph-depthwise-multiplier": {
        "the first result alone": _always(1, 300),
        "weights are transposed": _always(31, 4200),
    },
    "mpsgraph-depthwise-padding": {"taps are flipped": _always(142, 420), "padding counts twice": _always(200, 420)},
    "mpsgraph-grouped-gradient": {
        "the second group is lost": _always(1, 2, 0, 0),
        "groups are interleaved": _always(1, 30, 2, 40),
    },
    "mpsgraph-many-images": {"half of them": _always(0.5), "without the last one": _always(65_535 / 65_536)},
    "mpsgraph-resize-nhwc": {"channels are exchanged": _always(35, 3.5, 25, 2.5), "nearest": _always(4, 40, 2, 20)},
    "mpsgraph-relu-nan": {"NaN becomes infinity": _always(INF, 0, 2), "the magnitude": _always(NAN, 1, 2)},
    "mpsgraph-many-channels": {
        "the last one is doubled": lambda values, _: values * 2,
        "memory behind the last one": lambda values, _: values + 1,
    },
    "mpsgraph-many-terms": {"half of the terms": _always(20_000), "the rest from the begin": _always(52_768)},
}
"""What is written in place of the right result, by choice and text."""

NOT_EXAMINED = dict.fromkeys(
    ("mpsgraph-large-kernel", "mpsgraph-running-sums"), "the answer is yes or no, whatever the numbers are"
)
