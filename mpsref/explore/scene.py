"""What the explorer draws of a case: grids of numbers, and for each pixel its window and the terms of its sum.

The weight of a pixel in another is a derivative, and the reference computes it: a gradient is linear in its source
gradient, so that source gradients with a single 1 give all weights, those of the forward pass as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np

from anymetal.fork_safe import cached_property
from mpsref.arguments.arrays import Array
from mpsref.conformance.case import Case
from mpsref.conformance.runner import references
from mpsref.explore.controls import FORMULAS
from mpsref.explore.drawing import color
from mpsref.geometry import Window
from mpsref.kernels.pooling import PoolingForward, PoolingGradient
from mpsref.kernels.pooling_average import PoolingAverage
from mpsref.operations import ImageProblem, Problem
from mpsref.viz.explain import of_windows
from mpsref.viz.plotting import Inserted

Pixel = tuple[int, int]

MOST_TERMS = 16
"""Maximum number of terms of a sum in a text."""


class Term(NamedTuple):
    """A pixel of the source grid that belongs to a pixel of the result."""

    pixel: Pixel
    weight: float
    kind: str
    """"tap", "center" (a tap), "hollow" (a centre that is no tap), or "" for a pixel outside the window."""


class Edit(NamedTuple):
    """A pixel of an input with another value."""

    name: str
    pixel: Pixel
    value: float

    @property
    def place(self) -> tuple[int, ...]:
        """The index of the pixel in an array (N, H, W, C)."""
        return (0, *self.pixel, 0)

    def fits(self, array: Array) -> bool:
        """Return whether the array has the pixel."""
        return array.ndim == 4 and all(0 <= i < n for i, n in zip(self.pixel, array.shape[1:3], strict=True))


class View(NamedTuple):
    """What a page shows of a scene: a pixel of the source, or of the result, and how far it has played."""

    pixel: Pixel
    is_source: bool
    step: int | None = None
    """The number of the window that is played, if one is."""


class Part(NamedTuple):
    """A part of a sentence, in the colour of a window."""

    text: str
    color: str = ""


class Scene:
    """The grids of a case of one image and channel, and what belongs to each pixel of the result."""

    def __init__(self, case: Case, edits: Sequence[Edit] = ()) -> None:
        """Compute the results with the reference; edits outside a smaller image are not used."""
        self.case = case
        self.problem = cast("ImageProblem", case.problem)
        self.method = case.problem.operation.method
        self.inputs = dict(zip(self.problem.input_shapes, case.inputs(), strict=True))
        self.edits = [edit for edit in edits if edit.name in self.inputs and edit.fits(self.inputs[edit.name])]
        for edit in self.edits:
            self.inputs[edit.name][edit.place] = edit.value
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
        """The windows of both axes over the image; ``None`` for a kernel without, and for the gradient of weights."""
        found = None if self.method == "gradient_weights" else getattr(self.of.spec, "windows", None)
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
        y, x = (spec.divisor(axis, i, self.problem.source_shape) for axis, i in enumerate(pixel))
        return f"N = {y} × {x} = {y * x}"

    # ------------------------------------------------------------------------------------------------------- views

    @cached_property
    def of(self) -> Problem:
        """The pooling problem with these windows, if there is one."""
        return of_windows(self.problem)

    @property
    def gradient(self) -> PoolingGradient:
        """The same as a gradient, where :attr:`lines` are known."""
        return cast("PoolingGradient", self.of)

    @cached_property
    def lines(self) -> list[Inserted]:
        """Of a gradient with windows: its axes, with zeros between the pixels of the source gradient; else empty."""
        return [Inserted(self.gradient, axis) for axis in (0, 1)] if isinstance(self.of, PoolingGradient) else []

    @property
    def is_averaging(self) -> bool:
        """Whether windows divide by N."""
        return isinstance(self.problem.spec, PoolingAverage)

    @property
    def offsets(self) -> str:
        """The effective offset of each axis, as a formula with its numbers."""
        texts = []
        for line in self.lines:
            terms = f"stride {line.window.stride} × primary offset {line.primary} + kernel offset {line.kernel_offset}"
            texts.append(f"effective offset {line.effective} = {terms}")
        names = ("y: ", "x: ") if len(set(texts)) > 1 else ("", "")
        found = dict.fromkeys(name + text for name, text in zip(names, texts, strict=False))
        return f"Here {'; '.join(found)}." if found else ""

    @property
    def spreads(self) -> bool:
        """Whether the source has a pixel for each window, as a gradient has; else the result has one."""
        if self.method == "gradient_weights" or isinstance(self.of, PoolingGradient):
            return True
        return not (self.is_forward or isinstance(self.of, PoolingForward))

    @cached_property
    def source(self) -> Array:
        """The image whose pixels the result sums, (rows, columns)."""
        return self.inputs[self.source_name][0, :, :, 0]

    @property
    def steps(self) -> int:
        """The number of windows to play, whose pixels are those of the source or of the result."""
        return self.source.size if self.spreads else int(np.prod(self.result.shape[1:3]))

    @property
    def default(self) -> Pixel:
        """The pixel of the result that is shown first: that of a gradient with the most terms."""
        if not self.spreads:
            return 0, 0
        most = int(np.count_nonzero(self.weights, axis=(2, 3)).argmax())
        return divmod(most, int(self.result.shape[2]))

    def view(self, query: Mapping[str, str], default: Pixel) -> View:
        """Return the view of an address: ``step``, ``source`` or ``pixel``; else that of the pixel ``default``."""
        shapes = {"step": (self.steps,), "source": self.source.shape, "pixel": self.result.shape[1:3]}
        for name, shape in shapes.items():
            place = tuple(int(part) if part.isdecimal() else -1 for part in query.get(name, "")[:9].split(","))
            if len(place) != len(shape) or not all(0 <= i < n for i, n in zip(place, shape, strict=True)):
                continue
            if name == "step":
                columns = shapes["source" if self.spreads else "pixel"][1]
                return View(divmod(place[0], columns), self.spreads, place[0])
            return View(cast("Pixel", place), name == "source")
        y, x = (min(i, n - 1) for i, n in zip(default, self.result.shape[1:3], strict=True))
        return View((y, x), False)

    def reached(self, place: Pixel) -> list[Pixel]:
        """Return the pixels of the result to which a pixel of the source contributes."""
        return [(y, x) for y, x in np.argwhere(self.weights[:, :, place[0], place[1]]).tolist()]

    def windows_of(self, view: View) -> list[Pixel]:
        """Return the windows of a view, as pixels of what has one for each window."""
        if view.is_source == self.spreads:
            return [view.pixel]
        if view.is_source:
            return self.reached(view.pixel)
        return [term.pixel for term in self.terms(view.pixel)]

    # ----------------------------------------------------------------------------------------------------- formulas

    def text(self, view: View) -> list[Part]:
        """Return the sum of a result pixel, or what becomes of a source pixel, with its numbers."""
        head = [] if view.step is None else [Part(f"Window {view.step + 1} of {self.steps}. ")]
        return head + (self._spread(view.pixel) if view.is_source else self._sum(view.pixel))

    def _sum(self, pixel: Pixel) -> list[Part]:
        name = f"{self.result_name}[{pixel[0]}, {pixel[1]}]"
        value = f"{self.result[0, pixel[0], pixel[1], 0]:.4g}"
        formula = FORMULAS[type(self.problem.spec)] if self.is_forward else ""
        height, width = self.source.shape
        terms = [t for t in self.terms(pixel) if 0 <= t.pixel[0] < height and 0 <= t.pixel[1] < width]
        if formula:
            numbers = ", ".join(f"{self.source[t.pixel]:g}" for t in terms[:MOST_TERMS] if t.kind != "hollow")
            more = f", ... ({len(terms)} pixels)" if len(terms) > MOST_TERMS else ""
            return [Part(name, color(pixel)), Part(f" = {value}: {formula}. In the window: {numbers}{more}.")]
        terms = [t for t in terms if t.weight]
        count = self.count(pixel)
        if not terms:
            text = f" = {value}: no pixel of {self.source_name} contributes."
            return [Part(name), Part(f"{text} {count}.") if count else Part(text)]
        parts = [Part(name, "" if self.spreads else color(pixel)), Part(" = ")]
        shown = terms[:MOST_TERMS]
        share = fraction(terms[0].weight).partition("1/")[2]
        if share.isdecimal() and not self.spreads and all(t.weight == terms[0].weight for t in terms):
            more = " + ..." if len(terms) > MOST_TERMS else ""
            numbers = " + ".join(_factor(self.source[t.pixel]) for t in shown)
            parts.append(Part(f"({numbers}{more})/{share} = {value}"))
            return [*parts, Part(f", {count}")] if count else parts
        for k, term in enumerate(shown):
            text = product(self.source[term.pixel], term.weight)
            parts += [Part(" + " if k else ""), Part(text, color(term.pixel) if self.spreads else "")]
        if len(terms) > 1 or text != value:
            parts.append(Part(f" + ... = {value}" if len(terms) > MOST_TERMS else f" = {value}"))
        if self.spreads and len(terms) <= MOST_TERMS:
            for k, term in enumerate(terms):
                parts.append(Part(" and " if k and k == len(terms) - 1 else ", " if k else ", from "))
                parts.append(Part(f"{self.source_name}[{term.pixel[0]}, {term.pixel[1]}]", color(term.pixel)))
        return parts

    def _spread(self, place: Pixel) -> list[Part]:
        name = Part(f"{self.source_name}[{place[0]}, {place[1]}]", color(place) if self.spreads else "")
        reached = self.reached(place)
        if not reached:
            return [name, Part(f" contributes to no pixel of {self.result_name}.")]
        linear = not (self.is_forward and FORMULAS[type(self.problem.spec)])
        value = float(self.source[place])
        shares = [float(self.weights[y, x, place[0], place[1]]) for y, x in reached]
        if linear and len(set(shares)) == 1 < len(shares):
            text = f"adds {product(value, shares[0])} to each of {len(reached)} pixels of {self.result_name}."
            return [name, Part(f" = {value:g} {text}")]
        parts = [name, Part(f" = {value:g} adds " if linear else ": a small change of it changes ")]
        for k, ((y, x), share) in enumerate(zip(reached[:MOST_TERMS], shares, strict=False)):
            target = f"{self.result_name}[{y}, {x}]"
            text = f"{product(value, share)} to {target}" if linear else f"{target} {fraction(share)} times as much"
            parts += [Part(", " if k else ""), Part(text, "" if self.spreads else color((y, x)))]
        return [*parts, Part(f", ... ({len(reached)} pixels)." if len(reached) > MOST_TERMS else ".")]


def _results(problem: Problem, *inputs: Array) -> Array:
    """Return the first result of the reference, which may be infinite or NaN."""
    with np.errstate(all="ignore"):
        return references(problem, *inputs)[0]


@lru_cache(maxsize=4096)
def fraction(value: float) -> str:
    """Return a number as a fraction with a small denominator if it is one.

    >>> fraction(0.25), fraction(3.0), fraction(0.123456789), fraction(float("inf"))
    ('1/4', '3', '0.1235', 'inf')
    """
    if not math.isfinite(value):
        return f"{value:g}"
    near = Fraction(value).limit_denominator(1024)
    return str(near) if abs(float(near) - value) <= 1e-12 * abs(value) else f"{value:.4g}"


def _factor(value: float) -> str:
    return f"({value:.4g})" if value < 0 else f"{value:.4g}"


def product(value: float, weight: float) -> str:
    """Return a product as text.

    >>> [product(2, weight) for weight in (1 / 6, 1, 2 / 3, -3)]
    ['2/6', '2', '2 · 2/3', '2 · (-3)']
    """
    text = fraction(weight)
    if text == "1":
        return _factor(value)
    if text.startswith("1/"):
        return _factor(value) + text[1:]
    return f"{_factor(value)} · {f'({text})' if weight < 0 else text}"
