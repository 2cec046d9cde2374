"""Kernels and classes that have a value: copies, ``repr``, pickles and JSON keep every property, and share none."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
from dataclasses import FrozenInstanceError, fields, replace
from math import inf
from typing import Any

import numpy as np
import pytest

import mpsref
from mpsref import mps, registry
from mpsref.conformance.case import operations
from mpsref.conformance.runner import compute
from mpsref.mps import graph
from mpsref.operations import Operation
from tests.subjects.classes import MADE, made
from tests.subjects.operations import typical

NAMES = {name: getattr(module, name) for module in (mps, graph) for name in module.__all__} | {"inf": inf}

WITHOUT_VALUE = frozenset(["MPSNNPadding", "SecureCoding"])
"""Base classes of the application."""

SAVED = [kind for kind in MADE if hasattr(kind, "to_json") and kind.__name__ not in WITHOUT_VALUE]
EQUAL = [
    *SAVED, mps.MPSImage, mps.MPSImageBatch, mps.MPSImageCoordinate, mps.MPSImageDescriptor, mps.MPSOffset,
    mps.MPSRegion, mps.MPSTemporaryImage, mps.MTLOrigin, mps.MTLRegion, mps.MTLSize,
]  # fmt: skip
"""Classes whose equal objects are equal; states, nodes and buffers are equal to themselves alone."""

NO_VALUES = {
    "prelu_parameters_a": "``repr`` cannot show the slopes of a fused PReLU",
    "label": "it identifies an object, and is not saved",
    "read_count": "the life of a temporary image is no part of its value",
}

VALUES = [
    3, 4, 0.25, 0.75, 2.5, True, False, "clamp", "mean", "l2", "none", "documented", 2, 1, 0, 7.0,
    (1, 2, 0), ((1, 2, 3), (4, 5, 6)), mps.MPSNNDefaultPadding(32, "clamp"), "reference", [0.5, 0.5],
    mps.MPSNNNeuronDescriptor("elu", a=0.5),
]  # fmt: skip


def settable(kind: type[Any]) -> list[str]:
    named = (name for name in dir(kind) if name[0] != "_" and name not in NO_VALUES)
    return [name for name in named if hasattr(inspect.getattr_static(kind, name), "__set__")]


def changed(one: Any) -> list[str]:
    """Give each property another value; return the names of those that have one."""
    names = []
    for name in settable(type(one)):
        before = getattr(one, name)
        for value in VALUES:
            try:
                setattr(one, name, value)
            except (ValueError, TypeError, AttributeError):
                continue
            if not np.array_equal(getattr(one, name), before):
                names.append(name)
                break
    return names


def values(one: Any) -> dict[str, Any]:
    return {name: getattr(one, name) for name in settable(type(one))}


@pytest.mark.parametrize("kind", EQUAL, ids=lambda kind: kind.__name__)
def test_a_twin_is_equal_and_independent(kind: type[Any]) -> None:
    one = made(kind)
    names = changed(one)
    assert not names or one != made(kind), "equality knows the properties"
    twins = {"copy": copy.copy(one), "deepcopy": copy.deepcopy(one), "pickle": pickle.loads(pickle.dumps(one))}
    if hasattr(kind, "copy"):
        twins["copy()"] = one.copy()
    if not hasattr(one, "data_source") and not kind.__name__.endswith(("DataSource", "Image", "ImageBatch")):
        twins["repr"] = eval(repr(one), NAMES)
    if kind in SAVED:
        assert one.to_json() == json.dumps(one.to_dict(), sort_keys=True, separators=(",", ":"))
        backend = {"backend": one.backend} if "backend" in names else {}
        twins["json"] = kind.from_json(one.to_json(), **backend)
        twins["dict"] = kind.from_dict(one.to_dict(), **backend)
        for form in twins.values():
            assert form.to_json() == one.to_json()
        other = mps.MPSNNOptimizerAdam if kind is not mps.MPSNNOptimizerAdam else mps.MPSNNSlice
        with pytest.raises(ValueError, match="class"):
            other.from_json(one.to_json())
    expected, former = values(one), values(made(kind))
    for form, twin in twins.items():
        assert type(twin) is kind, form
        assert twin == one, form
        for name, value in values(twin).items():
            np.testing.assert_array_equal(value, expected[name], f"{name} of {form}")
        for name in names:
            setattr(twin, name, former[name])
        assert not names or twin != one, form
    for name, value in values(one).items():
        np.testing.assert_array_equal(value, expected[name], f"a twin shares {name}")


SPECS = {one.spec_type.__name__: one.spec_type for one in operations()} | {"inf": inf}


@pytest.mark.parametrize("operation", list(operations()), ids=str)
def test_kernels_are_values(operation: Operation) -> None:
    case = typical(operation)
    spec = case.problem.spec
    compute(case.problem, registry.get_backend("reference"), *case.inputs())  # what it keeps of that is no part of it
    twins = [copy.copy(spec), copy.deepcopy(spec), pickle.loads(pickle.dumps(spec)), replace(spec)]
    for twin in [*twins, eval(repr(spec), vars(mpsref) | SPECS), pickle.loads(pickle.dumps(case.problem)).spec]:
        assert twin == spec
        assert (type(twin), hash(twin), repr(twin)) == (type(spec), hash(spec), repr(spec))
        assert vars(twin).keys() <= {one.name for one in fields(spec)}
    for one in fields(spec):
        with pytest.raises(FrozenInstanceError):
            setattr(spec, one.name, getattr(spec, one.name))


def test_repr_is_short_and_names_the_class() -> None:
    for kind in MADE:
        text = repr(made(kind))
        assert kind.__name__ in text or kind is mps.MPSImageBatch
        assert len(text) < 2000, kind.__name__
