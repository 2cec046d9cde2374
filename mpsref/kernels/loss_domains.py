"""Where a loss is defined: the values that predictions and labels may have.

A loss computes on any values; outside of these it gives what IEEE 754 makes of its formula.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpsref.arguments.arrays import Array


class Domain(NamedTuple):
    """A closed interval, without its lower end where ``above`` says so."""

    low: float
    high: float
    above: bool = False

    def contains(self, values: Array) -> Array:
        """Say for each value whether it is inside; NaN and infinities are not."""
        inside = (values > self.low if self.above else values >= self.low) & (values <= self.high)
        return np.asarray(inside & np.isfinite(values))

    def __str__(self) -> str:
        low = f"{'>' if self.above else '>='} {self.low:g}" if np.isfinite(self.low) else ""
        high = f"<= {self.high:g}" if np.isfinite(self.high) else ""
        return " and ".join(filter(None, ["finite", low, high]))


ANY = Domain(-np.inf, np.inf)
UNIT = Domain(0, 1)

DOMAINS: dict[str, tuple[Domain, Domain]] = {
    "meanabsoluteerror": (ANY, ANY),
    "meansquarederror": (ANY, ANY),
    "softmaxcrossentropy": (ANY, UNIT),
    "sigmoidcrossentropy": (ANY, UNIT),
    "categoricalcrossentropy": (Domain(0, 1, above=True), UNIT),
    "hinge": (ANY, UNIT),
    "huber": (ANY, ANY),
    "cosinedistance": (ANY, ANY),
    "log": (UNIT, UNIT),
    "kullbackleiblerdivergence": (Domain(-np.inf, 0), UNIT),
}
"""Of each loss type, that of the predictions and that of the labels."""


def check(loss_type: str, y: Array, t: Array) -> None:
    """Raise ``ValueError`` that names the first prediction or label outside its domain."""
    for name, values, domain in zip(("y", "t"), (y, t), DOMAINS[loss_type], strict=True):
        outside = ~domain.contains(values)
        if outside.any():
            index = tuple(int(k) for k in np.argwhere(outside)[0])
            raise ValueError(
                f"{name}[{', '.join(map(str, index))}] is {values[index]}; with the loss type {loss_type!r} each value "
                f"must be {domain}"
            )


def legal(loss_type: str, method: str, drawn: dict[str, Array]) -> dict[str, Array]:
    """Turn arbitrary numbers into values inside the domains, for tests.

    Numbers are folded into [-8, 8] and rounded to multiples of 2**-8, so that ``y - t`` and the decisions at kinks are
    exact in float32. Some labels and weights are 0; labels are not where the derivative by them would be infinite.
    """
    predictions, labels = DOMAINS[loss_type]
    least = 1 if (loss_type, method) == ("kullbackleiblerdivergence", "gradient_labels") else 0
    values = {name: _folded(array.astype(np.float64)) for name, array in drawn.items()}
    if labels is UNIT:
        values["t"] = np.maximum(_mixed(values["t"]) % 9, least) / 8
    if predictions is UNIT or predictions.above:
        values["y"] = (_mixed(values["y"]) % 63 + 1) / 64
    elif predictions.high == 0:
        values["y"] = -np.abs(values["y"])
    if "weights" in values:
        values["weights"][_mixed(values["weights"]) % 5 == 0] = 0
    return {name: array.astype(drawn[name].dtype) for name, array in values.items()}


def _folded(numbers: Array) -> Array:
    return np.asarray(np.round((numbers - 16 * np.round(numbers / 16)) * 256) / 256)


def _mixed(values: Array) -> Array:
    """Return non-negative integers that differ where the multiples of 2**-8 differ."""
    return np.asarray(np.abs(values * 256).astype(np.int64) * 37 % 8191)
