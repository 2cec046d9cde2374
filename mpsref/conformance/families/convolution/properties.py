"""Properties of the kernels with weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, cast

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.arguments.parameters import Pair, pair
from mpsref.conformance import comparator, data, runner
from mpsref.conformance.case import Case
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.properties import Judged, judge_itself, same
from mpsref.conformance.runner import compute, expected
from mpsref.kernels import Convolution, ConvolutionTranspose
from mpsref.kernels.convolution import GradientWeights, WeightedForward, WeightedProblem, WeightedSpec
from mpsref.kernels.convolution_transpose import exchanged
from mpsref.registry import Backend

MULTIPLIED = {"forward": "g", "gradient_data": "x", "gradient_weights": "weights"}
"""What the result of a method is multiplied with, for the number that all three have in common."""


def adjoint(case: Case, backend: Backend) -> None:
    """<y, g> = <dx, x> = <dw, w>, without biases and neuron: the gradients belong to the forward pass."""
    problem = _linear(_weighted(case))
    of = problem.spec.problems
    arguments = problem.spec, problem.source_shape, problem.output_channels, problem.result_size
    if not isinstance(problem, WeightedForward):
        partner: WeightedProblem = of["forward"](*arguments)
    else:
        partner = of["gradient_data" if problem.spec.edge_mode == "zero" else "gradient_weights"](*arguments)
    if backend.why_not(problem.operation, problem.spec) or backend.why_not(partner.operation, partner.spec):
        return
    arrays = dict(zip(case.problem.input_shapes, case.inputs(), strict=True))
    shapes = {"x": problem.source_shape, "weights": problem.weights_shape, "g": problem.result_image}
    for name in shapes.keys() - arrays.keys():
        drawn = data.values(shapes[name], case.dtype, case.family, case.seed, stream=len(arrays))
        arrays[name] = partner.legal({name: drawn})[name] if name == "weights" else drawn
    (left, slack, own), (right, other_slack, other) = (_product(each, arrays, backend) for each in (problem, partner))
    if not abs(left - right) <= slack + other_slack:
        judge_itself(case.problem, own, other)
        raise Mismatch(
            f"adjoint: {problem.method} gives {left:.9g} and {partner.method} {right:.9g} for the same sum; "
            f"they may differ by {slack + other_slack:.3g}"
        )


def _product(problem: WeightedProblem, arrays: dict[str, Array], backend: Backend) -> tuple[float, float, Judged]:
    """Return the sum of the result times what belongs to it, how far it may be off, and the call."""
    inputs = [arrays[name] for name in problem.input_shapes]
    result = compute(problem, backend, *inputs)[0]
    limit = comparator.bound(result, result.astype(np.float64), runner.terms(problem, *inputs)[0])
    call = problem, inputs, [(result, limit)]
    result, factor = result.astype(np.float64), arrays[MULTIPLIED[problem.method]].astype(np.float64)
    slack = float(np.sum(limit * np.abs(factor))) + 1e-12 * float(np.sum(np.abs(result * factor)))
    return float(np.sum(result * factor)), slack, call


def batches_add_up(case: Case, backend: Backend) -> None:
    """The gradient of a batch is the sum of those of two chunks of it."""
    problem = _weighted(case)
    n, height, width, channels = problem.source_shape
    if n < 2:
        return
    sums = []
    for chunk in (slice(0, 1), slice(1, n)):
        of_chunk = replace(problem, source_shape=(chunk.stop - chunk.start, height, width, channels))
        sums.append(compute(of_chunk, backend, *_images(case, chunk)))
    wholes = compute(problem, backend, *case.inputs())
    for whole, first, second, (_, terms) in zip(wholes, *sums, expected(case), strict=True):
        same("batches add up", whole, first + second, terms)


def _images(case: Case, chunk: slice) -> list[Array]:
    """Return the inputs of a case, of the images only ``chunk``."""
    named = zip(case.problem.input_shapes, case.inputs(), strict=True)
    return [array[chunk] if name in ("x", "g") else array for name, array in named]


def groups_apart(case: Case, backend: Backend) -> None:
    """Each group by itself is a convolution of its channels: depthwise, that is one convolution a channel."""
    problem = _weighted(case)
    groups, inputs, outputs = problem.spec.groups, problem.weights_shape[3], problem.output_channels
    if groups == 1:
        return
    own = outputs // groups
    by_group = []
    for r in range(groups):
        of_group = {"x": slice(r * inputs, (r + 1) * inputs)}
        of_output = slice(r * own, (r + 1) * own)
        spec = replace(cast(Convolution, problem.spec), groups=1)
        if spec.neuron is not None and spec.neuron.data is not None:
            spec = replace(spec, neuron=replace(spec.neuron, data=spec.neuron.data[of_output]))
        single = replace(problem, spec=spec, source_shape=(*problem.source_shape[:3], inputs), output_channels=own)
        arrays = [
            array[..., of_group.get(name, of_output)] if name in ("x", "g") else array[of_output]
            for name, array in zip(problem.input_shapes, case.inputs(), strict=True)
        ]
        by_group.append(compute(single, backend, *arrays))
    axis = 0 if isinstance(problem, GradientWeights) else 3
    for k, whole in enumerate(compute(problem, backend, *case.inputs())):
        joined = np.concatenate([results[k] for results in by_group], axis=axis)
        same("groups apart", whole, joined, expected(case)[k][1])


def block_diagonal(case: Case, backend: Backend) -> None:
    """Groups are one dense convolution whose weights between different groups are 0."""
    problem = _weighted(case)
    groups = problem.spec.groups
    if groups == 1:
        return
    dense = replace(problem, spec=replace(cast(Convolution, problem.spec), groups=1))
    named = zip(problem.input_shapes, case.inputs(), strict=True)
    arrays = [_block_diagonal(array, groups) if name == "weights" else array for name, array in named]
    whole, *_ = compute(problem, backend, *case.inputs())
    other, *_ = compute(dense, backend, *arrays)
    if isinstance(problem, GradientWeights):
        own, inputs = len(other) // groups, other.shape[3] // groups
        blocks = [other[r * own : (r + 1) * own, ..., r * inputs : (r + 1) * inputs] for r in range(groups)]
        other = np.concatenate(blocks)
    same("block diagonal", whole, other, expected(case)[0][1])


def _block_diagonal(weights: Array, groups: int) -> Array:
    outputs, height, width, inputs = weights.shape
    dense = np.zeros((groups, outputs // groups, height, width, groups, inputs), weights.dtype)
    for r in range(groups):
        dense[r, :, :, :, r] = weights.reshape(groups, -1, height, width, inputs)[r]
    return dense.reshape(outputs, height, width, groups * inputs)


def mixed_dtypes(case: Case, backend: Backend) -> None:
    """The dtype of the second input does not matter: the same numbers in float32 give the same."""
    first, second, *others = case.inputs()
    if second.dtype == np.float16:
        one = compute(case.problem, backend, first, second, *others)
        other = compute(case.problem, backend, first, second.astype(np.float32), *others)
        for a, b, (_, terms) in zip(one, other, expected(case), strict=True):
            same("mixed dtypes", a, b, terms)


def odd(case: Case, backend: Backend) -> None:
    """With the negative of all inputs but the first, the result changes its sign: nothing is kept from before."""
    problem = _weighted(case)
    if problem.spec.neuron is not None:
        return
    first, *others = case.inputs()
    one = compute(problem, backend, first, *others)
    other = compute(problem, backend, first, *(-array for array in others))
    same("odd", one[0], -other[0], expected(case)[0][1])


def translation(case: Case, backend: Backend) -> None:
    """One more row and column of zeros in front is undone by an offset of one more."""
    spec = _weighted(case).spec
    if isinstance(spec, Convolution) and spec.edge_mode == "zero":
        _with_margin("translation", case, backend, replace(spec, offset=_plus(spec.offset, (1, 1))), "source")
    elif isinstance(spec, ConvolutionTranspose):
        moved = replace(spec, kernel_offset=_plus(spec.kernel_offset, (-1, -1)))
        _with_margin("translation", case, backend, moved, "result")


def offset_decomposition(case: Case, backend: Backend) -> None:
    """Window i with an offset of one stride less is window i - 1; a transpose's two offsets are one sum."""
    spec = _weighted(case).spec
    if isinstance(spec, Convolution):
        y, x = pair("strides", spec.strides)
        moved: WeightedSpec = replace(spec, offset=_plus(spec.offset, (-y, -x)))
        _with_margin("offset decomposition", case, backend, moved, "result")
    elif isinstance(spec, ConvolutionTranspose):
        y, x = pair("strides", spec.strides)
        moved = replace(spec, offset=_plus(spec.offset, (1, 1)), kernel_offset=_plus(spec.kernel_offset, (-y, -x)))
        _with_margin("offset decomposition", case, backend, moved, None)


