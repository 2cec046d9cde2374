"""The pictures of a scene: images with their windows, the source gradient under the rotated window, and each axis."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, cast

import numpy as np

from anymetal.fork_safe import cached_property
from mpsref.arguments.arrays import Array
from mpsref.explore.drawing import MOST_LEVELS, Bracket, Picture, Pixel, color, tint
from mpsref.explore.scene import Scene, View, fraction
from mpsref.geometry import Window
from mpsref.kernels.pooling import PoolingForward
from mpsref.viz.grid_figure import INK, Cell, Mark, Panel, Ruler, Style, shown
from mpsref.viz.plotting import (
    EXCLUDED,
    GRADIENT,
    HIT,
    NEAR_TAPS,
    OUTSIDE,
    PIXEL,
    UNTOUCHED,
    image_pixel,
    kernel_over_gradient,
    rotated,
    separate_axes,
)

MOST_FRAMES = 9
"""Maximum number of windows that are framed or striped in an image."""

TITLES: Mapping[str, str] = {
    "x": "Source image x",
    "g": "Source gradient g = dL/dy",
    "weights": "Weights",
    "y": "Result y",
    "dx": "Result dx = dL/dx",
    "dw": "Result dw = dL/dw",
}

SENTENCES: Mapping[str, tuple[str, str]] = {
    "windows": ("A pixel for each window, in its colour.", ""),
    "read": ("The image that the windows read.", "Dashed pixels lie outside it."),
    "written": ("Each window adds its shares to the pixels that it covers.", "Stripes show whose shares a pixel has."),
    "dw": ("Each weight sums what it met in all windows.", "Stripes show the windows of a sum."),
    "weights": ("The forward pass uses them in this order.", "The rotated window has them in reverse order."),
    "x": ("The image of the forward pass.", "The shares may depend on its values."),
}
"""By the part that an image has, or its name: the caption, and what else there is to say."""


class Pictures:
    """The pictures of a view of a scene."""

    def __init__(self, scene: Scene, view: View, anchor: Pixel | None = None) -> None:
        """Find the windows of the view; brackets have the colours of the row and the column of ``anchor``."""
        self.scene, self.view = scene, view
        self.windows = scene.windows_of(view)
        self.of_one_window = view.is_source == scene.spreads
        self.anchor = anchor or next(iter(self.windows), (0, 0))

    def all(self, changed: Iterable[Pixel] = ()) -> list[Picture]:
        """Return the pictures; a corner marks the pixels of the result that are ``changed``."""
        scene = self.scene
        names = scene.source_name, scene.result_name
        window, image = names if scene.spreads else names[::-1]
        by_name = {window: self._windows(window), image: self._image(image)}
        by_name[scene.result_name].changed = frozenset(changed)
        others = [self._other(name, array) for name, array in scene.inputs.items() if name != scene.source_name]
        source, result = (by_name[name] for name in names)
        return [source, result, *others, *self._over_gradient(), *self._axes()]

    def compared(self, changed: Iterable[Pixel] = ()) -> list[Picture]:
        """Return the pictures that are shown before and after a change: source, result, and the axes of a gradient."""
        source, result, *others = self.all(changed)
        return [source, result, *(picture for picture in others if picture.name == "axis")]

    # ------------------------------------------------------------------------------------------------------- images

    def _picture(self, panel: Panel, name: str, values: Array, part: str) -> Picture:
        """Return a picture of an image, each pixel of which can be chosen."""
        editable = name != self.scene.result_name
        pixels = {(y, x): ((y, x), label(name, (y, x), float(values[y, x]))) for y, x in np.ndindex(*values.shape)}
        return Picture(panel, *SENTENCES[part], name, pixels, is_editable=editable)

    def _other(self, name: str, array: Array) -> Picture:
        values = array.reshape(array.shape[-3:])[:, :, 0] if array.ndim == 4 else array.reshape(1, -1)
        rows, columns = (Ruler(range(n)) for n in values.shape)
        panel = Panel(TITLES[name], rows, columns, lambda y, x: (PIXEL._replace(ink=INK), short(values[y, x])))
        return self._picture(panel, name, values, name)

    def _values(self, name: str) -> Array:
        """Return the source, or the result as far as it has played."""
        scene, step = self.scene, self.view.step
        values = scene.result[0, :, :, 0]
        if name == scene.source_name or step is None:
            return scene.source if name == scene.source_name else values
        if scene.spreads:
            played = np.where(np.arange(scene.source.size) <= step, scene.source.ravel(), 0)
            shared: Array = scene.weights.reshape(*values.shape, -1) @ played
            return shared
        return np.where(np.arange(values.size).reshape(values.shape) <= step, values, np.nan)

    def _windows(self, name: str) -> Picture:
        """The image with a pixel for each window, each in its colour."""
        values, lines, chosen = self._values(name), self.scene.lines, set(self.windows)
        counts = [[line.counts(u * line.window.stride) for u in range(line.size)] for line in lines]
        waiting = name == self.scene.result_name and self.view.step is not None

        def look(y: int, x: int) -> Cell:
            of, text = color((y, x)), short(values[y, x])
            if counts and not (counts[0][y] and counts[1][x]):
                return EXCLUDED, text
            if waiting and np.isnan(values[y, x]):
                return Style("#FFFFFF", of, dashed=True), ""
            return (Style(of, of, "#FFFFFF") if (y, x) in chosen else Style(tint(of), of)), text

        rows, columns = (Ruler(range(n)) for n in values.shape)
        picture = self._picture(Panel(TITLES[name], rows, columns, look), name, values, "windows")
        if not self.of_one_window:
            picture.below = self._shares()
        return picture

    def _shares(self) -> dict[Pixel, str]:
        """Return the weights of the view, by pixels of the other image."""
        y, x = self.view.pixel
        if self.view.is_source:
            return {
                place: f"× {fraction(float(self.scene.weights[(*place, y, x)]))}"
                for place in self.scene.reached((y, x))
            }
        return {term.pixel: f"× {fraction(term.weight)}" for term in self.scene.terms((y, x)) if term.weight}

    def _marked(self) -> set[Pixel]:
        """Return the pixels of the image that belong to the view."""
        if not self.of_one_window:
            return {self.view.pixel}
        if self.view.is_source:
            return set(self.scene.reached(self.view.pixel))
        return {term.pixel for term in self.scene.terms(self.view.pixel) if term.kind != "hollow"}

    def _image(self, name: str) -> Picture:
        """The image that the windows read or write, with its windows as brackets and frames."""
        scene, values, marked = self.scene, self._values(name), self._marked()
        of = color(self.windows[0]) if self.of_one_window else INK
        clipped = [[not line.taps(q) for q in range(line.length)] for line in scene.lines]

        def look(y: int, x: int) -> Cell:
            is_marked = self.of_one_window and (y, x) in marked
            if not (0 <= y < values.shape[0] and 0 <= x < values.shape[1]):
                style, text = OUTSIDE["outside"][0], ""
                if isinstance(scene.of, PoolingForward):
                    style, text = image_pixel(scene.of, y, x)
                return (style._replace(edge=of, key="") if is_marked else style), text
            if clipped and (clipped[0][y] or clipped[1][x]):
                return UNTOUCHED, short(values[y, x])
            return (Style(tint(of), of) if is_marked else PIXEL._replace(ink=INK)), short(values[y, x])

        rows, columns = (Ruler(self._room(axis, length)) for axis, length in enumerate(values.shape))
        panel = Panel(TITLES[name], rows, columns, look)
        part = name if name == "dw" else "written" if scene.spreads else "read"
        picture = self._picture(panel, name, values, part)
        picture.has_windows = True
        if scene.windows is not None:
            number = "N, the pixels that it divides by" if scene.is_averaging else "its number"
            picture.about += f" A bracket is a window of the axis, with {number}; a dot marks the centre."
            picture.brackets = self._brackets(0), self._brackets(1)
        if self.of_one_window:
            picture.below = self._shares()
        else:
            (y, x) = self.view.pixel
            panel.frames.append(((y, y), (x, x), Mark(INK), 0.03))
        if name == scene.result_name:
            found = {place: np.argwhere(scene.weights[place]).tolist() for place in picture.pixels}
            picture.stripes = {
                place: [color((v, u)) for v, u in some] for place, some in found.items() if len(some) <= MOST_FRAMES
            }
        for k, window in enumerate(self.windows[:MOST_FRAMES]):
            self._frame(panel, window, 0.04 * (k % 4) - 0.035)  # beside the numbers
        return picture

    def _room(self, axis: int, length: int) -> range:
        """Return the pixels of an axis of the image, and those outside that windows cover."""
        if self.scene.windows is None:
            return range(length)
        extent, line = self.scene.windows[axis].extent, self.scene.lines[axis] if self.scene.lines else None
        count = line.size if line else self.scene.result.shape[1 + axis]
        starts = [self._place(axis, u)[0] for u in range(count) if not line or line.counts(u * line.window.stride)]
        low, high = min(starts, default=0), max(starts, default=0) + extent
        if self.scene.is_forward:
            return range(min(0, low), max(length, high))
        return range(min(0, max(low, -extent)), max(length, min(high, length + extent)))

    # ------------------------------------------------------------------------------------------------------ windows

    def _place(self, axis: int, u: int) -> tuple[int, int]:
        """Return the first pixel of the window of pixel ``u`` of y or g, and its centre, in the image that is drawn."""
        window = cast("tuple[Window, Window]", self.scene.windows)[axis]
        i, shift = u, 0
        if self.scene.lines:
            line = self.scene.lines[axis]
            i, shift = u - line.primary, line.origin - window.represented_pixel(0, line.kernel_offset)
        first = window.start(i) + shift
        return first, first + window.center

    def _frame(self, panel: Panel, window: Pixel, inset: float) -> None:
        """Frame a window and mark its centre; a kernel without windows has what its pixel contributes to."""
        scene, mark = self.scene, Mark(color(window))
        if scene.windows is not None:
            (y, cy), (x, cx) = (self._place(axis, window[axis]) for axis in (0, 1))
            height, width = (one.extent for one in scene.windows)
            panel.frames.append(((y, y + height - 1), (x, x + width - 1), mark, inset))
            if self.of_one_window:
                panel.dots.append((cy, cx, mark))
        elif scene.spreads and scene.method != "gradient_weights" and (reached := scene.reached(window)):
            rows, columns = zip(*reached, strict=True)
            panel.frames.append(((min(rows), max(rows)), (min(columns), max(columns)), mark, inset))

    def _brackets(self, axis: int) -> list[Bracket]:
        """Return the windows of an axis; only those of the view if too many overlap."""
        scene, window = self.scene, cast("tuple[Window, Window]", self.scene.windows)[axis]
        line = scene.lines[axis] if scene.lines else None
        chosen = {place[axis] for place in self.windows}
        other = self.anchor[1 - axis]
        crowded = -(-window.extent // window.stride) > MOST_LEVELS
        found = []
        for u in range(line.size if line else scene.result.shape[1 + axis]):
            if (crowded and u not in chosen) or (line and not line.counts(u * window.stride)):
                continue
            first, _ = self._place(axis, u)
            of = color((other, u) if axis else (u, other))
            found.append(Bracket(first, first + window.extent - 1, self._label(axis, u), of, u in chosen))
        return found[: MOST_LEVELS if crowded else len(found)]

    def _label(self, axis: int, u: int) -> str:
        """Return the text of a bracket: N of an average, else the number of the pixel of y or g."""
        spec: Any = self.scene.problem.spec
        if not self.scene.is_averaging:
            return f"{u}"
        i = u - self.scene.lines[axis].primary if self.scene.lines else u
        return f"N = {spec.divisor(axis, i, self.scene.problem.source_shape)}"

    # ------------------------------------------------------------------------------------------------ rotated window

    @cached_property
    def _target(self) -> Pixel:
        """The pixel of the result whose rotated window is drawn."""
        reached = self.scene.reached(self.view.pixel) if self.view.is_source else [self.view.pixel]
        return reached[len(reached) // 2] if reached else (0, 0)

    def _over_gradient(self) -> list[Picture]:
        """The source gradient with inserted zeros, under the rotated window of a pixel."""
        scene, lines, target = self.scene, self.scene.lines, self._target
        if not lines:
            return []
        near = [shown(range(line.length), range(q - 1, q + 2)) for line, q in zip(lines, target, strict=True)]
        panel = kernel_over_gradient(lines, target, near)
        plain, source, name = panel.cell, scene.source, scene.source_name
        places = [(y, x) for y in panel.rows.indices for x in panel.columns.indices]
        found = {(y, x): (lines[0].pixel(y), lines[1].pixel(x)) for y, x in places}
        pixels = {place: (v, u) for place, (v, u) in found.items() if v is not None and u is not None}

        def look(y: int, x: int) -> Cell:
            style, text = plain(y, x)
            if (y, x) not in pixels:
                return style, text
            of = color(pixels[y, x])
            faces = {HIT: Style(of, of, "#FFFFFF"), GRADIENT: Style(tint(of), of)}
            return faces.get(style, style), short(source[pixels[y, x]])

        panel.cell = look
        panel.frames = [(rows, columns, Mark(INK), inset) for rows, columns, _, inset in panel.frames]
        panel.title = f"{name} with zeros inserted, and the rotated window"
        q = f"{scene.result_name}[{target[0]}, {target[1]}]"
        weights = {term.pixel: term.weight for term in scene.terms(target) if term.weight}
        return [
            Picture(
                panel,
                f"{q} sums what its rotated window, the frame, covers.",
                f"Stride - 1 zeros stand between the pixels of {name}. {scene.offsets}",
                name,
                {place: (pixel, label(name, pixel, source[pixel])) for place, pixel in pixels.items()},
                {place: f"× {fraction(weights[pixel])}" for place, pixel in pixels.items() if pixel in weights},
            )
        ]

    def _axes(self) -> list[Picture]:
        """One axis: the inserted gradient, and below it the rotated window of each pixel of the result."""
        scene, found = self.scene, []
        for axis in separate_axes(scene.gradient) if scene.lines else []:
            panel = rotated(scene.gradient, scene.lines[axis], self._target[axis])
            panel.cell = partial(self._colored, panel.cell, axis)
            panel.frames = [(rows, columns, Mark(INK), inset) for rows, columns, _, inset in panel.frames]
            panel.title = panel.title.replace("g,", f"{scene.source_name},").replace("dx", scene.result_name)
            about = (
                f"A row is the rotated window of a pixel of {scene.result_name}: taps in reverse order, a ring at "
                f"pixel + effective offset. Dark taps lie on a pixel of {scene.source_name}, light ones on a zero."
            )
            found.append(Picture(panel, f"Here {panel.note}.", about, "axis"))
        return found

    def _colored(self, plain: Callable[[int, int], Cell], axis: int, q: int, m: int) -> Cell:
        """Return a cell of an axis in the colour of its window."""
        style, text = plain(q, m)
        u, other = self.scene.lines[axis].pixel(m), self.anchor[1 - axis]
        if u is None or style not in (HIT, GRADIENT, NEAR_TAPS):
            return style, text
        of = color((other, u) if axis else (u, other))
        if style == HIT:
            return Style(of, of, "#FFFFFF"), text
        return (Style(tint(of), of) if style == GRADIENT else Style(tint(of, 0.07), tint(of, 0.15))), text


def short(value: float) -> str:
    """Return a number that fits into a cell.

    >>> short(0.58333), short(-0.58333), short(1234.0), short(123456.0)
    ('0.583', '-0.58', '1234', '1.2e5')
    """
    digits = 4 if 1000 <= abs(value) < 9999.5 else 3 if len(f"{value:.3g}") < 6 else 2
    return f"{value:.{digits}g}".replace("e+0", "e").replace("e-0", "e-")


def label(name: str, pixel: Pixel, value: float) -> str:
    """Return the description of a pixel for a screen reader."""
    return f"{name}[{pixel[0]}, {pixel[1]}] is {value:.4g}"
