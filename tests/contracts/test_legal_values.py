"""Which values each argument takes: of kernels and their methods, and of constructors and properties of classes.

``tests/subjects/legal_values.txt`` has a row for each name: the probes that are legal, and those that end with a
``ValueError``; all others end with a ``TypeError``. Where kernels or classes differ, those with other values than most
have rows of their own. Errors name the argument, and an attribute keeps its value. After a change on purpose,
``python -m tests.contracts.test_legal_values`` writes the file again.
"""

from __future__ import annotations

import inspect
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import cache, partial
from itertools import chain
from math import inf, nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from mpsref.conformance.case import operations
from tests import few
from tests.contracts.test_illegal_calls import arguments_of
from tests.contracts.test_objects import settable
from tests.subjects.classes import MADE, OTHERWISE, arguments, made
from tests.subjects.operations import typical

FILE = Path(__file__).parents[1] / "subjects" / "legal_values.txt"

PROBES = """None True np.True_ -1 0 1 2 3 4 2**31 2**62 2**64 10**400 np.int64(4) -0.5 0.0 0.25 1.0 1.5 1e39 nan inf
-inf '' 'x' 'zero' 'clamp' 'mirror' b'1' 1j [] [1.5,nan] ['x'] (1,) (1,2) (-1,0) (0,2) (1,True) (1.0,2) (1,2,3) (0,1,1)
(1,0,-1) (1,0.5,1) (1,2,3,4) ((0,0),(1,1)) ((0,0),(1,-1)) ((0,0,0),(1,1,1)) ((0,0,-1),(1,1,1)) ((0,0,0),(1,-1,1))
object""".split()  # noqa: SIM905
"""Values beside the bounds of all ranges, and of all wrong types."""

VALUES = {text: eval(text, {"inf": inf, "nan": nan, "np": np}) for text in PROBES}

ELSEWHERE = frozenset(
    """backend handle label mask out properties shape source_shape validate x_or_shape image_descriptor labels
    labels_image members right_source source_gradient sources weights weights_descriptor weights_image weights_offset
    convolution_gradient_state convolution_transpose_gradient_state result_image_is_needed
    results_are_needed""".split()  # noqa: SIM905
)
"""Arguments that have tests of their own, most of them images, nodes and memory."""

OTHER_NAMES = {
    "gamma": "gamma|beta",
    "mean": "mean|variance",
    "a_data": "data",
    "anchor_boxes": "buffer size",
    "channel_format": "channel format",
    "cnn_convolution_descriptor": "weights",
    "fill_value_array": "fill_values",
    "filter_size": "kernel_width|dilation_rate_x",
    "kernel_size": "kernel_width",
    "mask_stride_in_pixels": "mask_strides",
    "neuron_type": "data",
    "offset": "would have shape",
    "output_size": "the result",
    "padding_method": "method",
    "size": "data",
    **dict.fromkeys(["kernel_width", "kernel_height", "stride_in_pixels_x", "stride_in_pixels_y"], "filter_size"),
    **dict.fromkeys(["result_width", "result_height", "result_feature_channels"], "size["),
}
"""What a message names in place of an argument: what it is of another argument, or what does not fit together."""


class Argument(NamedTuple):
    """An argument of a kernel or class, and what is called with a value for it."""

    owner: str
    name: str
    call: Callable[[Any], object]


def of_kernels() -> Iterator[Argument]:
    """Yield the parameters of kernels, and those of their methods that are no arrays."""
    seen = set[type[Any]]()
    for operation in operations():
        case = typical(operation)
        spec, given = case.problem.spec, arguments_of(case)
        for one in fields(spec) if type(spec) not in seen else ():  # what else is legal depends on the case
            yield Argument(type(spec).__name__, one.name, lambda value, s=spec, n=one.name: replace(s, **{n: value}))
        seen.add(type(spec))
        method = getattr(spec, operation.method)
        for name in inspect.signature(method).parameters:
            if not isinstance(given.get(name), (np.ndarray, list)) and name not in case.problem.inputs:
                yield Argument(str(operation), name, lambda v, m=method, g=given, n=name: m(**g | {n: v}))


def of_class(kind: type[Any]) -> Iterator[Argument]:
    """Yield the arguments of a constructor, and the attributes that can be set."""
    if kind.__name__ not in OTHERWISE:
        legal = arguments(kind)
        for name, one in inspect.signature(kind).parameters.items():
            if one.kind is not one.VAR_KEYWORD:
                yield Argument(kind.__name__, name, lambda value, n=name: kind(**legal | {n: value}))
    if not issubclass(kind, tuple):
        one = made(kind)
        yield from (Argument(kind.__name__, f".{name}", partial(assigned, one, name)) for name in settable(kind))


def assigned(one: Any, name: str, value: Any) -> None:
    """Set an attribute, which keeps its value if that fails, and set it back."""
    before = getattr(one, name)
    try:
        setattr(one, name, value)
    except (ValueError, TypeError, AttributeError):
        np.testing.assert_equal(getattr(one, name), before)
        raise
    setattr(one, name, before)


def outcome(argument: Argument) -> str:
    """Return which probes are legal, and which end with a ``ValueError``, as a row of the file says it."""
    name, found = argument.name.lstrip("."), defaultdict[str, list[str]](list)
    words = name, *OTHER_NAMES.get(name, name).split("|")
    for text, value in VALUES.items():
        try:
            argument.call(value)
        except (ValueError, TypeError, AttributeError) as error:
            if not any(word in str(error) for word in words):
                pytest.fail(f"{argument}: {error}")
            found["ValueError" if isinstance(error, ValueError) else "TypeError"].append(text)
        else:
            found["legal"].append(text)
    if len(found) == 1:
        return ""  # anything, or an object of a class
    return f"{' '.join(found['legal'])} ; {' '.join(found['ValueError'])}".strip()


@cache
def read() -> dict[tuple[str, str], str]:
    """Return the rows of the file by name and owner."""
    table = {}
    for line in FILE.read_text("utf-8").splitlines():
        head, _, row = line.partition(":")
        name, *owners = head.split()
        table |= dict.fromkeys(((name, owner) for owner in owners or ("",)), row.strip())
    return table


def write() -> None:
    """Write the rows of all arguments."""
    found = defaultdict[str, dict[str, str]](dict)
    for one in chain(of_kernels(), *map(of_class, MADE)):
        if one.name.lstrip(".") not in ELSEWHERE:
            found[one.name][one.owner] = outcome(one)
    lines = []
    for name, rows in sorted(found.items()):
        ((most, _),) = Counter(rows.values()).most_common(1)
        for row in sorted({*rows.values()}, key=lambda row, most=most: (row != most, row)):
            owners = "" if row == most else " ".join(["", *sorted(owner for owner in rows if rows[owner] == row)])
            if row or len({*rows.values()}) > 1:
                lines.append(f"{name}{owners}: {row}".rstrip() + "\n")
    FILE.write_text("".join(lines), "utf-8")


def check(found: Iterator[Argument]) -> None:
    table = read()
    for one in found:
        if one.name.lstrip(".") not in ELSEWHERE:
            row = table.get((one.name, one.owner), table.get((one.name, ""), ""))
            assert outcome(one) == row, one


def test_kernels() -> None:
    check(of_kernels())


@pytest.mark.parametrize("kind", few(MADE[1::2] + MADE[::2], len(MADE) // 2), ids=lambda kind: kind.__name__)
def test_classes(kind: type[Any]) -> None:
    check(of_class(kind))


if __name__ == "__main__":
    write()
