"""Mutants of windows: a matrix of mistakes and kernels. A mistake applies to the kernels that have its fields."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import fields

from mpsref.arguments.parameters import Pair
from mpsref.conformance.mutants import MutantTable, OtherField, of_spec
from mpsref.geometry import Window, tdiv2
from mpsref.registry import Spec


def swap(pair: Pair) -> Pair:
    """Return (x, y) of (y, x)."""
    return pair[1], pair[0]


def _moved(step: Callable[[Window], int]) -> OtherField:
    """Return the offset moved by ``step(window)`` on each axis."""
    return lambda spec: tuple(window.offset + step(window) for window in spec.windows)


MISTAKES: dict[str, dict[str, OtherField]] = {
    "the windows start one pixel late": {"offset": _moved(lambda window: 1)},
    "the rows start one pixel early": {"offset": lambda spec: (spec.windows[0].offset - 1, spec.windows[1].offset)},
    "an even window has its extra tap on the other side": {"offset": _moved(lambda window: window.even)},
    "the offset is ignored": {"offset": lambda spec: 0},
    "the offset is the left edge": {"offset": _moved(lambda window: window.center)},
    "the offset has the other sign": {"offset": _moved(lambda window: -2 * window.offset)},
    "the offset of the other axis is taken": {"offset": lambda spec: swap(spec.offset)},
    "a negative offset is halved as C divides": {
        "offset": _moved(lambda window: tdiv2(window.offset) - window.offset // 2)
    },
    "the kernel size of the other axis is taken": {"kernel_size": lambda spec: swap(spec.kernel_size)},
    "the window is one pixel larger": {"kernel_size": lambda spec: tuple(k + 1 for k in spec.kernel_size)},
    "the stride is ignored": {"strides": lambda spec: 1},
    "the stride of the other axis is taken": {"strides": lambda spec: swap(spec.strides)},
    "the dilation is ignored": {"dilations": lambda spec: 1},
    "the dilation of the other axis is taken": {"dilations": lambda spec: swap(spec.dilations)},
    "stride and dilation are exchanged": {
        "strides": lambda spec: spec.dilations,
        "dilations": lambda spec: spec.strides,
    },
    "the centre of a dilated window is floor(K / 2) * d": {
        "offset": _moved(lambda window: window.center - window.kernel // 2 * window.dilation),
        "dilations": lambda spec: spec.dilations,
    },
    "the centre of a dilated window is floor(K / 2)": {
        "offset": _moved(lambda window: window.center - window.kernel // 2),
        "dilations": lambda spec: spec.dilations,
    },
    "outside reads the border pixel in both edge modes": {"edge_mode": lambda spec: "clamp"},
    "outside reads 0 in both edge modes": {"edge_mode": lambda spec: "zero"},
}
"""Which fields of a spec each mistake replaces, and with what."""


def window_mutants(spec_type: type[Spec], fixed: Collection[str] = ()) -> MutantTable:
    """Return the mutants of the geometry of a kernel; no mistake changes the fields in ``fixed``."""
    own = {field.name for field in fields(spec_type)} - {*fixed}
    return {name: of_spec(**changes) for name, changes in MISTAKES.items() if changes.keys() <= own}
