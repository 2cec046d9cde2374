"""What holds for every operation on every backend: layouts, subclasses, ``out``, dtypes, empty batches, threads."""

from __future__ import annotations

import contextlib
import copy
import itertools
import operator
import os
import re
from collections.abc import Callable, Collection
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from mpsref import ShapeError, registry
from mpsref.arguments.arrays import Array
from mpsref.backend import Backend
from mpsref.conformance import checker
from mpsref.conformance.case import Case, operations
from mpsref.conformance.isolation import Limits
from mpsref.conformance.runner import compute, references
from mpsref.operations import Operation, Problem
from mpsref_cpu import threads
from tests import few
from tests.conftest import AVAILABLE
from tests.contracts.test_illegal_calls import arguments_of
from tests.subjects.operations import large, typical

every_operation = pytest.mark.parametrize("operation", list(operations()), ids=str)


def listed(values: Any) -> tuple[Any, ...]:
    return values if isinstance(values, tuple) else (values,)


def mapped(function: Callable[[Array], Array], value: Any) -> Any:
    """Apply a function to an array, or to the arrays in a list or tuple; return anything else as it is."""
    if isinstance(value, (list, tuple)):
        values = [mapped(function, one) for one in value]
        return type(value)(*values) if hasattr(value, "_fields") else type(value)(values)
    return function(value) if isinstance(value, np.ndarray) else value


# ---- layouts --------------------------------------------------------------------------------------------------------


def with_gaps(array: Array) -> Array:
    view = np.zeros([2 * n + 1 for n in array.shape], array.dtype)[tuple(slice(1, None, 2) for _ in array.shape)]
    view[...] = array
    return view


def reversed_axes(array: Array) -> Array:
    back = tuple(slice(None, None, -1) for _ in array.shape)
    return np.ascontiguousarray(array[back])[back]


def channels_first(array: Array) -> Array:
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, -1, min(1, array.ndim - 1))), min(1, array.ndim - 1), -1)


def unaligned(array: Array) -> Array:
    view = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def big_endian(array: Array) -> Array:
    return array.astype(array.dtype.newbyteorder(">"))


def read_only(array: Array) -> Array:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


class Hostile(np.ndarray[Any, Any]):
    """A subclass whose own methods and properties raise errors or lie."""

    def __array_finalize__(self, source: Any) -> None:
        if isinstance(source, Hostile):
            raise RuntimeError("no views")

    def ravel(self, *arguments: Any, **keywords: Any) -> Any:
        return np.zeros(1, self.dtype)

    def refuse(self, *arguments: Any, **keywords: Any) -> Any:
        raise RuntimeError("not through a subclass")

    __getitem__ = __setitem__ = __array_ufunc__ = __array_function__ = __array_wrap__ = refuse
    astype = copy = fill = reshape = tobytes = transpose = view = refuse
    T = property(refuse)


SUBCLASSES: list[type[Any]] = [np.memmap, np.recarray, Hostile]
STRIDED = [np.asfortranarray, channels_first, with_gaps, reversed_axes, unaligned]
LAYOUTS = [*STRIDED, big_endian, read_only, *(operator.methodcaller("view", kind) for kind in SUBCLASSES)]


def on_plain_arrays(name: str, operation: Operation) -> Backend:
    """Return a backend that fails if an operation gets anything but legal arrays of the base class."""
    original = registry.get_backend(name)

    def run(problem: Problem, *inputs: Array, out: Any) -> None:
        for array in (*inputs, *listed(out)):
            assert type(array) is np.ndarray
            assert array.flags.c_contiguous
            assert array.dtype.isnative
        original.implementations[operation](problem, *inputs, out=out)

    return replace(original, implementations={operation: run})


