"""MPSGraph's max pooling with indices through ``msl/graph_pooling.metal``."""

from __future__ import annotations

import math

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.kernels.graph_pooling import GraphPoolingForward, GraphPoolingGradient, GraphPoolingMax, Numbered
from mpsref.operations import cached_in_problem
from mpsref_metal.launch import Launcher, Tables, shapes_of, short_sums, store, types, width_of

FILES = ("graph_pooling",)


@cached_in_problem
def _tables(problem: GraphPoolingForward | GraphPoolingGradient) -> tuple[Tables, int]:
    """Return the buffers of rows, columns and outer axes, and the largest number of elements of a run of both."""
    tables = problem.tables()
    image, _, _, channel = problem.numbering
    terms = math.prod(int(table.number.max()) for table in tables)
    return Tables([*map(_structs, tables), np.array([image, channel], np.int32)]), terms


def _structs(table: Numbered) -> Array:
    first, number, base, step, change = table
    columns = first, number, base, np.full_like(first, step), np.full_like(first, change)
    return np.stack(columns, axis=1)


def forward(launch: Launcher, problem: GraphPoolingForward, x: Array, out: tuple[Array, Array]) -> None:
    """Run ``forward``, and round the maxima into ``out``."""
    y, _ = out
    width = width_of(y.shape[3], x, *out)
    tables, _ = _tables(problem)
    known = types(width, Storage=x, Gradient=x, Number=np.int32)
    results = [(y.shape, np.float32), (y.shape, np.int32)]
    buffers = [x, tables, shapes_of(x.shape, y.shape, width)]
    for result, one in zip(launch.run(FILES, "forward", buffers, results, known, y.size // width), out, strict=True):
        store(result, one)


def gradient(launch: Launcher, problem: GraphPoolingGradient, g: Array, indices: Array, out: Array) -> None:
    """Run ``gradient``."""
    width = width_of(out.shape[3], g, indices, out)
    tables, terms = _tables(problem)
    known = *types(width, Storage=g, Gradient=g, Number=np.int32), *short_sums(terms)
    launch.into(
        FILES, "gradient", [g, indices, tables, shapes_of(g.shape, out.shape, width)], out, known, out.size // width
    )


IMPLEMENTATIONS = {(GraphPoolingMax, "forward"): forward, (GraphPoolingMax, "gradient"): gradient}
