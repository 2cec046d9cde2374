"""Functions with a backward pass of their own, each against the derivative of its own forward pass."""

from __future__ import annotations

import contextlib
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.conformance.audit import Check, Compared, Computed, Step
from mpsref.kernels.reference import ErrorBound

DIRECTIONS = 4
"""Random directions of the central differences for each input."""

INEXACT = 0.1
"""The largest relative error of central differences that decide."""

PERTURBED = 4
"""How often the inputs are perturbed for the error that roundings make in a derivative."""

WIDE = 0.25
"""The change of an element of a derivative, relative to it, that shows a kink when inputs change by roundings."""

OTHER = "its forward gives other numbers in float64"
"""Random numbers, for example."""

Forward: TypeAlias = Callable[[Sequence[Any]], Sequence[Array | None]]


class Applied(ABC):
    """One call of a function with a backward pass of its own.

    Arguments that are numbers are arrays in float64, others are as the framework has them.
    """

    step: Step
    """Takes the comparisons."""
    arguments: Sequence[Any]
    wanted: Sequence[int]
    """Positions of the arguments that get gradients."""
    unit: float
    """The largest unit roundoff of these."""
    outputs: Sequence[Array | None]
    """The results; ``None`` where they are no numbers."""
    g: Sequence[Array | None] = ()
    """The gradients of the results."""
    found: Sequence[Array | None] = ()
    """What its backward pass returned for the wanted arguments."""

    @abstractmethod
    def forward(self, arguments: Sequence[Any]) -> Sequence[Array | None]:
        """Return the results of the forward pass in float64, if it is made of operations of the framework."""

    @abstractmethod
    def inside(self) -> float:
        """Return the largest unit roundoff of the types in ``forward``, which may round by itself."""

    @abstractmethod
    def derivative(self, arguments: Sequence[Any]) -> list[Array]:
        """Return the derivative of ``forward`` times ``g`` for each wanted argument, in float64."""

    @abstractmethod
    def again(self, arguments: Sequence[Any], *, double: bool = False) -> Sequence[Array | None]:
        """Call the function again, in its own types or with numbers in float64; raise if these are not kept."""

    def name(self, k: int) -> str:
        """Return the name of an argument."""
        return f"argument {k}"

    def image(self, array: Array) -> Array:
        """Return an array with the axes of an image (N, H, W, C)."""
        return array

    def check(self) -> None:
        """Compare the gradients with the derivative of the forward pass."""
        step = self.step
        if all(g is None or not g.any() for g in self.g):
            step.reasons.append("its backward: the gradient of the result is 0 everywhere, or none reached it")
            return
        if not all(g is None or np.isfinite(g).all() for g in self.g):
            step.reasons.append("its backward: NaN or infinities in the gradient of the result")
            return
        with np.errstate(all="ignore"):
            try:
                checks, why = self._exact()
            except Exception as error:  # what a user's function raises in float64 is anything
                checks, why = None, f"{type(error).__name__}: {error}"
            if checks is not None:
                step.notes.append("its backward against the derivative of its forward in float64, by autograd")
                step.judge(lambda: checks)
                return
            try:
                self._by_differences(why)
            except Exception as error:  # the same
                step.reasons.append(f"its backward: its forward does not run again: {type(error).__name__}: {error}")

    def _exact(self) -> tuple[list[Check] | None, str]:
        """Return the comparisons, or ``None`` and the reason if autograd does not see all of the forward pass."""
        starts, checks = self.arguments, []
        right = self.derivative(starts)
        if not all(np.isfinite(dx).all() for dx in right):
            return None, "its derivative has NaN or infinities"
        if not self._same(self.forward(starts)):
            return None, OTHER
        inside = self.inside()
        for k, dx in zip(self.wanted, right, strict=True):
            direction = _direction(starts[k], 0)
            slope, error, size = self._slope(self.forward, k, direction, inside)
            if abs(float((dx * direction).sum()) - slope) > 4 * error + 1e-4 * size:
                return None, "autograd does not see all of its forward pass"
        others = [self.derivative(self._moved(number)) for number in range(PERTURBED)]
        spread = [np.fmax.reduce([abs(one - dx) for one in given]) for dx, *given in zip(right, *others, strict=True)]
        largest = [np.fmax.reduce([abs(one) for one in given]) for given in zip(right, *others, strict=True)]
        for k, dx, most, top, actual in zip(self.wanted, right, spread, largest, self.found, strict=True):
            actual = np.zeros_like(dx) if actual is None else actual
            what = f"gradient for {self.name(k)}"
            if actual.shape != dx.shape:
                self.step.compared.append(Compared(what, math.inf, f"shape {actual.shape}, expected {dx.shape}"))
                continue
            kink = most > WIDE * top
            own = 8 * self.unit * (abs(dx) + _typical(dx))
            each = 4 * (1 + inside / self.unit)  # the derivative may be rounded, too
            share = float((kink & (most > 8 * own)).mean())
            if share > 0.005:
                self.step.notes.append(f"{what}: {share:.0%} of its elements are at a kink, where slopes differ")
            smooth = each * _typical(most[~kink]) + own * (1 + inside / self.unit)
            limit = np.asarray(smooth + np.where(kink, np.inf if kink.all() else 2 * most, each * most))
            reference, given, bound = map(self.image, (dx, actual, limit))
            checks.append(Check(Computed((reference,), (ErrorBound(bound),)), (), {what: given}))
        return checks, ""

    def _same(self, results: Sequence[Array | None]) -> bool:
        """Return whether results in float64 are those of the call, up to half of its digits."""
        pairs = [(a, b) for a, b in zip(results, self.outputs, strict=True) if a is not None and b is not None]
        return all(np.allclose(b, a, self.unit**0.5, self.unit**0.5 * _typical(a), equal_nan=True) for a, b in pairs)

    def _moved(self, number: int) -> list[Any]:
        """Return the arguments with other roundings: of each two calls the second moves to the other side."""
        side = 1 - 2 * (number % 2)
        return [
            one * (1 + 4 * self.unit * side * _signs(one, number // 2)) + (one == 0) * side * 2.0**-126
            if _is_number(one)
            else one
            for one in self.arguments
        ]

    def _slope(self, forward: Forward, k: int, direction: Array, unit: float) -> tuple[float, float, float]:
        """Return the derivative along a direction by central differences, its error, and the size of its terms."""
        x = self.arguments[k]
        scale = max(_typical(x), 1e-3)
        found, noise, size = [], 0.0, 0.0
        for step in (2.0, 1.0):
            h = step * scale * unit ** (1 / 3)
            moved = [list(self.arguments), list(self.arguments)]
            moved[0][k], moved[1][k] = x + h * direction, x - h * direction
            plus, minus = map(forward, moved)
            total = noise = size = 0.0
            for a, b, g in zip(plus, minus, self.g, strict=False):
                if g is None or a is None or b is None:
                    continue
                a, b, g = (one.astype(np.float64) for one in (a, b, g))
                terms = g * (a - b)
                total += float(terms.sum()) / (2 * h)
                size += _norm(terms) / (2 * h)
                noise += 2 * unit * _norm(g * (abs(a) + abs(b))) / (2 * h)
            found.append(total)
        return found[1], abs(found[0] - found[1]) + 4 * noise, size

    def _by_differences(self, why: str) -> None:
        """Compare along random directions."""
        step, unit, double = self.step, self.unit, False
        for a, b in zip(self.again(self.arguments), self.outputs, strict=True):
            if a is not None and b is not None and not np.allclose(a, b, equal_nan=True):
                step.reasons.append("its backward: its forward gives other numbers when it runs again")
                return
        with contextlib.suppress(Exception):  # what a user's function raises in float64 is anything
            unit, double = self.inside(), True

        def forward(arguments: Sequence[Any]) -> Sequence[Array | None]:
            nonlocal unit, double
            with contextlib.suppress(Exception):
                if double:
                    return self.again(arguments, double=True)
            unit, double = self.unit, False
            return self.again(arguments)

        if not self._same(forward(self.arguments)):
            unit, double = self.unit, False
        worst = 0.0
        for k, dx in zip(self.wanted, self.found, strict=True):
            what, x = f"gradient for {self.name(k)}", self.arguments[k]
            dx = np.zeros_like(x) if dx is None else dx.astype(np.float64)
            if dx.shape != x.shape:
                step.compared.append(Compared(what, math.inf, f"shape {dx.shape}, expected {x.shape}"))
                continue
            if not x.any():
                step.reasons.append(f"{what}: central differences at 0, where there may be a kink")
                continue
            norm = _norm(dx)
            fractions, message, inexact = [], "", 0.0
            for number in range(DIRECTIONS):
                direction = _direction(x, number)
                before = unit
                slope, error, size = self._slope(forward, k, direction, unit)
                if unit != before:
                    slope, error, size = self._slope(forward, k, direction, unit)
                if not math.isfinite(slope):
                    inexact = math.inf
                    break
                actual = float((dx * direction).sum())
                limit = 4 * error + 32 * self.unit * (norm + size)
                inexact = max(inexact, limit / max(norm, size, 1e-300))
                fractions.append(abs(actual - slope) / max(limit, 1e-300))
                if not fractions[-1] <= 1 and not message:
                    message = (
                        f"along a random direction its derivative is {slope:.6g}, with an error up to {limit:.2g}; "
                        f"the gradient says {actual:.6g}"
                    )
            if inexact == math.inf:
                step.reasons.append(f"{what}: its forward gives NaN or infinities close to the arguments")
                continue
            if inexact > INEXACT and not message:
                step.reasons.append(f"{what}: central differences have a relative error of {inexact:.1g}")
                continue
            worst = max(worst, inexact)
            step.compared.append(Compared(what, max(fractions), message))
        if step.compared:
            detail = f" ({why.splitlines()[0][:120]})" if why else ""
            step.notes.append(
                f"its backward against central differences along {DIRECTIONS} random directions, "
                f"with a relative error up to {worst:.1g}{detail}"
            )


def parameter(function: Any, k: int) -> str:
    """Return the name of an argument of a function by its position; empty if it has none."""
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return ""
    has_name = k < len(found) and found[k].kind in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    return found[k].name if has_name else ""


def _is_number(one: Any) -> bool:
    return isinstance(one, np.ndarray) and one.dtype == np.float64


def _signs(array: Array, seed: int) -> Array:
    return np.random.default_rng(seed).integers(0, 2, array.shape) * 2.0 - 1


def _direction(x: Array, seed: int) -> Array:
    """Return a random direction; elements that are 0 stay so if others are not: many functions have a kink there."""
    return _signs(x, seed) * ((x != 0) if x.any() else 1.0)


def _norm(array: Array) -> float:
    return float(np.sqrt(np.square(array).sum()))


def _typical(array: Array) -> float:
    """Return the root of the mean square."""
    return float(np.sqrt(np.square(array).mean())) if array.size else 0.0