@every_operation
def test_any_layout_gives_the_result_of_its_copy(operation: Operation) -> None:
    """Any backend gets plain arrays; results are plain, the caller's own, and share nothing with the inputs."""
    case, watched = typical(operation), on_plain_arrays("reference", operation)
    method, legal = getattr(case.problem.spec, operation.method), arguments_of(case)
    before, expected = copy.deepcopy(legal), listed(method(**legal, backend="reference"))
    for layout in LAYOUTS:
        given = {name: mapped(layout, value) for name, value in legal.items()}
        for result, right in zip(listed(method(**given, backend=watched)), expected, strict=True):
            np.testing.assert_array_equal(result, right)
            if isinstance(result, np.ndarray):
                assert type(result) is np.ndarray
                assert result.dtype.isnative
                assert result.flags.c_contiguous
                assert result.flags.writeable
                assert not any(np.may_share_memory(np.asarray(array), result) for array in arrays_in(given))
        for array, right in zip(arrays_in(given), arrays_in(before), strict=True):
            np.testing.assert_array_equal(np.asarray(array), right)


def arrays_in(value: Any) -> list[Array]:
    """Return the arrays in a dictionary, list or tuple."""
    if isinstance(value, np.ndarray):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [array for one in parts for array in arrays_in(one)]


@every_operation
def test_masked_inputs_are_refused(operation: Operation) -> None:
    case = typical(operation)
    for position, array in enumerate(inputs := case.inputs()):
        masked = [*inputs[:position], np.ma.MaskedArray(array), *inputs[position + 1 :]]
        with pytest.raises(TypeError, match="is a masked array, and masks have no meaning here"):
            registry.run(case.problem, *masked, backend="reference")


FREE = {"x": (0, 1, 2, 3), "g": (1, 2), "xs": (3,), "xs_or_shapes": (3,), "t": (3,), "y": (3,), "weights": (3,)}
"""Axes that may have another length where the results keep their shapes: of windows, of sums, or channels of labels."""


@every_operation
def test_arrays_that_do_not_fit_are_refused_by_name(operation: Operation) -> None:
    """Of another rank or dtype, or without elements; of another length, unless the results follow it."""
    case = typical(operation)
    method, legal = getattr(case.problem.spec, operation.method), arguments_of(case)

    def shapes(**changed: Any) -> list[tuple[int, ...]]:
        return [one.shape for one in listed(method(**legal | changed)) if isinstance(one, np.ndarray)]

    expected = shapes()
    for name, value in legal.items():
        words = name.removesuffix("_or_shape") if isinstance(value, np.ndarray) else r"x\[\d\]"
        for k, array in enumerate(arrays_in(value)):
            wrong: list[tuple[Array, type[Exception]]] = [
                (array.astype(dtype), TypeError)
                for dtype in ("?", "c8", "O", "S3", *(["i8"] if array.ndim > 1 else []))
                if array.dtype != np.uint8
            ]
            if array.ndim == 4 and operation.method != "step":
                wrong += [(array[0], ShapeError), (array[None], ShapeError)]
                wrong += [(array.take([], axis), ShapeError) for axis in (1, 2, 3)]
            for one, error in wrong:
                with pytest.raises(error, match=rf"^{words} "):
                    shapes(**{name: [*value[:k], one, *value[k + 1 :]] if isinstance(value, list) else one})
            for axis in {*range(array.ndim)} - {*FREE.get(name, ())}:
                for one in (np.concatenate([array, array], axis), array.take(range(array.shape[axis] - 1), axis)):
                    with contextlib.suppress(ShapeError):
                        found = shapes(**{name: [*value[:k], one, *value[k + 1 :]] if isinstance(value, list) else one})
                        assert found != expected or not one.size, (name, one.shape)


