"""Dropout: the generator's published answers, the masks of the definition, what a mask does, statistics, bad input."""

from __future__ import annotations

import itertools
import zlib
from typing import Any

import numpy as np
import pytest

from mpsref import Dropout, ShapeError
from mpsref.arguments.arrays import Array
from mpsref.kernels.dropout import halves, philox4x32

F32 = np.float32

KNOWN_ANSWERS = [
    ((0,) * 4, (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]
"""Counter, key and words, as published with the generator."""

WORDS = [
    (1, 0, 0, 0, "e3e80670 e50a0ebc 95f222c0 b615aa27"),
    (1, 0, 0, 1, "127bee41 1e047488 48842b20 0a393496"),
    (1, 0, 1, 0, "07071c12 428264b6 3909104b 6da2bda2"),
    (1, 0, 1, 1, "5f385a57 657c4616 70e6d019 4500ab68"),
    (1, 1, 0, 0, "ac08141b dfc5ccbe 79c07a47 a7f66093"),
    (1, 1, 0, 1, "10cc6764 a9634a04 4506ae51 f15e1f53"),
    (0x123456789ABCDEF0, 7, 3, 0, "4501bec0 dbd2c144 6b674053 a6b16e3e"),
    (0x123456789ABCDEF0, 7, 3, 1, "c700d00b e232404a d563c685 552148d5"),
]
"""Seed, sequence, image, block, words."""


def words(counter: Any, key: Any) -> str:
    found = philox4x32(tuple(np.array([c], np.uint64) for c in counter), key)  # type: ignore[arg-type]
    return " ".join(f"{int(word[0]):08x}" for word in found)


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_published_answers(counter: Any, key: Any, answer: str) -> None:
    assert words(counter, key) == answer


@pytest.mark.parametrize(("seed", "sequence", "image", "block", "answer"), WORDS)
def test_words_of_a_block(seed: int, sequence: int, image: int, block: int, answer: str) -> None:
    assert words((*halves(sequence), image, block), halves(seed)) == answer


@pytest.mark.parametrize(("seed", "sequence", "image", "block", "answer"), WORDS)
def test_masks_are_those_words_below_the_threshold(
    backend: str, seed: int, sequence: int, image: int, block: int, answer: str
) -> None:
    """With several thresholds, the bits give the words away: every backend draws the same ones."""
    drawn = [int(word, 16) for word in answer.split()]
    for p in (0.1, 0.3, 0.5, 0.7, 0.9):
        drop = Dropout(p, seed)
        mask = drop.mask((1, 1, 2, 4), sequence, image, backend=backend).reshape(-1)
        assert mask[4 * block : 4 * block + 4].tolist() == [int(word < drop.threshold) for word in drawn]


@pytest.mark.parametrize(
    ("p", "threshold", "scale"),
    [
        (0.5, 0x80000000, 2),
        (0.8, 0xCCCCCD00, 1.25),
        (0.9, 0xE6666600, 1.1111112),
        (0.1, 0x199999A0, 10),
        (0.25, 0x40000000, 4),
        (1e-12, 1, 1e12),
        (np.nextafter(F32(1), F32(0)), 0xFFFFFF00, 1.0000001),
    ],
)
def test_threshold_and_scale(p: float, threshold: int, scale: float) -> None:
    assert Dropout(p).threshold == threshold
    assert Dropout(p).scale == F32(scale)
    assert Dropout(p).scale.dtype == F32


def bits(mask: Array) -> list[str]:
    return ["".join(map(str, image.ravel().tolist())) for image in mask]


@pytest.mark.parametrize(
    ("drop", "shape", "sequence", "images"),
    [
        (Dropout(0.5, 1), (2, 2, 3, 2), 0, ["000011111111", "111111111010"]),
        (Dropout(0.5, 1), (1, 2, 3, 2), 1, ["001010101111"]),
        (Dropout(0.8, 42), (2, 2, 3, 4), 0, ["111111111111111010111111", "111111000010011111000010"]),
        (Dropout(0.5, 1, (0, 0, 1)), (2, 2, 3, 4), 0, ["0000", "1111"]),
        (Dropout(0.5, 1, (1, 1, 0)), (2, 2, 3, 4), 0, ["000011", "111111"]),
    ],
)
def test_masks(backend: str, drop: Dropout, shape: Any, sequence: int, images: list[str]) -> None:
    mask = drop.mask(shape, sequence, backend=backend)
    assert mask.dtype == np.uint8
    assert mask.shape == drop.mask_shape(shape)
    assert bits(mask) == images


def test_a_large_mask(backend: str) -> None:
    mask = Dropout(0.8, 1).mask((1, 64, 64, 32), backend=backend)
    assert int(mask.sum()) == 105038
    assert zlib.crc32(mask.tobytes()) == 0xD9A7F9DF


def test_forward_and_gradient(backend: str) -> None:
    drop, x = Dropout(0.5, 1), np.arange(1, 25, dtype=F32).reshape(2, 2, 3, 2)
    mask = drop.mask(x.shape, backend=backend)
    y = drop.forward(x, mask, backend=backend)
    assert y[0].ravel().tolist() == [0, 0, 0, 0, 10, 12, 14, 16, 18, 20, 22, 24]
    assert y[1].ravel().tolist() == [26, 28, 30, 32, 34, 36, 38, 40, 42, 0, 46, 0]
    np.testing.assert_array_equal(drop.gradient(np.ones_like(x), mask, backend=backend), 2.0 * mask)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (3, 2, 1, 1), (1, 1, 5, 3), (2, 4, 3, 1), (1, 1, 1, 3000)])
