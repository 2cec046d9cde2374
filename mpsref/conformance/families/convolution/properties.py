"""Properties of the kernels with weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, cast

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.arguments.parameters import Pair, pair
from mpsref.conformance import comparator, data, runner
from mpsref.conformance.case import Case
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.properties import EquivalentProblem, Judged, equivalent, judge_itself, same
from mpsref.conformance.runner import compute, expected
from mpsref.kernels import Convolution, ConvolutionTranspose
from mpsref.kernels.convolution import GradientWeights, WeightedForward, WeightedProblem, WeightedSpec
from mpsref.kernels.convolution_transpose import exchanged
from mpsref.registry import Backend

MULTIPLIED = {"forward": "g", "gradient_data": "x", "gradient_weights": "weights"}
"""What the result of a method is multiplied with, for the number that all three have in common."""


def adjoint(case: Case, backend: Backend) -> None:
    """<y, g> = <dx, x> = <dw, w>, without biases and neuron: the gradients belong to the forward pass."""
    problem = _linear(case.of(WeightedProblem))
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
    problem = case.of(WeightedProblem)
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
    problem = case.of(WeightedProblem)
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


@equivalent
def block_diagonal(problem: WeightedProblem, *inputs: Array) -> EquivalentProblem | None:
    """Groups are one dense convolution whose weights between different groups are 0."""
    groups = problem.spec.groups
    if groups == 1:
        return None
    dense = replace(problem, spec=replace(cast(Convolution, problem.spec), groups=1))
    named = zip(problem.input_shapes, inputs, strict=True)
    arrays = [_block_diagonal(array, groups) if name == "weights" else array for name, array in named]

    def blocks(results: tuple[Array, ...]) -> list[Array]:
        if not isinstance(problem, GradientWeights):
            return [results[0]]
        dw = results[0].reshape(groups, -1, *results[0].shape[1:3], groups, results[0].shape[3] // groups)
        return [np.concatenate([dw[r, ..., r, :] for r in range(groups)])]

    return EquivalentProblem(dense, arrays, blocks)


def _block_diagonal(weights: Array, groups: int) -> Array:
    outputs, height, width, inputs = weights.shape
    dense = np.zeros((groups, outputs // groups, height, width, groups, inputs), weights.dtype)
    for r in range(groups):
        dense[r, :, :, :, r] = weights.reshape(groups, -1, height, width, inputs)[r]
    return dense.reshape(outputs, height, width, groups * inputs)


@equivalent
def mixed_dtypes(problem: WeightedProblem, first: Array, second: Array, *others: Array) -> EquivalentProblem | None:
    """The dtype of the second input does not matter: the same numbers in float32 give the same."""
    return (
        EquivalentProblem(problem, [first, second.astype(np.float32), *others]) if second.dtype == np.float16 else None
    )


@equivalent
def odd(problem: WeightedProblem, first: Array, *others: Array) -> EquivalentProblem | None:
    """With the negative of all inputs but the first, the result changes its sign: nothing is kept from before."""
    if problem.spec.neuron is not None:
        return None
    return EquivalentProblem(problem, [first, *(-array for array in others)], lambda results: [-results[0]])


@equivalent
def translation(problem: WeightedProblem, *inputs: Array) -> EquivalentProblem | None:
    """One more row and column of zeros in front is undone by an offset of one more."""
    spec = problem.spec
    if isinstance(spec, Convolution) and spec.edge_mode == "zero":
        return _with_margin(problem, inputs, replace(spec, offset=_plus(spec.offset, (1, 1))), "source")
    if isinstance(spec, ConvolutionTranspose):
        moved = replace(spec, kernel_offset=_plus(spec.kernel_offset, (-1, -1)))
        return _with_margin(problem, inputs, moved, "result")
    return None


@equivalent
def offset_decomposition(problem: WeightedProblem, *inputs: Array) -> EquivalentProblem:
    """Window i with an offset of one stride less is window i - 1; a transpose's two offsets are one sum."""
    spec = cast("Convolution | ConvolutionTranspose", problem.spec)
    y, x = pair("strides", spec.strides)
    if isinstance(spec, Convolution):
        return _with_margin(problem, inputs, replace(spec, offset=_plus(spec.offset, (-y, -x))), "result")
    moved = replace(spec, offset=_plus(spec.offset, (1, 1)), kernel_offset=_plus(spec.kernel_offset, (-y, -x)))
    return _with_margin(problem, inputs, moved, None)


def _plus(offset: object, step: Pair) -> Pair:
    y, x = pair("offset", offset)
    return y + step[0], x + step[1]


def _with_margin(
    problem: WeightedProblem, inputs: Sequence[Array], spec: WeightedSpec, side: Literal["source", "result"] | None
) -> EquivalentProblem:
    """Restate as ``spec`` with one more row and column in front, of zeros, of the images of one side."""
    n, height, width, channels = problem.source_shape
    more = {"source": int(side == "source"), "result": int(side == "result")}
    size = tuple(length + more["result"] for length in problem.result_size)
    shape = n, height + more["source"], width + more["source"], channels
    changed: dict[str, Any] = {"output_size" if isinstance(problem, WeightedForward) else "gradient_size": size}
    moved = replace(problem, spec=spec, source_shape=shape, **changed)
    on_side = {"source": "x", "result": "g", None: ""}[side]
    arrays = [
        np.pad(array, ((0, 0), (1, 0), (1, 0), (0, 0))) if known == on_side else array
        for known, array in zip(problem.input_shapes, inputs, strict=True)
    ]
    if (side, problem.method) in (("source", "gradient_data"), ("result", "forward")):
        return EquivalentProblem(moved, arrays, lambda results: [results[0][:, 1:, 1:]])
    return EquivalentProblem(moved, arrays)


@equivalent
def transposed(problem: WeightedProblem, first: Array, second: Array, *biases: Array) -> EquivalentProblem | None:
    """A transposed convolution is the data gradient of a convolution, and its gradient that convolution's forward."""
    if problem.spec.neuron is not None or biases:
        return None
    groups, taken = problem.spec.groups, problem.convolution  # type: ignore[attr-defined]
    if isinstance(problem, GradientWeights):
        return EquivalentProblem(taken, [second, first], lambda results: [exchanged(results[0], groups)])
    return EquivalentProblem(taken, [first, exchanged(second, groups)])


def _linear(problem: WeightedProblem) -> WeightedProblem:
    """Return the problem without biases and neuron."""
    if not isinstance(problem, WeightedForward):
        return problem
    return replace(problem, spec=replace(cast(Convolution, problem.spec), neuron=None), biased=False)
