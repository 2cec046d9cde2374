"""Planted faults of dropout: in the generator, in what it is asked for, in what a mask does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.conformance.faults.planted import Fault, of_problem, of_result, with_spec
from mpsref.kernels import Dropout, dropout, philox
from mpsref.kernels.dropout import DropoutProblem, MaskProblem
from mpsref.registry import Operation

__all__ = ["faults"]

Table = dict[str, Callable[..., None]]


def _drawn(change: Callable[[MaskProblem, Array], Array]) -> Callable[..., None]:
    """Keep where ``change(problem, words)`` says so; words are (N, elements)."""

    def run(problem: MaskProblem, out: Array) -> None:
        out[...] = change(problem, dropout.random_words(problem)).reshape(out.shape)

    return run


def _below(problem: MaskProblem, words: Array) -> Array:
    return words < problem.spec.threshold


def _with_rounds(rounds: int) -> Callable[..., None]:
    """Draw with a generator of so many rounds."""

    def change(problem: MaskProblem, words: Array) -> Array:
        image = (problem.first_image_index + np.arange(len(words), dtype=np.uint64))[:, None]
        c0, c1 = np.arange(problem.blocks, dtype=np.uint64)[None], image
        low, high, k0, k1 = (np.full((1, 1), word, np.uint64) for word in problem.words)
        c2, c3 = low, high
        for _ in range(rounds):
            product0, product1 = np.uint64(philox.MULTIPLIERS[0]) * c0, np.uint64(philox.MULTIPLIERS[1]) * c2
            c0, c1, c2, c3 = (
                (product1 >> philox.SHIFT) ^ c1 ^ k0,
                product1 & philox.LOW,
                (product0 >> philox.SHIFT) ^ c3 ^ k1,
                product0 & philox.LOW,
            )
            k0, k1 = (k0 + np.uint64(philox.WEYL[0])) & philox.LOW, (k1 + np.uint64(philox.WEYL[1])) & philox.LOW
        drawn = np.stack(np.broadcast_arrays(c0, c1, c2, c3), axis=-1).reshape(len(words), -1)
        return _below(problem, drawn[:, : problem.elements])

    return _drawn(change)


def _grouped(change: Callable[[Array], Array]) -> Callable[..., None]:
    """Change the words of each block of four, (N, blocks, 4)."""

    def of_blocks(problem: MaskProblem, words: Array) -> Array:
        missing = -words.shape[1] % dropout.BLOCK
        blocks = np.pad(words, ((0, 0), (0, missing)), mode="edge").reshape(len(words), -1, dropout.BLOCK)
        return _below(problem, change(blocks).reshape(len(words), -1)[:, : words.shape[1]])

    return _drawn(of_blocks)


def _whole_batch(problem: MaskProblem, out: Array) -> None:
    """Count elements through the batch instead of through each image."""
    n, height, width, channels = out.shape
    spec = replace(problem.spec, mask_strides=(1, 1, 1))
    long = MaskProblem(spec, (1, n * height, width, channels), problem.sequence, problem.first_image_index)
    out[...] = dropout.mask(long).reshape(out.shape)


def _mask() -> Table:
    def problem(**fields: Callable[[MaskProblem], Any]) -> Callable[..., None]:
        return of_problem(lambda p: replace(p, **{name: value(p) for name, value in fields.items()}))

    def spec(**fields: Callable[[Any], Any]) -> Callable[..., None]:
        return of_problem(with_spec(**fields))

    return {
        "the mask is the other way round": of_result(lambda mask, *_: 1 - mask),
        "kept is 255": of_result(lambda mask, *_: mask * 255),
        "the probability is that of dropping": spec(keep_probability=lambda s: 1 - s.keep_probability),
        "everything is kept": of_result(lambda mask, *_: np.ones_like(mask)),
        "the seed is ignored": spec(seed=lambda s: 0),
        "the seed has 32 bits": spec(seed=lambda s: s.seed & 0xFFFFFFFF),
        "the words of the seed are swapped": spec(seed=lambda s: (s.seed >> 32) | (s.seed & 0xFFFFFFFF) << 32),
        "the sequence is ignored": problem(sequence=lambda p: 0),
        "the sequence has 32 bits": problem(sequence=lambda p: p.sequence & 0xFFFFFFFF),
        "seed and sequence are swapped": of_problem(
            lambda p: replace(p, sequence=p.spec.seed, spec=replace(p.spec, seed=p.sequence))
        ),
        "the first image index is ignored": problem(first_image_index=lambda p: 0),
        "all images have the mask of the first": of_result(lambda mask, *_: np.repeat(mask[:1], len(mask), axis=0)),
        "elements are counted through the batch": _whole_batch,
        "the mask strides of y and x are swapped": _strides_swapped,
        "the mask strides are ignored": _strides_ignored,
        "nine rounds": _with_rounds(9),
        "the words of a block are in reverse order": _grouped(lambda blocks: blocks[..., ::-1]),
        "four elements share a word": _grouped(lambda blocks: np.repeat(blocks[..., :1], 4, axis=-1)),
        "elements are counted column by column": of_result(
            lambda mask, *_: mask.reshape(len(mask), *mask.shape[2:0:-1], -1).swapaxes(1, 2)
        ),
        "a word has 16 bits": _drawn(lambda p, words: words >> np.uint64(16) < p.spec.threshold >> 16 & 0xFF00),
    }


def _strides_swapped(problem: MaskProblem, out: Array) -> None:
    y, x, c = problem.spec.mask_strides
    wrong = dropout.mask(replace(problem, spec=replace(problem.spec, mask_strides=(x, y, c))))
    out[...] = np.resize(wrong, out.shape)


def _strides_ignored(problem: MaskProblem, out: Array) -> None:
    whole = dropout.mask(replace(problem, spec=replace(problem.spec, mask_strides=(1, 1, 1))))
    _, height, width, channels = out.shape
    out[...] = whole[:, :height, :width, :channels]


def _selected(formula: Callable[[DropoutProblem, Array, Array], Array]) -> Callable[..., None]:
    """Return an image of ``formula(problem, image, mask)``; the mask is one of truth values like the image."""

    def run(problem: DropoutProblem, image: Array, mask: Array, out: Array) -> None:
        image = image.astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):
            out[...] = formula(problem, image, np.broadcast_to(mask != 0, image.shape))

    return run


def _p(problem: DropoutProblem) -> float:
    return problem.spec.keep_probability


def _scale(problem: DropoutProblem) -> float:
    return float(problem.spec.scale)


def _applied() -> Table:
    return {
        "kept elements are not scaled": _selected(lambda p, x, m: np.where(m, x, 0)),
        "kept elements are multiplied by p": _selected(lambda p, x, m: np.where(m, x * _p(p), 0)),
        "kept elements are scaled by 1 / (1 - p)": _selected(lambda p, x, m: np.where(m, x / (1 - _p(p)), 0)),
        "kept elements are divided by p": _selected(lambda p, x, m: np.where(m, x / np.float32(_p(p)), 0)),
        "the scale has half precision": _selected(lambda p, x, m: np.where(m, x * float(np.float16(_scale(p))), 0)),
        "the mask is the other way round": _selected(lambda p, x, m: np.where(m, 0, x * _scale(p))),
        "the mask is multiplied with": _selected(lambda p, x, m: x * _scale(p) * m),
        "a dropped element is -0": _selected(lambda p, x, m: np.where(m, x * _scale(p), -0.0)),
        "nothing is dropped": _selected(lambda p, x, m: x * _scale(p)),
        "dropped elements keep their value": _selected(lambda p, x, m: np.where(m, x * _scale(p), x)),
        "a mask is drawn anew": _drawn_anew,
        "all images have the mask of the first": _selected(
            lambda p, x, m: np.where(np.repeat(m[:1], len(m), axis=0), x * _scale(p), 0)
        ),
        "the mask is read channels first": _selected(
            lambda p, x, m: np.where(m.transpose(0, 3, 1, 2).reshape(m.shape), x * _scale(p), 0)
        ),
        "the mask holds for all channels": _selected(lambda p, x, m: np.where(m[..., :1], x * _scale(p), 0)),
        "the mask holds for all rows": _selected(lambda p, x, m: np.where(m[:, :1], x * _scale(p), 0)),
        "the mask holds for all columns": _selected(lambda p, x, m: np.where(m[:, :, :1], x * _scale(p), 0)),
    }


def _drawn_anew(problem: DropoutProblem, image: Array, mask: Array, out: Array) -> None:
    again = dropout.mask(MaskProblem(problem.spec, problem.source_shape))
    out[...] = dropout.apply(problem, image.astype(np.float64), again)


def faults() -> Iterator[Fault]:
    """Yield the faults of dropout, beside those that every kernel can have."""
    for method, table in {"mask": _mask(), "forward": _applied(), "gradient": _applied()}.items():
        for name, run in table.items():
            yield Fault(name, Operation(Dropout, method), run)