@every_operation
def test_a_problem_with_arrays_of_other_shapes_does_not_reach_a_backend(operation: Operation) -> None:
    """Also of as many elements, also after a legal call, and also for a call that needs copies."""
    case = typical(operation)
    problem, inputs = case.problem, case.inputs()
    right = registry.get_backend("reference")
    out = compute(problem, right, *inputs)
    refusing = replace(right, implementations={operation: lambda *_, **__: pytest.fail("it was called")})
    reads = ", ".join(problem.input_shapes) or "no array"
    for backend in (right, refusing):
        for position, (name, shape) in enumerate(problem.input_shapes.items()):
            array = inputs[position]
            shorter = [array.take(range(length - 1), axis) for axis, length in enumerate(shape) if length > 1]
            others = [np.concatenate([array, array]), array[None], array.reshape(-1, *[1] * len(shape)), *shorter]
            for one in (*others, *map(with_gaps, others)):
                for target in (None, out):
                    given = [*inputs[:position], one, *inputs[position + 1 :]]
                    with pytest.raises(ShapeError, match=re.escape(f"{name} has shape {one.shape}; this problem of ")):
                        registry.run(problem, *given, out=target, backend=backend)
        for given in ([*inputs, np.zeros(1)], *[inputs[:-1]] * (len(inputs) > 0)):
            with pytest.raises(TypeError, match=f"reads {reads}; {len(given)} arrays are given"):
                registry.run(problem, *given, backend=backend)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("name", few([name for name in AVAILABLE if name not in registry.BUILT_IN], 1))
def test_nothing_is_read_outside_of_the_arrays(name: str) -> None:
    """In a process whose arrays end at pages that cannot be read; before them are NaN."""
    runner = checker.isolated_runner(registry.get_backend(name), Limits(), discovered=False)
    try:
        outcomes = {str(operation): runner(typical(operation), True) for operation in operations()}
    finally:
        runner.close()
    assert {operation: one for operation, one in outcomes.items() if one.status not in ("passed", "mistrusted")} == {}


# ---- out ------------------------------------------------------------------------------------------------------------


@every_operation
def test_out_is_filled_and_returned(backend: str, operation: Operation) -> None:
    """Every element, in any layout, from inputs in that layout; what lies between the elements stays."""
    case, watched = typical(operation), on_plain_arrays(backend, operation)
    expected = compute(case.problem, registry.get_backend(backend), *case.inputs())
    for layout in [np.array, *STRIDED, *(operator.methodcaller("view", kind) for kind in SUBCLASSES)]:
        out = tuple(layout(np.full(result.shape, 77, result.dtype)) for result in expected)
        results = listed(registry.run(case.problem, *map(layout, case.inputs()), out=out, backend=watched))
        assert all(map(operator.is_, results, out))
        for result, right in zip(results, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(result), right)
            if layout is with_gaps:
                assert np.count_nonzero(result.base) == np.count_nonzero(right)


