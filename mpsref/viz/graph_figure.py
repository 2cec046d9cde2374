"""Figure of a compiled graph: each step below its inputs, gradient steps to the right of the forward steps.

Forward steps are white, gradient steps are grey, and additions inserted by the training graph have rounded corners.
Dotted lines are states.
"""

from __future__ import annotations

import os
from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

from mpsref.viz.figures import figure_type
from mpsref.viz.grid_figure import FAINT, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mpsref.mps.graph import MPSNNFilterNode, MPSNNGraph, MPSNNImageNode

WIDTH, HEIGHT = 2.5, 0.52
"""Size of a box in inches."""
ACROSS, DOWN = 2.9, 0.95
"""Distance between the centres of boxes in inches."""
FACES = {"input": "#E4EEF8", "forward": "white", "gradient": "#E3E3E3", "inserted": "#FBEFD9"}

Position = tuple[float, float]
Node: TypeAlias = "MPSNNImageNode | MPSNNFilterNode"


def draw(graph: MPSNNGraph, path: str | os.PathLike[str] | None = None) -> Figure:
    """Draw the steps of a compiled graph.

    Parameters
    ----------
    graph : MPSNNGraph
    path : path-like, optional
        Write the figure to this file; the suffix selects the format.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    UnsupportedError
        If matplotlib is not installed.
    """
    new_figure = figure_type()
    positions = _positions(graph)
    across = max(x for x, _ in positions.values()) + 1
    down = max(y for _, y in positions.values()) + 1
    figure = new_figure(figsize=(ACROSS * across + 0.4, DOWN * down + 0.4))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(-ACROSS / 2 - 0.2, ACROSS * (across - 0.5) + 0.2), ylim=(DOWN * (down - 0.5) + 0.2, -DOWN / 2 - 0.2))
    axes.set_axis_off()
    for step in graph.program.steps:
        for image in step.node.source_images:
            _arrow(axes, positions[image.producer or image], positions[step.node], "-")
        for state in step.node.source_states:
            if state.producer is not None:
                _arrow(axes, positions[state.producer], positions[step.node], ":")
    for image in graph.source_images:
        _box(axes, positions[image], "input", image.name, "")
    for step in graph.program.steps:
        label = graph.program.labels[step.node]
        _box(axes, positions[step.node], step.kind, label, type(step.node).__name__.removesuffix("Node"))
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def _positions(graph: MPSNNGraph) -> dict[Node, Position]:
    """Return (column, row) of each input and step: below all of its inputs, forward steps to the left."""
    rows: dict[Node, int] = dict.fromkeys(graph.source_images, 0)
    columns: dict[Node, int] = {image: k for k, image in enumerate(graph.source_images)}
    used: dict[tuple[bool, int], int] = defaultdict(int)
    forward = 0
    for step in graph.program.steps:
        node = step.node
        above = [rows[image.producer or image] for image in node.source_images]
        rows[node] = 1 + max(above)
        aside = step.kind != "forward"
        columns[node] = used[aside, rows[node]]
        used[aside, rows[node]] += 1
        if not aside:
            forward = max(forward, columns[node] + 1)
    gradients = {step.node for step in graph.program.steps if step.kind != "forward"}
    bottom = max(rows.values())
    # Gradient steps go upwards, so that each is near its forward step.
    first = min((rows[node] for node in gradients), default=0)
    return {
        node: (columns[node] + forward, bottom - row if first <= row else row)
        if node in gradients
        else (columns[node], row)
        for node, row in rows.items()
    }


def _box(axes: Axes, position: Position, kind: str, label: str, name: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    x, y = ACROSS * position[0], DOWN * position[1]
    style = "round,pad=0,rounding_size=0.26" if kind in ("input", "inserted") else "square,pad=0"
    corner = x - WIDTH / 2, y - HEIGHT / 2
    axes.add_patch(
        FancyBboxPatch(corner, WIDTH, HEIGHT, boxstyle=style, facecolor=FACES[kind], edgecolor=INK, zorder=2)
    )
    axes.text(x, y - (0.09 if name else 0), label, ha="center", va="center", color=INK, fontsize=10, zorder=3)
    if name:
        axes.text(x, y + 0.13, name, ha="center", va="center", color=FAINT, fontsize=6.5, zorder=3)


def _arrow(axes: Axes, begin: Position, end: Position, line: str) -> None:
    (x0, y0), (x1, y1) = ((ACROSS * x, DOWN * y) for x, y in (begin, end))
    sideways = abs(y1 - y0) < DOWN / 2
    if sideways:
        x0, x1 = (x0 + WIDTH / 2, x1 - WIDTH / 2) if x1 > x0 else (x0 - WIDTH / 2, x1 + WIDTH / 2)
    else:
        y0, y1 = (y0 + HEIGHT / 2, y1 - HEIGHT / 2) if y1 > y0 else (y0 - HEIGHT / 2, y1 + HEIGHT / 2)
    look = {"arrowstyle": "-|>", "color": FAINT, "linestyle": line, "linewidth": 0.9, "shrinkA": 0, "shrinkB": 0}
    bend = f"arc3,rad={0.12 if abs(y1 - y0) > 1.5 * DOWN or sideways else 0}"
    axes.annotate("", (x1, y1), (x0, y0), arrowprops={**look, "connectionstyle": bend}, zorder=1)
