"""Tests of dropout: random masks, which must be equal bit for bit, and their effect on an image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from mpsref.arguments.arrays import Array
from mpsref.conformance.case import Case
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.family import Family, KernelTests
from mpsref.conformance.mutants import MutantTable, computed, of_problem, of_result, of_spec
from mpsref.conformance.properties import one_image_at_a_time, repeatable
from mpsref.conformance.runner import compute
from mpsref.conformance.strategies import often, seldom
from mpsref.kernels import Dropout, dropout
from mpsref.kernels.dropout import DropoutProblem, MaskProblem
from mpsref.registry import Backend, Implementation, Problem

# --- strategies -------------------------------------------------------------------------------------------------------

INTEGERS_64 = st.integers(0, 9) | st.integers(0, 2**64 - 1) | st.integers(2**32, 2**64 - 1)


def problems(method: str) -> st.SearchStrategy[Problem]:
    """Draw problems of one operation."""
    specs = st.builds(
        Dropout,
        keep_probability=st.sampled_from([0.5, 0.8, 0.1, 0.9, 0.3, 1 / 3]),
        seed=INTEGERS_64,
        mask_strides=often((1, 1, 1), st.tuples(*[st.integers(0, 1)] * 3)),
    )
    shapes = st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 6), st.integers(1, 9))
    call: dict[str, st.SearchStrategy[int]] = {}
    if method == "mask":
        call = {"sequence": INTEGERS_64, "first_image_index": seldom(0, st.integers(0, 2**32 - 4))}
    return st.builds(Dropout.problems[method], specs, shapes, **call)


# --- properties -------------------------------------------------------------------------------------------------------


def images_have_indices(case: Case, backend: Backend) -> None:
    """Single images of a batch, with their index, have the masks of the whole batch."""
    problem = case.of(MaskProblem)
    n, height, width, channels = problem.source_shape
    (whole,) = compute(problem, backend)
    for k in range(n):
        single = replace(
            problem, source_shape=(1, height, width, channels), first_image_index=problem.first_image_index + k
        )
        (mask,) = compute(single, backend)
        if not np.array_equal(mask[0], whole[k]):
            raise Mismatch(f"images have indices: image {k} has another mask alone than in its batch")


def scaled_once(case: Case, backend: Backend) -> None:
    """A kept float32 element is the product with float32(1 / p), rounded once, to the last bit."""
    problem = case.of(DropoutProblem)
    if case.dtype != "float32":
        return
    image, mask = case.inputs()
    (found,) = compute(problem, backend, image, mask)
    wrong = (found != image * problem.spec.scale) & (mask != 0)
    if wrong.any():
        index = tuple(int(k) for k in np.argwhere(wrong)[0])
        raise Mismatch(f"scaled once: {found[index]} is not {image[index]} * {problem.spec.scale}", index)


def dropped_is_zero(case: Case, backend: Backend) -> None:
    """A dropped element is +0, also of a negative, infinite or NaN one: it is selected, not multiplied."""
    problem = case.of(DropoutProblem)
    if backend.fast_math:
        return
    image, mask = case.inputs()
    dropped = np.broadcast_to(mask == 0, image.shape)
    kinds = np.resize(np.array([np.nan, np.inf, -np.inf, -1], image.dtype), image.shape)
    (found,) = compute(problem, backend, np.where(dropped, kinds, image), mask)
    if np.any(found[dropped] != 0) or np.signbit(found[dropped]).any():
        raise Mismatch("dropped is zero: a dropped element is not +0")


# --- mutants ----------------------------------------------------------------------------------------------------------


def _mask(kept: Callable[[MaskProblem, Array], Array]) -> Implementation:
    """Compute another mask: ``kept(problem, words)`` of the random words (N, elements)."""
    return computed(lambda problem: kept(problem, dropout.random_words(problem)).reshape(problem.result_shapes[0]))


def _below(problem: MaskProblem, words: Array) -> Array:
    return words < problem.spec.threshold


def _of_blocks(change: Callable[[Array], Array]) -> Implementation:
    """Change the words of each block of four, (N, blocks, 4)."""

    def kept(problem: MaskProblem, words: Array) -> Array:
        missing = -words.shape[1] % dropout.BLOCK
        blocks = np.pad(words, ((0, 0), (0, missing)), mode="edge").reshape(len(words), -1, dropout.BLOCK)
        return _below(problem, change(blocks).reshape(len(words), -1)[:, : words.shape[1]])

    return _mask(kept)


def _counted_through_batch(problem: MaskProblem) -> Array:
    shape = n, height, width, channels = problem.result_shapes[0]
    spec = replace(problem.spec, mask_strides=(1, 1, 1))
    long = MaskProblem(spec, (1, n * height, width, channels), problem.sequence, problem.first_image_index)
    return dropout.mask(long).reshape(shape)


def _strides_swapped(problem: MaskProblem) -> Array:
    y, x, c = problem.spec.mask_strides
    wrong = dropout.mask(replace(problem, spec=replace(problem.spec, mask_strides=(x, y, c))))
    return np.resize(wrong, problem.result_shapes[0])


def _other_problem(**fields: Callable[[MaskProblem], object]) -> Implementation:
    return of_problem(lambda p: replace(p, **{name: value(p) for name, value in fields.items()}))


_MASK_MUTANTS: MutantTable = {
    "the probability is that of dropping": of_spec(keep_probability=lambda s: 1 - s.keep_probability),
    "the seed has 32 bits": of_spec(seed=lambda s: s.seed & 0xFFFFFFFF),
    "the words of the seed are swapped": of_spec(seed=lambda s: (s.seed >> 32) | (s.seed & 0xFFFFFFFF) << 32),
    "the sequence has 32 bits": _other_problem(sequence=lambda p: p.sequence & 0xFFFFFFFF),
    "seed and sequence are swapped": _other_problem(
        sequence=lambda p: p.spec.seed, spec=lambda p: replace(p.spec, seed=p.sequence)
    ),
    "the first image index is ignored": _other_problem(first_image_index=lambda p: 0),
    "all images have the mask of the first": of_result(lambda mask, *_: np.repeat(mask[:1], len(mask), axis=0)),
    "elements are counted through the batch": computed(_counted_through_batch),
    "the mask strides of y and x are swapped": computed(_strides_swapped),
    "the words of a block are in reverse order": _of_blocks(lambda blocks: blocks[..., ::-1]),
    "four elements share a word": _of_blocks(lambda blocks: np.repeat(blocks[..., :1], 4, axis=-1)),
    "elements are counted column by column": of_result(
        lambda mask, *_: mask.reshape(len(mask), *mask.shape[2:0:-1], -1).swapaxes(1, 2)
    ),
    "a word has 16 bits": _mask(lambda p, words: words >> np.uint64(16) < p.spec.threshold >> 16 & 0xFF00),
}


def _image(formula: Callable[[DropoutProblem, Array, Array], Array]) -> Implementation:
    """Compute ``formula(problem, image, mask)``; the mask is boolean and has the shape of the image."""
    return computed(lambda problem, image, mask: formula(problem, image, np.broadcast_to(mask != 0, image.shape)))


def _p(problem: DropoutProblem) -> float:
    return problem.spec.keep_probability


def _scale(problem: DropoutProblem) -> float:
    return float(problem.spec.scale)


_IMAGE_MUTANTS: MutantTable = {
    "kept elements are not scaled": _image(lambda p, x, m: np.where(m, x, 0)),
    "kept elements are scaled by 1 / (1 - p)": _image(lambda p, x, m: np.where(m, x / (1 - _p(p)), 0)),
    "kept elements are divided by p": _image(lambda p, x, m: np.where(m, x / np.float32(_p(p)), 0)),
    "the scale has half precision": _image(lambda p, x, m: np.where(m, x * float(np.float16(_scale(p))), 0)),
    "the mask is a factor": _image(lambda p, x, m: x * _scale(p) * m),
    "a dropped element is -0": _image(lambda p, x, m: np.where(m, x * _scale(p), -0.0)),
    "all images have the mask of the first": _image(
        lambda p, x, m: np.where(np.repeat(m[:1], len(m), axis=0), x * _scale(p), 0)
    ),
    "the mask is read channels first": _image(
        lambda p, x, m: np.where(m.transpose(0, 3, 1, 2).reshape(m.shape), x * _scale(p), 0)
    ),
    "all channels have the mask of the first": _image(lambda p, x, m: np.where(m[..., :1], x * _scale(p), 0)),
}

_OF_IMAGES = (repeatable, one_image_at_a_time, scaled_once, dropped_is_zero)

# A mask has integers, no inputs, and depends on the problem alone.
_EQUIVALENT = frozenset(
    {
        "an input is written",
        "accumulation in float16",
        "0 / 0 is NaN",
        "the result of an earlier call is returned",
    }
)

FAMILY = Family(
    "dropout",
    {
        Dropout: KernelTests(
            problems,
            {"mask": (repeatable, images_have_indices), "forward": _OF_IMAGES, "gradient": _OF_IMAGES},
            {"mask": _EQUIVALENT},
            nonfinite=("forward", "gradient"),
        )
    },
    {(Dropout, "mask"): _MASK_MUTANTS, (Dropout, "forward"): _IMAGE_MUTANTS, (Dropout, "gradient"): _IMAGE_MUTANTS},
)
