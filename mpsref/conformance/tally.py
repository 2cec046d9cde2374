"""Counts of what a check has tried: geometry, parameters, data and errors, as histograms that can be added."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from mpsref.arguments.layouts import effect, way_of
from mpsref.conformance.case import Case
from mpsref.conformance.data import FINITE
from mpsref.registry import Operation, Problem

Value: TypeAlias = int | str

Tally: TypeAlias = dict[str, dict[Value, int]]
"""For each feature of a case, such as ``kernel_size``, how many cases had each value."""

ERROR = "error / bound"
"""The feature of the worst error of a case, as a fraction of its bound."""

LAYOUT = "memory layout"
"""The feature of how inputs lie in memory, by :func:`mpsref.arguments.layouts.effect`."""

TENTHS = tuple(f"{k / 10:.1f} to {(k + 1) / 10:.1f}" for k in range(10))
"""The values of errors above 0."""

SMALL = 8
"""Larger integers are joined into ranges between powers of two."""


def tally(case: Case, fraction: float | None = None) -> Tally:
    """Return the features of a case, each value counted once.

    Parameters
    ----------
    case
        The case.
    fraction
        The worst error as a fraction of its bound; ``None`` if the case did not pass.

    Examples
    --------
    >>> found = tally(Case.parse("PoolingMax.forward:n1h5w9c2,k3x2,float32,seed=1"), 0.25)
    >>> found["kernel_size"], found["width"], found["error / bound"]
    ({3: 1, 2: 1}, {9: 1}, {'0.2 to 0.3': 1})
    """
    found: dict[str, Iterable[Value]] = {}
    image = next((shape for shape in case.problem.input_shapes.values() if len(shape) == 4), ())
    found |= {axis: [length] for axis, length in zip(("images", "height", "width", "channels"), image, strict=False)}
    for thing in (case.problem.spec, case.problem):
        for one in dataclasses.fields(thing):
            if "codec" in one.metadata and one.name != "source_shape":
                found[one.name] = _values(getattr(thing, one.name))
    found |= {"dtype": [case.dtype], "data": [case.family]}
    if case.layouts:
        shapes = case.problem.input_shapes.values()
        found[LAYOUT] = [effect(layout, shape) for layout, shape in zip(case.layouts, shapes, strict=True)]
    if fraction is not None:
        found[ERROR] = ["0" if fraction == 0 else TENTHS[min(int(10 * fraction), 9)]]
    return {feature: dict.fromkeys(values, 1) for feature, values in found.items()}


def possible_layouts(operation: Operation, layouts: Sequence[str]) -> Tally:
    """Return the layouts that inputs of an operation can have, each with a count of 0.

    >>> from mpsref.conformance.case import operation_named
    >>> possible_layouts(operation_named("PoolingMax.forward"), ("nchw", "nhwc-gap"))
    {'memory layout': {'nchw': 0, 'nhwc-gap': 0}}
    """
    inputs = operation.spec_type.problems[operation.method].inputs.values()
    read = [one.dtype for one in inputs if one.dtype != "shape"]
    images = [layout for layout in layouts if any(dtype != "real" for dtype in read)]
    vectors = ["vector" + way_of(layout) for layout in layouts if "real" in read]
    found: dict[Value, int] = dict.fromkeys([*images, *vectors], 0)
    return {LAYOUT: found} if found else {}


def _values(value: object) -> Iterator[Value]:
    """Yield the value of a field, or those of all members of a tuple; floats by their sign and size."""
    if isinstance(value, tuple):
        for one in value:
            yield from _values(one)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield value
    elif isinstance(value, float) and value not in (0, 1, -1):
        yield f"{'-' if value < 0 else ''}{'(0, 1)' if abs(value) < 1 else '> 1'}"
    elif isinstance(value, float):
        yield f"{value:g}"
    elif value is None:
        yield "default"
    else:
        yield str(getattr(value, "type", value))


def added(tallies: Iterable[Mapping[str, Mapping[Value, int]]]) -> Tally:
    """Return the sum of several tallies.

    >>> added([{"dtype": {"float32": 2}}, {"dtype": {"float16": 1, "float32": 1}}])
    {'dtype': {'float32': 3, 'float16': 1}}
    """
    total: dict[str, Counter[Value]] = {}
    for one in tallies:
        for feature, counts in one.items():
            total.setdefault(feature, Counter()).update(counts)
    return {feature: dict(counts) for feature, counts in total.items()}


def histogram(operation: Operation, feature: str, counts: Mapping[Value, int]) -> dict[str, int]:
    """Return the counts of a feature in order, with 0 for values that were possible and not tried.

    >>> from mpsref.conformance.case import operation_named
    >>> histogram(operation_named("PoolingMax.forward"), "edge_mode", {"clamp": 7})
    {'zero': 0, 'clamp': 7}
    >>> histogram(operation_named("PoolingMax.forward"), "height", {14: 1, 6: 2})
    {'6': 2, '7': 0, '8': 0, '9 to 16': 1}
    """
    numbers = [value for value in counts if isinstance(value, int)]
    words = [value for value in counts if isinstance(value, str)]
    bins = {word: counts.get(word, 0) for word in [*_alternatives(operation, feature), *words]}
    for span in _ranges(min(numbers), max(numbers)) if numbers else ():
        first, last = span[0], span[-1]  # a range of 64 bits has no len
        name = f"{first}" if first == last else f"{first} to {last}"
        bins[name] = sum(counts[n] for n in numbers if n in span)
    return bins


def unreached(problem: Problem, tried: Mapping[str, Mapping[Value, int]]) -> list[str]:
    """Return the edges of the parameters of an operation that no case had, as "parameter value".

    Edges are all values of a parameter that has few, and the ends of the range of a number. Those that are not legal
    in ``problem``, any one of the operation, are left out.

    >>> case = Case.parse("PoolingMax.forward:n1h5w9c2,k3x2,float32,seed=1")
    >>> unreached(case.problem, tally(case))
    ['kernel_size 1', 'edge_mode clamp', 'output_size 1']
    """
    found = []
    for one in _fields(problem.operation):
        codec = one.metadata["codec"]
        ends = [edge if isinstance(edge, int) else f"{edge:g}" for edge in codec.edges]
        missing = [value for value in (*codec.words, *ends) if value not in tried.get(one.name, {})]
        found += [f"{one.name} {value}" for value in missing if _is_legal(problem, one.name, value)]
    return found + [f"{LAYOUT} {layout}" for layout, count in tried.get(LAYOUT, {}).items() if not count]


def _is_legal(problem: Problem, name: str, value: Value) -> bool:
    try:
        number = float(value)
    except ValueError:
        number = None
    given = {"True": True, "False": False}.get(
        str(value), value if number is None or isinstance(value, int) else number
    )
    change: dict[str, Any] = {name: given}
    try:
        if hasattr(problem.spec, name):
            change = {"spec": dataclasses.replace(problem.spec, **change)}
        dataclasses.replace(problem, **change)
    except ValueError:
        return False
    return True


def _fields(operation: Operation) -> Iterator[dataclasses.Field[Any]]:
    for owner in (operation.spec_type, operation.spec_type.problems[operation.method]):
        yield from (one for one in dataclasses.fields(owner) if "codec" in one.metadata)


def described(operation: Operation, tried: Mapping[str, Mapping[Value, int]]) -> str:
    """Return how many cases had which values of the parameters of an operation, in a line.

    >>> from mpsref.conformance.case import operation_named
    >>> described(operation_named("PoolingMax.forward"), {"edge_mode": {"clamp": 7}})
    'edge_mode zero 0, clamp 7'
    """
    found = []
    for name in (name for name in (*(one.name for one in _fields(operation)), LAYOUT) if name in tried):
        words = _alternatives(operation, name)
        bins = histogram(operation, name, tried[name]).items()
        found.append(f"{name} {', '.join(f'{value} {count}' for value, count in bins if count or value in words)}")
    return "; ".join(found)


def _ranges(low: int, high: int) -> Iterator[range]:
    """Yield ranges that cover the integers from ``low`` to ``high``."""
    if low < -SMALL:
        yield range(low, -SMALL)
    for n in range(max(low, -SMALL), min(high, SMALL) + 1):
        yield range(n, n + 1)
    start = SMALL + 1
    while start <= high:
        yield range(start, 2 * start - 1)
        start = 2 * start - 1


def _alternatives(operation: Operation, feature: str) -> tuple[str, ...]:
    """Return the words that a feature can have."""
    if feature in (ERROR, "data"):
        return ("0", *TENTHS) if feature == ERROR else (*FINITE, "nonfinite")
    return next((one.metadata["codec"].words for one in _fields(operation) if one.name == feature), ())
