"""What the explorer draws of a case: grids of numbers, and for each pixel its window and the terms of its sum.

The weight of a pixel in another is a derivative, and the reference computes it: a gradient is linear in its source
gradient, so that source gradients with a single 1 give all weights, those of the forward pass as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np

from kernelcache.first_use import cached_property
from mpsref.arguments.arrays import Array
from mpsref.conformance.case import Case
from mpsref.conformance.runner import references
from mpsref.explore.controls import FORMULAS
from mpsref.geometry import Window
from mpsref.kernels.pooling import PoolingGradient
from mpsref.operations import ImageProblem, Problem
from mpsref.viz.explain import of_windows

Pixel = tuple[int, int]

MOST_TERMS = 16
"""Maximum number of terms of a sum in a text."""


class Term(NamedTuple):
    """A pixel of the source grid that belongs to a pixel of the result."""

    pixel: Pixel
    weight: float
    kind: str
    """"tap", "center" (a tap), "hollow" (a centre that is no tap), or "" for a pixel outside the window."""


class Grid(NamedTuple):
    """An image on the page: the values of its pixels, in the coordinates from ``first`` to before ``last``."""

    name: str
    title: str
    values: Array
    first: Pixel = (0, 0)
    last: Pixel = (0, 0)


class Scene:
    """The grids of a case of one image and channel, and what belongs to each pixel of the result."""

    def __init__(self, case: Case) -> None:
        """Compute the results and the weights with the reference."""
        self.case = case
        self.problem = cast("ImageProblem", case.problem)
        self.method = case.problem.operation.method
        self.inputs = dict(zip(self.problem.input_shapes, case.inputs(), strict=True))
        self.result = _results(self.problem, *self.inputs.values())

    @property
    def is_forward(self) -> bool:
        """Whether the case is a forward pass."""
        return self.method == "forward"

    @property
    def source_name(self) -> str:
        """The name of the input whose pixels the result sums."""
        return "x" if self.is_forward else "g"

    @property
    def result_name(self) -> str:
        """The name of the result."""
        return {"forward": "y", "gradient_weights": "dw"}.get(self.method, "dx")

    @cached_property
    def windows(self) -> tuple[Window, Window] | None:
        """The windows of both axes over the image; ``None`` for a kernel without."""
        found = getattr(of_windows(self.problem).spec, "windows", None)
        return cast("tuple[Window, Window] | None", found)

    @cached_property
    def weights(self) -> Array:
        """The derivative of each result pixel by each pixel of the source grid: (rows, columns, rows, columns)."""
        forward = self.is_forward
        problem = self._gradient() if forward else self.problem
        shape = problem.input_shapes["g"][1:3]
        count = int(np.prod(shape))
        given = {**self.inputs, "y": self.result} if forward else self.inputs
        ones = np.eye(count).reshape(count, *shape, 1)
        if self.method == "gradient_weights":  # which sums over images, so that each 1 is in a channel of its own
            batch: Problem = replace(problem, output_channels=count)  # type: ignore[call-arg]
            inputs = [ones.transpose(3, 1, 2, 0) if name == "g" else given[name] for name in batch.input_shapes]
        else:
            batch = replace(problem, source_shape=(count, *problem.source_shape[1:]))
            inputs = [
                ones if name == "g" else given[name].repeat(1 if name == "weights" else count, axis=0)
                for name in batch.input_shapes
            ]
        results = _results(batch, *inputs)[..., 0]
        by_source = results.reshape(*shape, *results.shape[1:])
        return by_source if forward else by_source.transpose(2, 3, 0, 1)

    def _gradient(self) -> ImageProblem:
        """Return the problem of the gradient of a forward pass."""
        spec, size = self.problem.spec, self.problem.result_shapes[0][1:3]
        name = "gradient_data" if "gradient_data" in spec.problems else "gradient"
        kind: Any = spec.problems[name]
        known = set(kind.__dataclass_fields__)
        own = {"output_channels": 1, "gradient_size": size, "output_size": size}
        found: ImageProblem = kind(
            spec, source_shape=self.problem.source_shape, **{k: v for k, v in own.items() if k in known}
        )
        return found

    @cached_property
    def grids(self) -> list[Grid]:
        """The source grid with the pixels outside that windows read, the other inputs, and the result."""
        found = []
        for name, array in self.inputs.items():
            values = array.reshape(array.shape[-3:])[:, :, 0] if array.ndim == 4 else array
            first, last = (0, 0), values.shape
            if name == self.source_name:
                first, last = self._halo(values.shape)
            found.append(Grid(name, _TITLES.get(name, name), values, first, cast("Pixel", last)))
        found.sort(key=lambda grid: grid.name != self.source_name)
        values = self.result[0, :, :, 0]
        found.append(Grid(self.result_name, _TITLES[self.result_name], values, (0, 0), values.shape))
        return found

    def _halo(self, shape: tuple[int, ...]) -> tuple[Pixel, Pixel]:
        """Return the range of the coordinates that windows of a forward pass read."""
        if not self.is_forward or self.windows is None:
            return (0, 0), cast("Pixel", shape)
        ends = []
        for window, count, length in zip(self.windows, self.result.shape[1:3], shape, strict=True):
            reach = window.start(count - 1) + window.extent
            ends.append((min(0, window.start(0)), max(length, reach)))
        (top, bottom), (left, right) = ends
        return (top, left), (bottom, right)

    def terms(self, pixel: Pixel) -> list[Term]:
        """Return what belongs to a pixel of the result: its window in the forward pass, else what it gathers."""
        weights = self.weights[pixel]
        kinds: dict[Pixel, str] = {}
        if self.is_forward and self.windows is not None and hasattr(self.problem.spec, "windows"):
            rows, columns = (
                [window.tap(i, t) for t in range(window.kernel)] for window, i in zip(self.windows, pixel, strict=True)
            )
            kinds = {(y, x): "tap" for y in rows for x in columns}
            center = cast("Pixel", tuple(w.start(i) + w.center for w, i in zip(self.windows, pixel, strict=True)))
            kinds[center] = "center" if center in kinds else "hollow"
        elif isinstance(self.problem, PoolingGradient):
            rows, columns = (self.problem.gathered(axis, q) for axis, q in enumerate(pixel))
            kinds = {(y, x): "tap" for y in rows for x in columns}
        for y, x in np.argwhere(weights).tolist():
            kinds.setdefault((y, x), "tap")
        height, width = weights.shape
        return [
            Term((y, x), float(weights[y, x]) if 0 <= y < height and 0 <= x < width else 0.0, kind)
            for (y, x), kind in sorted(kinds.items())
        ]

    def count(self, pixel: Pixel) -> str:
        """Return N of the window of a pixel of an average, as text; empty for other kernels."""
        spec: Any = self.problem.spec
        if not hasattr(spec, "zero_pad") or not self.is_forward:
            return ""
        y, x = (
            window.divisor(i, length, spec.edge_mode, pad)
            for window, i, length, pad in zip(
                spec.windows, pixel, self.problem.source_shape[1:3], spec.zero_pad, strict=True
            )
        )
        return f"N = {y} × {x} = {y * x}"

    def text(self, pixel: Pixel, terms: Sequence[Term] | None = None) -> str:
        """Return the sum of a result pixel with its terms."""
        name = f"{self.result_name}[{pixel[0]}, {pixel[1]}]"
        value = f"{self.result[0, pixel[0], pixel[1], 0]:.6g}"
        formula = FORMULAS[type(self.problem.spec)] if self.is_forward else ""
        terms = self.terms(pixel) if terms is None else terms
        terms = [term for term in terms if term.weight or (formula and term.kind in ("tap", "center"))]
        source = self.inputs[self.source_name][0, :, :, 0]
        inside = [t for t in terms if 0 <= t.pixel[0] < source.shape[0] and 0 <= t.pixel[1] < source.shape[1]]
        count = self.count(pixel)
        head = f"{count}. " if count else ""
        if formula:
            numbers = ", ".join(f"{source[t.pixel]:g}" for t in inside[:MOST_TERMS])
            dots = f", ... ({len(inside)} pixels)" if len(inside) > MOST_TERMS else ""
            return f"{name} = {value}: {formula}. In the window: {numbers}{dots}."
        if not inside:
            return f"{head}{name} = {value}: no pixel of {self.source_name} contributes."
        products = [
            f"{fraction(t.weight)} · {self.source_name}[{t.pixel[0]}, {t.pixel[1]}]" for t in inside[:MOST_TERMS]
        ]
        more = [f"... ({len(inside)} terms)"] if len(inside) > MOST_TERMS else []
        return f"{head}{name} = {' + '.join(products + more)} = {value}"

    def data(self) -> dict[str, Any]:
        """Return what the page needs of each result pixel, as JSON."""
        return {"source": self.source_name, "result": self.result_name, "pixels": dict(self._pixels())}

    def _pixels(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for pixel in np.ndindex(*self.result.shape[1:3]):
            terms = self.terms(cast("Pixel", pixel))
            shown = [[f"{t.pixel[0]},{t.pixel[1]}", fraction(t.weight), t.kind] for t in terms]
            yield "{},{}".format(*pixel), {"text": self.text(cast("Pixel", pixel), terms), "terms": shown}


def _results(problem: Problem, *inputs: Array) -> Array:
    """Return the first result of the reference, which may be infinite or NaN."""
    with np.errstate(all="ignore"):
        return references(problem, *inputs)[0]


_TITLES: Mapping[str, str] = {
    "x": "source image x",
    "g": "source gradient g",
    "weights": "weights",
    "y": "result y",
    "dx": "gradient for the source, dx",
    "dw": "gradient for the weights, dw",
}


@lru_cache(maxsize=4096)
def fraction(value: float) -> str:
    """Return a number as a fraction with a small denominator if it is one.

    >>> fraction(0.25), fraction(3.0), fraction(0.123456789), fraction(float("inf"))
    ('1/4', '3', '0.123457', 'inf')
    """
    if not math.isfinite(value):
        return f"{value:g}"
    near = Fraction(value).limit_denominator(1024)
    return str(near) if abs(float(near) - value) <= 1e-12 * abs(value) else f"{value:.6g}"