def test_a_mask_is_broadcast(backend: str, shape: Any) -> None:
    rng = np.random.default_rng(7)
    for strides, dtype in itertools.product(itertools.product((0, 1), repeat=3), (F32, np.float16)):
        drop = Dropout(0.7, 3, strides)
        mask = drop.mask(shape, 5, backend=backend)
        assert mask.shape == tuple(n if s else 1 for n, s in zip(shape, (1, *strides), strict=True))
        x = rng.standard_normal(shape).astype(dtype)
        product = (x.astype(F32) * drop.scale).astype(dtype)  # rounded twice for float16, as backends may
        expected = np.where(np.broadcast_to(mask == 1, shape), product, 0)
        np.testing.assert_allclose(
            drop.forward(x, mask, backend=backend), expected, rtol=1e-3 if dtype == np.float16 else 0
        )


def test_dropped_elements_are_plus_zero_whatever_they_were(ieee_backend: str) -> None:
    drop, mask = Dropout(0.5), np.uint8([[[[0, 0, 0, 0, 1, 1]]]])
    x = F32([[[[np.nan, np.inf, -np.inf, -1, np.nan, -np.inf]]]])
    for run in (drop.forward, drop.gradient):
        y = run(x, mask, backend=ieee_backend)
        assert y[..., :4].tolist() == [[[[0] * 4]]]
        assert not np.signbit(y[..., :4]).any()
        assert np.isnan(y[0, 0, 0, 4])
        assert y[0, 0, 0, 5] == -np.inf


def test_parts_of_a_batch_have_the_masks_of_the_whole(backend: str) -> None:
    drop = Dropout(0.5, 2**63 + 5)
    whole = drop.mask((5, 3, 3, 2), 2**40, 2**32 - 5, backend=backend)
    parts = [drop.mask((n, 3, 3, 2), 2**40, 2**32 - 5 + first, backend=backend) for first, n in ((0, 2), (2, 3))]
    np.testing.assert_array_equal(whole, np.concatenate(parts))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_masks_look_random(p: float) -> None:
    """Within 5 standard deviations: how many are kept, and in how many neighbours agree, along each axis."""
    n = 4, 32, 32, 16
    mask = Dropout(p, 123).mask(n, 9).astype(np.float64)
    assert abs(mask.mean() - p) < 5 * np.sqrt(p * (1 - p) / mask.size)
    for axis in range(4):
        centred = mask - p
        products = centred * np.roll(centred, 1, axis)
        assert abs(products.mean()) < 5 * p * (1 - p) / np.sqrt(mask.size)
    other = Dropout(p, 123).mask(n, 10).astype(np.float64) - p
    assert abs((other * (mask - p)).mean()) < 5 * p * (1 - p) / np.sqrt(mask.size)


def test_illegal_calls() -> None:
    drop, x = Dropout(0.5), np.ones((2, 3, 4, 5), F32)
    mask = drop.mask(x.shape)
    for bad, error, match in [
        ({"sequence": -1}, ValueError, "sequence is -1"),
        ({"sequence": 2**64}, ValueError, "sequence is"),
        ({"sequence": 0.5}, TypeError, "sequence is 0.5"),
        ({"first_image_index": 2**32}, ValueError, "first_image_index is"),
        ({"first_image_index": 2**32 - 1}, ValueError, "the index of each image must be < 2\\*\\*32"),
    ]:
        with pytest.raises(error, match=match):
            drop.mask(x.shape, **bad)
    with pytest.raises(ShapeError, match="at most 2\\*\\*34 elements"):
        drop.mask((1, 2**20, 2**15, 1))
    with pytest.raises(ShapeError, match="shape has shape \\(3, 4\\)"):
        drop.mask((3, 4))
    for wrong, error, match in [(mask * 2, ValueError, "mask contains 2"), (None, TypeError, "mask")]:
        for run in (drop.forward, drop.gradient):
            with pytest.raises(error, match=match):
                run(x, wrong)
