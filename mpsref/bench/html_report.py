"""The report of a benchmark as one HTML page with pictures: roofline, bandwidth, and ratios to PyTorch."""

from __future__ import annotations

import io
import statistics
from typing import TYPE_CHECKING, Any

import numpy as np

from mpsref.bench.report import BenchReport, Measurement
from mpsref.viz.figures import figure_type
from mpsref.viz.page import Page, add

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = ("operation", "layer", "backend", "MB", "ms", "copy ms", "PyTorch ms", "x PyTorch", "of its limit")


def page(report: BenchReport) -> str:
    """Return the page of a report.

    Parameters
    ----------
    report : BenchReport
        The result of a benchmark.

    Returns
    -------
    str
        HTML that needs no other file and no network.

    Raises
    ------
    UnsupportedError
        If matplotlib is not installed.
    """
    make = figure_type()
    found = Page("mpsref bench")
    versions, rounds = report.heading
    add(found.body, "p", "; ".join([versions, *(f"{name}: {device}" for name, device in report.devices.items())]))
    add(found.body, "p", rounds)
    for title, draw, measurements in (
        ("Arithmetic: rate against operations per byte", _roofline, [m for m in report.measurements if m.flops]),
        ("Memory: bandwidth against size", _bandwidth, [m for m in report.measurements if not m.flops]),
        ("Speed relative to PyTorch, by layer", _ratios, [m for m in report.measurements if m.pytorch]),
    ):
        if measurements:
            rows = len({m.operation for m in measurements}) if draw is _ratios else 18
            figure = make(figsize=(10, max(2.0, 0.8 + 0.26 * rows)), layout="constrained")
            draw(figure.subplots(), measurements)
            _picture(found.body, title, figure)
    lines = found.table(COLUMNS)
    for m in report.measurements:
        for name, seconds in m.backends.items():
            line, speedup = add(lines, "tr"), m.speedup(name)
            for text in (m.operation, m.layer, name):
                add(line, "td", text)
            for number in (m.nbytes / 1e6, 1e3 * seconds, 1e3 * m.copy, m.pytorch and 1e3 * m.pytorch, speedup):
                add(line, "td", "-" if number is None else f"{number:.3f}", class_="number")
            add(line, "td", f"{m.limit / seconds:.0%}", class_="number")
    return found.text()


def _roofline(axes: Axes, measurements: list[Measurement]) -> None:
    """Draw the rate of each layer under the roof of the copy and of the matrix product."""
    bandwidth = statistics.median(m.nbytes / m.copy for m in measurements)
    peak = statistics.median(m.flops / (m.product or m.limit) for m in measurements)
    found = [m.flops / m.nbytes for m in measurements]
    intensities = np.geomspace(min(found) / 2, 2 * max(found), 100)
    axes.plot(intensities, np.minimum(intensities * bandwidth, peak) / 1e9, color="gray", label="copy, matrix product")
    _rates(axes, measurements, lambda m: m.flops / m.nbytes, lambda m: m.flops / 1e9)
    axes.set(xscale="log", yscale="log", xlabel="operations per byte", ylabel="GFLOP/s")


def _bandwidth(axes: Axes, measurements: list[Measurement]) -> None:
    """Draw the bytes per second of each layer, and those of the copy."""
    own = sorted(measurements, key=lambda m: m.nbytes)
    axes.plot([m.nbytes / 1e6 for m in own], [m.nbytes / m.copy / 1e9 for m in own], color="gray", label="copy")
    _rates(axes, measurements, lambda m: m.nbytes / 1e6, lambda m: m.nbytes / 1e9)
    axes.set(xscale="log", yscale="log", xlabel="MB read and written", ylabel="GB/s")


def _rates(axes: Axes, measurements: list[Measurement], x: Any, work: Any) -> None:
    """Draw ``work(m)`` in a second over ``x(m)``, for each backend and for PyTorch."""
    for name in (*_backends(measurements), "PyTorch"):
        timed = [(m, m.pytorch if name == "PyTorch" else m.backends.get(name)) for m in measurements]
        points = [(x(m), work(m) / seconds) for m, seconds in timed if seconds]
        if points:
            across, up = zip(*points, strict=True)
            axes.scatter(across, up, s=14, marker="x" if name == "PyTorch" else "o", label=name)
    axes.legend()


def _ratios(axes: Axes, measurements: list[Measurement]) -> None:
    """Draw a row of dots for each operation."""
    operations = list(dict.fromkeys(m.operation for m in measurements))
    axes.axvline(1, color="gray")
    for name in _backends(measurements):
        own = [m for m in measurements if name in m.backends]
        rows = [operations.index(m.operation) for m in own]
        axes.scatter([m.speedup(name) or 0 for m in own], rows, s=14, label=name)
    axes.set(xscale="log", xlabel="times as fast as PyTorch")
    axes.set_yticks(range(len(operations)), operations)
    axes.invert_yaxis()
    axes.grid(axis="y", alpha=0.3)
    axes.legend()


def _backends(measurements: list[Measurement]) -> list[str]:
    return list(dict.fromkeys(name for m in measurements for name in m.backends))


def _picture(body: Element, title: str, figure: Figure) -> None:
    """Append a figure as SVG, in an image whose alternative text is the title."""
    from base64 import b64encode

    text = io.BytesIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    add(body, "h2", title)
    source = "data:image/svg+xml;base64," + b64encode(text.getvalue()).decode()
    add(body, "img", src=source, alt=f"{title}; the numbers are in the table below")
