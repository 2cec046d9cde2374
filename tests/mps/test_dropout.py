"""The dropout classes: masks kept in the state, sequences, injection, geometry, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mpsref
from mpsref import ShapeError, mps
from mpsref.arguments.arrays import Array
from mpsref.mps import MPSCNNDropout, MPSCNNDropoutGradient, MPSCommandBuffer

ARGUMENTS = (0.5, 1, (1, 1, 1))
X = np.arange(1, 25, dtype=np.float32).reshape(2, 2, 3, 2)


def pair(*arguments: Any, **words: Any) -> tuple[MPSCNNDropout, MPSCNNDropoutGradient]:
    return MPSCNNDropout(*arguments, **words), MPSCNNDropoutGradient(*arguments, **words)


def test_the_worked_example() -> None:
    drop, gradient = pair(*ARGUMENTS)
    y, state = drop.encode(X, return_state=True)
    assert y[0].ravel().tolist() == [0, 0, 0, 0, 10, 12, 14, 16, 18, 20, 22, 24]
    assert y[1].ravel().tolist() == [26, 28, 30, 32, 34, 36, 38, 40, 42, 0, 46, 0]
    dx = gradient.encode_batch(np.ones_like(X), X, [state, state])
    np.testing.assert_array_equal(dx, 2.0 * (y != 0))


def test_the_mask_is_that_of_the_last_encode() -> None:
    drop, seen = MPSCNNDropout(*ARGUMENTS), []
    _, state = drop.encode(X, return_state=True)
    for _ in range(2):
        y = drop.encode(X, destination_state=state)
        state.synchronize()
        assert state.mask_data.dtype == np.uint8
        np.testing.assert_array_equal(state.mask_data, y != 0)
        seen.append(state.mask_data)
    assert not np.array_equal(*seen)


def test_a_state_has_no_mask_before_its_encode() -> None:
    drop, gradient = pair(*ARGUMENTS)
    state = drop.result_state_for_source_image(X)
    with pytest.raises(mpsref.NotSynchronizedError, match="mask_data cannot be read"):
        _ = state.mask_data
    state.synchronize()
    for call in (lambda: state.mask_data, lambda: gradient.encode(X, X, state)):
        with pytest.raises(mpsref.OrderError, match="has no mask yet"):
            call()
    assert drop.sequence == 0
    y = drop.encode(X, destination_state=state)
    np.testing.assert_array_equal(gradient.encode(X, X, state), y)
    state.synchronize()
    np.testing.assert_array_equal(state.mask_data, y != 0)
    for bad, error in (
        (lambda: drop.result_state_for_source_image(X, None, np.zeros_like(X[:, :1])), ValueError),
        (lambda: MPSCNNDropout(*ARGUMENTS, offset=(1, 0, 0)).result_state_for_source_image(X), mpsref.UnsupportedError),
    ):
        with pytest.raises(error):
            bad()


def masks(drop: MPSCNNDropout, **words: Any) -> Array:
    y: Array = drop.encode(np.ones_like(X), **words)
    return y != 0


def test_sequences() -> None:
    """Each encode that draws a mask draws another one, and a run can be replayed."""
    drop = MPSCNNDropout(*ARGUMENTS)
    first, second = masks(drop), masks(drop)
    assert drop.sequence == 2
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(masks(drop, sequence=0), first)
    given = mpsref.Dropout(0.5, 1).mask(X.shape, 99)
    np.testing.assert_array_equal(masks(drop, mask=given), given)
    assert drop.sequence == 2
    drop.sequence = 0
    np.testing.assert_array_equal(masks(drop), first)
    drop.sequence = 2**64 - 1
    masks(drop)
    assert drop.sequence == 0


def test_sub_batches_get_the_masks_of_the_batch() -> None:
    drop = MPSCNNDropout(*ARGUMENTS)
    whole = masks(drop, sequence=5)
    parts = [drop.encode(np.ones_like(X[:1]), sequence=5, first_image_index=k) != 0 for k in range(2)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("stride", [(0, 0, 1), (1, 1, 0), (0, 1, 1), (1, 0, 0)])
def test_mask_strides_are_in_the_order_of_apple(stride: tuple[int, int, int]) -> None:
    drop, gradient = pair(0.5, 1, stride)
    y, state = drop.encode(np.ones_like(X), return_state=True)
    state.synchronize()
    x_stride, y_stride, z_stride = stride
    assert state.mask_data.shape == (2, 2 if y_stride else 1, 3 if x_stride else 1, 2 if z_stride else 1)
    np.testing.assert_array_equal(y, np.broadcast_to(2.0 * state.mask_data, y.shape))
    np.testing.assert_array_equal(gradient.encode(np.ones_like(X), X, state), y)


@pytest.mark.parametrize("offset", [(1, 0), (0, 1), (-1, 0), (-2, -1), (5, 0), (0, -9)])
@pytest.mark.parametrize("stride", [(1, 1, 1), (1, 0, 1), (0, 0, 1)])
def test_the_secondary_offset_shifts_the_mask(offset: tuple[int, int], stride: tuple[int, int, int]) -> None:
    drop, gradient = pair(0.5, 1, stride)
    _, state = drop.encode(X, return_state=True)
    state.synchronize()
    mask, (ox, oy) = state.mask_data, offset
    gradient.secondary_offset = offset
    found = gradient.encode(np.ones_like(X), X, state, np.empty_like(X))
    for n, h, w, c in np.ndindex(*X.shape):
        row, column = (h + oy) * stride[1], (w + ox) * stride[0]
        inside = 0 <= row < mask.shape[1] and 0 <= column < mask.shape[2]
        assert found[n, h, w, c] == (2 if inside and mask[n, row, column, c] else 0)


def test_a_gradient_kernel_must_be_like_its_forward_kernel() -> None:
    _, state = MPSCNNDropout(*ARGUMENTS).encode(X, return_state=True)
    for arguments, name in [
        ((0.25, 1, (1, 1, 1)), "keep_probability"),
        ((0.5, 2, (1, 1, 1)), "seed"),
        ((0.5, 1, (1, 1, 0)), "mask_stride_in_pixels"),
    ]:
        with pytest.raises(ValueError, match=f"{name} is .*; that of the forward kernel"):
            MPSCNNDropoutGradient(*arguments).encode(X, X, state)
    gradient = MPSCNNDropoutGradient(*ARGUMENTS)
    with pytest.raises(TypeError, match=r"gradient_state is None; .* holds the mask"):
        gradient.encode(X, X)
    assert mps.MPSCNNDropout(0.5, 1, (1, 1, 1)).is_result_state_reused_across_batch


def test_errors_draw_no_mask_and_write_nothing() -> None:
    drop, buffer = MPSCNNDropout(*ARGUMENTS), MPSCommandBuffer()
    target = np.full(X.shape, 7, np.float32)
    buffer.commit()
    good = mpsref.Dropout(0.5, 1).mask(X.shape)
    for call, error in [
        (lambda: drop.encode(X, target, command_buffer=buffer), mpsref.OrderError),
        (lambda: drop.encode(X, target[:, :1]), ShapeError),
        (lambda: drop.encode(X, target, mask=good[:1]), ShapeError),
        (lambda: drop.encode(X, target, mask=good * 3), ValueError),
        (lambda: drop.encode(X, target, mask=good.astype(bool)), TypeError),
        (lambda: drop.encode(X, target, sequence=-1), ValueError),
        (lambda: drop.encode(X, target, first_image_index=2**32), ValueError),
    ]:
        with pytest.raises(error):
            call()
        assert drop == MPSCNNDropout(*ARGUMENTS)
        assert (target == 7).all()