def _plus(offset: object, step: Pair) -> Pair:
    y, x = pair("offset", offset)
    return y + step[0], x + step[1]


def _with_margin(
    name: str, case: Case, backend: Backend, spec: WeightedSpec, side: Literal["source", "result"] | None
) -> None:
    """Require the same of ``spec`` where the images of one side have one more row and column in front, of zeros."""
    problem = _weighted(case)
    n, height, width, channels = problem.source_shape
    more = {"source": int(side == "source"), "result": int(side == "result")}
    size = tuple(length + more["result"] for length in problem.result_size)
    shape = n, height + more["source"], width + more["source"], channels
    changed: dict[str, Any] = {"output_size" if isinstance(problem, WeightedForward) else "gradient_size": size}
    moved = replace(problem, spec=spec, source_shape=shape, **changed)
    on_side = {"source": "x", "result": "g", None: ""}[side]
    arrays = [
        np.pad(array, ((0, 0), (1, 0), (1, 0), (0, 0))) if known == on_side else array
        for known, array in zip(problem.input_shapes, case.inputs(), strict=True)
    ]
    first, second = compute(problem, backend, *case.inputs()), list(compute(moved, backend, *arrays))
    if (side, problem.method) in (("source", "gradient_data"), ("result", "forward")):
        second[0] = second[0][:, 1:, 1:]
    for a, b, (_, terms) in zip(first, second, expected(case), strict=True):
        same(name, a, b, terms)


def transposed(case: Case, backend: Backend) -> None:
    """A transposed convolution is the data gradient of a convolution, and its gradient that convolution's forward."""
    problem = _weighted(case)
    assert isinstance(problem.spec, ConvolutionTranspose)
    taken = problem.convolution  # type: ignore[attr-defined]
    if problem.spec.neuron is not None or getattr(problem, "biased", False):
        return
    if backend.why_not(taken.operation, taken.spec):
        return
    first, second = case.inputs()
    groups = problem.spec.groups
    if isinstance(problem, GradientWeights):
        other = exchanged(compute(taken, backend, second, first)[0], groups)
    else:
        (other,) = compute(taken, backend, first, exchanged(second, groups))
    same("transposed", compute(problem, backend, first, second)[0], other, expected(case)[0][1])


def _weighted(case: Case) -> WeightedProblem:
    assert isinstance(case.problem, WeightedProblem)
    return case.problem


def _linear(problem: WeightedProblem) -> WeightedProblem:
    """Return the problem without biases and neuron."""
    if not isinstance(problem, WeightedForward):
        return problem
    return replace(problem, spec=replace(cast(Convolution, problem.spec), neuron=None), biased=False)
