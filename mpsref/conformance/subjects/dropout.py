"""Dropout under test: random masks, which must be equal bit for bit, and what a mask does to an image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from mpsref.conformance.case import Case
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.properties import batch_in_pieces, repeatable
from mpsref.conformance.runner import compute
from mpsref.conformance.subject import Subject, often, seldom
from mpsref.kernels import Dropout
from mpsref.kernels.dropout import DropoutProblem, MaskProblem
from mpsref.registry import Backend, Problem, Spec

__all__ = ["SUBJECTS", "problems"]

WORDS = st.integers(0, 9) | st.integers(0, 2**64 - 1) | st.integers(2**32, 2**64 - 1)


def problems(method: str) -> st.SearchStrategy[Problem]:
    """Draw problems of one operation."""
    specs = st.builds(
        Dropout,
        keep_probability=st.sampled_from([0.5, 0.8, 0.1, 0.9, 0.3, 1 / 3]),
        seed=WORDS,
        mask_strides=often((1, 1, 1), st.tuples(*[st.integers(0, 1)] * 3)),
    )
    shapes = st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 6), st.integers(1, 9))
    call: dict[str, Any] = {}
    if method == "mask":
        call = {"sequence": WORDS, "first_image_index": seldom(0, st.integers(0, 2**32 - 4))}
    return st.builds(Dropout.problems[method], specs, shapes, **call)


def images_have_indices(case: Case, backend: Backend) -> None:
    """Parts of a batch, with the right index of their first image, get the masks that the whole gets."""
    problem = case.problem
    assert isinstance(problem, MaskProblem)
    n, height, width, channels = problem.source_shape
    (whole,) = compute(problem, backend)
    for k in range(n):
        piece = replace(
            problem, source_shape=(1, height, width, channels), first_image_index=problem.first_image_index + k
        )
        (part,) = compute(piece, backend)
        if not np.array_equal(part[0], whole[k]):
            raise Mismatch(f"images have indices: image {k} has another mask alone than in its batch")


def scaled_once(case: Case, backend: Backend) -> None:
    """In float32 a kept element is the product with float32(1 / p), rounded once: not one bit may differ."""
    problem = case.problem
    assert isinstance(problem, DropoutProblem)
    if case.dtype != "float32":
        return
    image, mask = case.inputs()
    (found,) = compute(problem, backend, image, mask)
    wrong = (found != image * problem.spec.scale) & (mask != 0)
    if wrong.any():
        index = tuple(int(k) for k in np.argwhere(wrong)[0])
        raise Mismatch(f"scaled once: {found[index]} is not {image[index]} * {problem.spec.scale}", index)


def dropped_is_zero(case: Case, backend: Backend) -> None:
    """A dropped element is +0, also where the image is negative, infinite or NaN: it is selected, not multiplied."""
    problem = case.problem
    assert isinstance(problem, DropoutProblem)
    if backend.fast_math:
        return
    image, mask = case.inputs()
    dropped = np.broadcast_to(mask == 0, image.shape)
    kinds = np.resize(np.array([np.nan, np.inf, -np.inf, -1], image.dtype), image.shape)
    (found,) = compute(problem, backend, np.where(dropped, kinds, image), mask)
    if np.any(found[dropped] != 0) or np.signbit(found[dropped]).any():
        raise Mismatch("dropped is zero: a dropped element is not +0")


_APPLIED = (repeatable, batch_in_pieces, scaled_once, dropped_is_zero)

# A mask is of integers, and nothing but the problem determines it.
_IMMUNE = frozenset(
    {
        "an input is written",
        "accumulation in float16",
        "0 / 0 is NaN",
        "the result of an earlier call is returned",
    }
)

SUBJECTS: Mapping[type[Spec], Subject] = {
    Dropout: Subject(
        problems,
        {"mask": (repeatable, images_have_indices), "forward": _APPLIED, "gradient": _APPLIED},
        {"mask": _IMMUNE},
    )
}
