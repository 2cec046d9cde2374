"""Batches of single images, and whatever else has pixels."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsref.arguments.arrays import Array
from mpsref.errors import ShapeError
from mpsref.mps.core.image import MPSImage, MPSImageBatch, pixels
from tests.mps.image_data import arrays, counted, same


@given(arrays(st.tuples(st.integers(1, 4), *[st.integers(1, 4)] * 3)))
def test_a_batch_is_an_array_and_back(source: Array) -> None:
    batch = MPSImageBatch.from_array(source)
    assert [image.array.shape for image in batch] == [(1, *source.shape[1:])] * len(source)
    assert same(batch.to_array(), source)
    assert same(np.asarray(batch), source)
    assert same(MPSImageBatch([MPSImage(image.array) for image in batch]).to_array(), source)


def test_a_batch_is_written_through_its_images() -> None:
    singles = [MPSImage(np.zeros((1, 2, 3, 4), np.float32)) for _ in range(3)]
    batch = MPSImageBatch(singles)
    batch.write_array(counted(3, 2, 3, 4))
    assert [image.array[0, 0, 0, 0] for image in singles] == [1, 25, 49]
    assert same(batch.to_array(), counted(3, 2, 3, 4))
    for wrong, error in [
        (counted(2, 2, 3, 4), ShapeError),
        (counted(3, 2, 4, 3), ShapeError),
        (counted(3, 2, 3, 4, dtype=np.float16), TypeError),
        (3, TypeError),
    ]:
        with pytest.raises(error, match=r"^array has "):
            batch.write_array(wrong)
    assert same(batch.to_array(), counted(3, 2, 3, 4))


def test_a_batch_on_the_callers_array() -> None:
    source = counted(2, 2, 3, 4)
    batch = MPSImageBatch.from_array(source, copy=False)
    assert all(np.shares_memory(image.array, source) for image in batch)
    batch[1].array[:] = 0
    assert source[1].max() == 0
    assert source[0].min() == 1
    kept = MPSImageBatch.from_array(source)
    assert not any(np.shares_memory(image.array, source) for image in kept)


def test_what_a_batch_gives_is_a_copy() -> None:
    batch = MPSImageBatch.from_array(counted(1, 2, 3, 4))
    assert not np.shares_memory(batch.to_array(), batch[0].array)
    assert np.asarray(batch, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match=r"^a batch is no array"):
        batch.__array__(copy=False)


def test_batches_compare_and_copy() -> None:
    batch = MPSImageBatch.from_array(counted(2, 2, 3, 4))
    assert batch == MPSImageBatch.from_array(counted(2, 2, 3, 4))
    assert batch != MPSImageBatch.from_array(counted(2, 2, 3, 4) + 1)
    made = copy.deepcopy(batch)
    assert type(made) is MPSImageBatch
    assert made == batch
    assert made[0] is not batch[0]


@pytest.mark.parametrize(
    ("members", "error", "message"),
    [
        ([], ShapeError, r"^a batch must hold at least one image; it is empty$"),
        (
            [MPSImage(counted(1, 2, 2, 1)), 3],
            TypeError,
            r"^image 1 of the batch is of type int; it must be an MPSImage$",
        ),
        ([counted(1, 2, 2, 1)], TypeError, r"^image 0 of the batch is of type ndarray"),
        ([MPSImage(counted(2, 2, 2, 1))], ShapeError, r"^image 0 of the batch is .*; its number_of_images must be 1$"),
        (
            [MPSImage(counted(1, 2, 3, 1)), MPSImage(counted(1, 3, 2, 1))],
            ShapeError,
            r"^image 1 of the batch is .*; it must be like image 0, <MPS",
        ),
        (
            [MPSImage(counted(1, 2, 3, 1)), MPSImage(counted(1, 2, 3, 1, dtype=np.float16))],
            ShapeError,
            r"^image 1 of the batch is .*Float16>; it must be like image 0, .*Float32>$",
        ),
    ],
)
def test_images_that_make_no_batch(members: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        MPSImageBatch(members)
    with pytest.raises(ShapeError, match="at least one image"):
        MPSImageBatch.from_array(counted(1, 2, 2, 1)[:0])


def test_pixels_of_anything() -> None:
    source = counted(2, 2, 3, 4)
    image = MPSImage(source)
    assert pixels("x", image) is image.array
    assert pixels("x", source) is source
    for batch in (MPSImageBatch.from_array(source), list(MPSImageBatch.from_array(source))):
        assert same(pixels("x", batch), source)
    with pytest.raises(ShapeError, match=r"^x has shape \(2, 3, 4\) of rank 3"):
        pixels("x", source[0])
    with pytest.raises(TypeError, match=r"^image 1 of the batch is of type int"):
        pixels("x", [MPSImage(source[:1]), 3])