@every_operation
def test_wrong_outs_are_refused_and_not_touched(operation: Operation) -> None:
    case = typical(operation)
    inputs, shapes = case.inputs(), case.problem.result_shapes
    dtypes = case.problem.result_dtypes(*(array.dtype for array in inputs))
    right = [np.zeros(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    wrong: list[tuple[Any, type[Exception], str]] = [
        (right[:-1], TypeError, "out "),
        ((*right, right[0]), TypeError, f"out has {len(right) + 1} arrays; the operation has {len(right)} results"),
        ((), TypeError, "out has 0 arrays"),
        (0.0, TypeError, "out is of type float|out has 1 arrays"),
    ]
    for k, array in enumerate(right):
        name = f"out[{k}]" if len(right) > 1 else "out"
        for value, error, words in [
            (np.zeros((*array.shape, 1), array.dtype), ShapeError, "has shape .*; the result has shape"),
            (array[:, :0] if array.ndim > 1 else array[:0], ShapeError, "has shape .*; the result has shape"),
            (array.astype(np.complex64), TypeError, "has dtype complex64; the result has dtype"),
            (read_only(array), ValueError, "is read-only; pass an array that may be written"),
            (None, TypeError, "is of type NoneType; it must be a NumPy array of shape"),
            (np.ma.MaskedArray(array), TypeError, "is of type MaskedArray"),
            (as_strided(array, array.shape, (0,) * array.ndim), ValueError, "overlaps itself: with shape"),
        ]:
            if array.size > 1 or "overlaps" not in words:
                wrong.append(((*right[:k], value, *right[k + 1 :]), error, re.escape(name) + " " + words))
        if array.dtype.itemsize > 1:
            other_order = big_endian(array)
            words = f"has dtype {other_order.dtype.str}; the result has"
            wrong.append(((*right[:k], other_order, *right[k + 1 :]), TypeError, words))
        for other in range(k):
            if array.shape == shapes[other] and array.dtype == right[other].dtype:
                shared = (*right[:k], right[other], *right[k + 1 :])
                wrong.append(
                    (shared, ValueError, rf"out\[{k}\] shares memory with out\[{other}\]; pass an array of its own")
                )
    for out, error, words in wrong:
        with pytest.raises(error, match=words):
            registry.run(case.problem, *inputs, out=out, backend="reference")
    assert not any(array.any() for array in right)


@every_operation
def test_out_must_not_overlap_an_input_by_one_element(operation: Operation) -> None:
    """Directly behind it is legal."""
    case = typical(operation)
    inputs, expected = case.inputs(), compute(case.problem, registry.get_backend("reference"), *case.inputs())
    for position, array in enumerate(inputs):
        for k, result in enumerate(expected):
            start = (array.nbytes + 63) // 64 * 64
            for overlap in (0, 4):
                memory = np.zeros(start + result.nbytes, np.uint8)
                source = memory[start - array.nbytes : start].view(array.dtype).reshape(array.shape)
                source[...] = array
                behind = memory[start - overlap :][: result.nbytes]
                target = behind.view(result.dtype).reshape(result.shape)
                out = tuple(target if n == k else np.empty_like(one) for n, one in enumerate(expected))
                given = [*inputs[:position], source, *inputs[position + 1 :]]
                if overlap:
                    with pytest.raises(ValueError, match="shares memory with an input; kernels are out-of-place"):
                        registry.run(case.problem, *given, out=out, backend="reference")
                    np.testing.assert_array_equal(source, array)
                else:
                    registry.run(case.problem, *given, out=out, backend="reference")
                    np.testing.assert_array_equal(target, result)


# ---- dtypes ---------------------------------------------------------------------------------------------------------

ALL_REAL = frozenset(["statistics", "statistics_gradient", "gradient_weights", "parameter_gradient", "step"])
"""Methods whose results are statistics, parameters or their gradients: at least float32."""


def dtypes_of_results(operation: Operation, dtypes: list[Any], count: int) -> list[Any]:
    """An image has the dtype of the first input; parameters and their gradients have at least float32."""
    real = np.result_type(np.float32, *(dtype for dtype in dtypes if dtype.kind == "f"))
    if operation.method == "mask":
        return [np.dtype(np.uint8)]
    if str(operation) == "GraphPoolingMax.forward":
        return [dtypes[0], np.dtype(np.int32)]
    if operation.method in ALL_REAL:
        return [real] * count
    if operation.spec_type.__name__ in ("InstanceNormalization", "GroupNormalization"):
        return [dtypes[0], *[real] * (count - 1)]
    return [dtypes[0]] * count


def check_dtypes(backend: str, operation: Operation, changed: Collection[str]) -> None:
    """Run with some of the inputs in float16: the results have their dtypes and are near those in float64."""
    case = typical(operation)
    inputs = [
        array.astype(np.float16) if name in changed else array
        for name, array in zip(case.problem.input_shapes, case.inputs(), strict=True)
    ]
    results = compute(case.problem, registry.get_backend(backend), *inputs)
    due = dtypes_of_results(operation, [array.dtype for array in inputs], len(results))
    assert [result.dtype for result in results] == due
    if backend == "reference:input-dtype":
        return  # it computes in float16, on purpose
    for result, exact in zip(results, references(case.problem, *inputs), strict=True):
        scale = np.max(np.abs(exact), initial=1)
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(result, exact.astype(result.dtype), rtol=5e-3, atol=2e-3 * scale)


def images_of(operation: Operation) -> list[str]:
    return [name for name, one in typical(operation).problem.arguments.items() if one.dtype in ("image", "weights")]


@every_operation
def test_float16(seldom_compiled: str, operation: Operation) -> None:
    check_dtypes(seldom_compiled, operation, images_of(operation))


@pytest.mark.slow  # compiles each operation again
@every_operation
def test_the_last_input_may_have_its_own_dtype(backend: str, operation: Operation) -> None:
    for name in images_of(operation)[1:][-1:]:
        check_dtypes(backend, operation, [name])


@every_operation
def test_each_input_of_the_reference_may_have_its_own_dtype(operation: Operation) -> None:
    for name in images_of(operation):
        check_dtypes("reference", operation, [name])


@every_operation
def test_float64_is_for_the_reference(backend: str, operation: Operation) -> None:
    case = typical(operation)
    inputs = [array.astype(np.float64) if array.dtype == np.float32 else array for array in case.inputs()]
    if backend.startswith("reference"):
        results = compute(case.problem, registry.get_backend(backend), *inputs)
        for result, exact in zip(results, references(case.problem, *inputs), strict=True):
            np.testing.assert_array_equal(result, exact)
            assert result.dtype == np.float64 or result.dtype.kind != "f"
    elif inputs:
        with pytest.raises(TypeError, match=r" has dtype float64; backend .* takes float16, float32"):
            registry.run(case.problem, *inputs, backend=backend)


# ---- batches --------------------------------------------------------------------------------------------------------


@every_operation
def test_a_batch_without_images(backend: str, operation: Operation) -> None:
    """Its results are empty images, and sums of 0."""
    case = typical(operation)
    problem, inputs = case.problem, case.inputs()
    shapes = {one.name: (0, *getattr(problem, one.name)[1:]) for one in fields(problem) if one.name.endswith("_shape")}
    lists = {
        one.name: tuple((0, *s[1:]) for s in getattr(problem, one.name))
        for one in fields(problem)
        if one.name.endswith("_shapes")
    }
    if not shapes and not lists:
        assert operation.method == "step", "only a step has no images"
        return
    empty = replace(problem, **shapes, **lists)
    given = [
        array if array.shape == shape else array[:0]
        for array, shape in zip(inputs, empty.input_shapes.values(), strict=True)
    ]
    results = compute(empty, registry.get_backend(backend), *given)
    assert any(0 in array.shape for array in (*given, *results))
    assert [result.shape for result in results] == list(empty.result_shapes)
    assert not any(result.any() for result in results)


# ---- threads --------------------------------------------------------------------------------------------------------


def layers(operation: Operation) -> list[Case]:
    return [case for _, case in itertools.islice(checker.layer_cases(operation), 3)]


@pytest.mark.parametrize(
    "cases", few([lambda one: [typical(one)], layers, large], 1), ids=["typical", "layers", "large"]
)
@every_operation
def test_bits_do_not_depend_on_the_number_of_threads(
    monkeypatch: pytest.MonkeyPatch, operation: Operation, cases: Callable[[Operation], list[Case]]
) -> None:
    """Work that is cut into single rows, and handed to other threads, has the bits of work that is not cut."""
    monkeypatch.setattr(threads, "GRAIN", 1)
    cpu = registry.get_backend("cpu")
    for case in cases(operation):
        seen = []
        for count in (1, 2, 3, 50):
            monkeypatch.setattr(threads, "thread_count", lambda count=count: count)
            problem = Case.parse(str(case)).problem  # without the chunks planned for another number of threads
            seen.append([result.tobytes() for result in compute(problem, cpu, *case.inputs())])
        assert seen == [seen[0]] * 4, str(case)
