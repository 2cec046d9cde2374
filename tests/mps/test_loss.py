"""The loss classes: descriptors, labels with their loss image, the loss in one and in two kernels, the chain."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import mpsref
from mpsref import OrderError, ShapeError, UnsupportedError, mps
from mpsref.kernels.loss import LOSS_TYPES, REDUCTIONS
from mpsref.mps import graph
from tests.mps.fakes import NAMES
from tests.subjects.classes import YOLO

F32 = np.float32
Y = np.array([[[[1, 2], [3, 4]]], [[[0, 0], [1, 1]]]], F32)
T = np.zeros_like(Y)
WEIGHTS = np.array([[[[1, 0], [2, 1]]], [[[0, 0], [0, 0.5]]]], F32)
GRADIENT = [1, 0, 6, 4, 0, 0, 0, 0.5]
"""Of half the weighted squared error."""


def squared(reduction: Any = "sum", **words: Any) -> mps.MPSCNNLossDescriptor:
    return mps.MPSCNNLossDescriptor("meansquarederror", reduction, weight=0.5, **words)


def test_enumerations_are_those_of_apple_and_of_the_functional_form() -> None:
    assert [(one.name.lower(), one.value) for one in mps.MPSCNNLossType] == [(n, k) for k, n in enumerate(LOSS_TYPES)]
    assert [(one.name.lower(), one.value) for one in mps.MPSCNNReductionType] == [
        (n, k) for k, n in enumerate(REDUCTIONS)
    ]


def test_descriptors() -> None:
    huber = mps.MPSCNNLossDescriptor(mps.MPSCNNLossType.Huber, 2)
    assert (huber.loss_type, huber.reduction_type) == (mps.MPSCNNLossType.Huber, mps.MPSCNNReductionType.Mean)
    assert (huber.reduce_across_batch, huber.weight, huber.label_smoothing) == (False, 1, 0)
    assert (huber.number_of_classes, huber.epsilon, huber.delta) == (1, 1e-7, 1)
    huber.delta = 0.5
    assert huber.function == mpsref.Loss("huber", "mean", delta=0.5)
    twin = mps.MPSCNNLossDescriptor.from_json(huber.to_json())
    assert twin == huber == eval(repr(huber), NAMES) == huber.copy()
    kernel = mps.MPSCNNLoss(huber)
    huber.delta = 2
    assert kernel.delta == 0.5
    for arguments, match in [
        ((7, 2), "'cosinedistance'"),
    ]:
        with pytest.raises(ValueError, match=match):
            mps.MPSCNNLossDescriptor(*arguments)
    with pytest.raises(TypeError, match="loss_descriptor is of type str"):
        mps.MPSCNNLoss("huber")  # type: ignore[arg-type]


def test_data_descriptors() -> None:
    data = np.arange(24, dtype=F32)
    hwc = mps.MPSCNNLossDataDescriptor(data, 0, (3, 2, 2))
    assert hwc.array.shape == (2, 2, 3, 2)
    assert hwc.array.ravel().tolist() == data.tolist()
    chw = mps.MPSCNNLossDataDescriptor(data, "featurechannelsxheightxwidth", (3, 2, 2))
    np.testing.assert_array_equal(chw.array, data.reshape(2, 2, 2, 3).transpose(0, 2, 3, 1))
    assert (chw.layout, chw.size) == (mps.MPSDataLayout.FeatureChannelsxHeightxWidth, (3, 2, 2))
    data[:] = 0
    assert hwc.array.any()
    for bad, error, match in [
        ((np.arange(12), 0, (3, 2, 2)), TypeError, "data has dtype int64"),
        ((data[:13], 0, (3, 2, 2)), ShapeError, "data has 13 values; it must have N \\* 12"),
        ((data[:0], 0, (3, 2, 2)), ShapeError, "data has 0 values"),
        ((data, 2, (3, 2, 2)), ValueError, "layout is 2"),
        ((data, 0, (3, 2)), ValueError, "size is"),
        ((data, 0, (3, 2, 0)), ShapeError, "each >= 1"),
    ]:
        with pytest.raises(error, match=match):
            mps.MPSCNNLossDataDescriptor(*bad)


def test_the_three_ways_to_make_labels() -> None:
    described = mps.MPSCNNLossDataDescriptor(T, 0, (2, 1, 2))
    weights = mps.MPSCNNLossDataDescriptor(WEIGHTS, 0, (2, 1, 2))
    loss = mps.MPSCNNLoss(squared())
    assert loss.encode(Y, mps.MPSCNNLossLabels(described)).ravel().tolist() == [1, 2, 3, 4, 0, 0, 1, 1]
    for labels in (
        mps.MPSCNNLossLabels((1, 1, 1), described, weights),
        mps.MPSCNNLossLabels((1, 1, 1), T, WEIGHTS),
        mps.MPSCNNLossLabels((1, 1, 1), mps.MPSImage(T), mps.MPSImage(WEIGHTS)),
    ):
        assert loss.encode(Y, labels).ravel().tolist() == GRADIENT
    for bad, error, match in [
        ((described, T), TypeError, "stands alone"),
        (((1, 1, 1), T, weights), TypeError, "both must be descriptors, or both images"),
        (((1, 1, 1), described, WEIGHTS), TypeError, "both must be descriptors, or both images"),
        (((1, 1, 1),), TypeError, "labels_descriptor and labels_image are None"),
        (((1, 1, 1), T, WEIGHTS[:1]), ShapeError, "weights has shape"),
        (((3, 1, 2), T), ShapeError, "loss_image_size is"),
        (((1, 1), T), ValueError, "loss_image_size is"),
        (((1, 1, 1), T.astype(int)), TypeError, "labels has dtype int64"),
    ]:
        with pytest.raises(error, match=match):
            mps.MPSCNNLossLabels(*bad)


def test_images_are_read_when_the_loss_runs() -> None:
    image, copied = T.copy(), mps.MPSCNNLossDataDescriptor(T, 0, (2, 1, 2))
    kept, labels = mps.MPSCNNLossLabels((1, 1, 1), image), mps.MPSCNNLossLabels((1, 1, 1), copied)
    image[...] = Y
    loss = mps.MPSCNNLoss(squared())
    assert not loss.encode(Y, kept).any()
    assert loss.encode(Y, labels).any()


@pytest.mark.parametrize(
    ("reduction", "each", "across"),
    [
        ("none", [0.5, 0, 9, 8, 0, 0, 0, 0.25], [0.5, 0, 9, 8, 0, 0, 0, 0.25]),
        ("sum", [17.5, 0.25], [17.75, 0]),
        ("mean", [4.375, 0.0625], [2.21875, 0]),
        ("sumbynonzeroweights", [5.8333333, 0.25], [4.4375, 0]),
    ],
)
def test_one_kernel_and_two_give_the_same(reduction: str, each: Any, across: Any) -> None:
    """The chain: the gradient of the loss from ones is what MPSCNNLoss gives."""
    for whole, expected in ((False, each), (True, across)):
        descriptor = squared(reduction, reduce_across_batch=whole)
        labels = mps.MPSCNNLossLabels((2, 1, 2) if reduction == "none" else (1, 1, 1), T, WEIGHTS)
        first = mps.MPSCNNLoss(descriptor).encode(Y, labels)
        assert first.ravel().tolist() == GRADIENT
        labels.synchronize()
        np.testing.assert_allclose(labels.loss_image.ravel(), expected, rtol=1e-6)
        image, state = mps.MPSNNForwardLoss(descriptor).encode(Y, T, WEIGHTS, return_state=True)
        np.testing.assert_array_equal(image, labels.loss_image)
        ones = mps.MPSNNInitialGradient().encode(image)
        assert ones.shape == image.shape
        assert (ones == 1).all()
        gradient = mps.MPSNNLossGradient(descriptor)
        np.testing.assert_array_equal(gradient.encode(ones, Y, T, WEIGHTS, state), first)


def test_gradients_for_labels() -> None:
    wide = np.concatenate([T, np.full((2, 1, 2, 1), 9, F32)], axis=3)
    gradient = mps.MPSNNLossGradient(squared(), compute_label_gradients=True)
    dt = gradient.encode(np.ones((2, 1, 1, 1), F32), Y, wide, WEIGHTS)
    assert dt.shape == wide.shape
    assert dt[..., :2].ravel().tolist() == [-v for v in GRADIENT]
    assert not dt[..., 2].any()
    target = np.full_like(wide, 7)
    assert gradient.encode(np.ones((2, 1, 1, 1), F32), Y, wide, WEIGHTS, None, target) is target
    np.testing.assert_array_equal(target, dt)


def test_a_state_carries_four_numbers() -> None:
    forward = mps.MPSNNForwardLoss(mps.MPSCNNLossDescriptor("huber", "sum"))
    forward.weight, forward.delta = 3.0, 0.5
    image, state = forward.encode(Y, T, return_state=True)
    assert dict(state.record.extras) == {"weight": 3, "label_smoothing": 0, "epsilon": 1e-7, "delta": 0.5}
    forward.delta = 9
    gradient = mps.MPSNNLossGradient(mps.MPSCNNLossDescriptor("huber", "sum"))
    found = gradient.encode(np.ones_like(image), Y, T, None, state)
    np.testing.assert_array_equal(found, 3 * np.minimum(Y, 0.5))
    assert (gradient.weight, gradient.delta) == (3, 0.5)
    _, other = mps.MPSCNNPoolingMax(1, 1).encode(Y, return_state=True)
    with pytest.raises(TypeError, match="it must be the state that MPSNNForwardLoss"):
        gradient.encode(np.ones_like(image), Y, T, None, other)


def test_repeated_gradients_have_the_numbers_of_their_state() -> None:
    """Also after a number was set, and for labels of another shape."""
    forward = mps.MPSNNForwardLoss(mps.MPSCNNLossDescriptor("huber", "sum"))
    states = []
    for forward.delta in (0.5, 2.0):
        image, state = forward.encode(Y, T, return_state=True)
        states.append(state)
    gradient, wide = mps.MPSNNLossGradient(mps.MPSCNNLossDescriptor("huber", "sum")), np.zeros((2, 1, 2, 3), F32)
    for k in (0, 0, 1, 0, 1, 1):
        delta = (0.5, 2.0)[k]
        np.testing.assert_array_equal(gradient.encode(np.ones_like(image), Y, T, None, states[k]), np.minimum(Y, delta))
        gradient.compute_label_gradients = True
        found = gradient.encode(np.ones_like(image), Y, wide, None, states[k])
        np.testing.assert_array_equal(found[..., :2], -np.minimum(Y, delta))
        assert not found[..., 2:].any()
        gradient.compute_label_gradients = False
        gradient.delta = 1.0
        np.testing.assert_array_equal(gradient.encode(np.ones_like(image), Y, T), np.minimum(Y, 1))


@pytest.mark.parametrize("kind", [mps.MPSCNNLoss, mps.MPSNNForwardLoss, mps.MPSNNLossGradient, mps.MPSCNNYOLOLoss])
def test_the_descriptor_of_a_kernel_cannot_be_changed(kind: Any) -> None:
    """It was changed before: the loss image had the new numbers, the gradient those of the first encode."""
    own = YOLO.copy() if kind is mps.MPSCNNYOLOLoss else squared()
    made = kind(own)
    own.reduction_type = "mean"
    for kernel in (made, made.copy(), copy.deepcopy(made), type(made).from_json(made.to_json())):
        descriptor = kernel.loss_descriptor
        parts = [descriptor.xy_loss_descriptor] if kind is mps.MPSCNNYOLOLoss else []
        for one in (descriptor, *parts):
            for name in ("reduction_type", "reduce_across_batch"):
                with pytest.raises(AttributeError, match=f"^{name} of {type(one).__name__} is read-only: .* copy"):
                    setattr(one, name, 1)
        assert descriptor.reduction_type is mps.MPSCNNReductionType.Sum
        changed = descriptor.copy()
        changed.reduction_type = "mean"
        for one in (part for part in vars(changed).values() if isinstance(part, mps.MPSCNNLossDescriptor)):
            one.weight = 2
        assert kind(changed).loss_descriptor == changed != descriptor


def test_the_descriptor_of_a_node_cannot_be_changed() -> None:
    node = graph.MPSCNNLossNode(graph.MPSNNImageNode(), squared())
    with pytest.raises(AttributeError, match=r"^weight of MPSCNNLossDescriptor is read-only"):
        node.loss_descriptor.weight = 2
    assert node.loss_descriptor == squared()


def test_the_loss_image_is_that_of_the_labels() -> None:
    labels = mps.MPSCNNLossLabels((1, 1, 1), T)
    mps.MPSCNNLoss(squared()).encode(Y, labels)
    labels.synchronize()
    assert labels.loss_image.ravel().tolist() == [15, 1]
    assert labels.labels_image is T
    assert labels.weights_image is None


def test_kinds_of_images() -> None:
    labels = mps.MPSCNNLossLabels((1, 1, 1), T)
    loss = mps.MPSCNNLoss(squared())
    assert isinstance(loss.encode(mps.MPSImage(Y), labels), mps.MPSImage)
    target = np.full(Y.shape, 7, np.float16)
    assert loss.encode(Y.astype(np.float16), labels, target) is target
    assert target.ravel().tolist() == [1, 2, 3, 4, 0, 0, 1, 1]
    batch = loss.encode_batch([mps.MPSImage(Y[k : k + 1]) for k in range(2)], [labels, labels])
    assert [image.array.shape for image in batch] == [(1, 1, 2, 2)] * 2


@pytest.mark.parametrize(
    ("reduction", "size", "labels", "match"),
    [
        ("none", (1, 1, 1), T, "loss_image_size is"),
        ("sum", (2, 1, 2), T, "loss_image_size is"),
        ("sum", (1, 1, 1), T[:1], "t has shape"),
        ("sum", (1, 1, 1), T[..., :1], "t has 1 channels and y has 2; the labels need at least as many"),
        ("sum", (1, 1, 1), T[:, :, :1], "t has shape .*it must have shape"),
    ],
)
def test_labels_that_do_not_fit(reduction: str, size: Any, labels: Any, match: str) -> None:
    state, target = mps.MPSCNNLossLabels(size, labels), np.full_like(Y, 7)
    with pytest.raises(ShapeError, match=match):
        mps.MPSCNNLoss(squared(reduction)).encode(Y, state, target)
    assert (target == 7).all()
    state.synchronize()
    assert not state.loss_image.any()


def test_a_loss_image_is_not_broadcast_into_a_destination() -> None:
    forward, destination = mps.MPSNNForwardLoss(mps.MPSCNNLossDescriptor("huber", "sum")), np.full_like(Y, 9)
    with pytest.raises(ShapeError, match="destination_image has room for"):
        forward.encode(Y, T, None, destination)
    assert np.all(destination == 9)


def test_errors_write_nothing() -> None:
    labels, target, buffer = mps.MPSCNNLossLabels((1, 1, 1), T - 1), np.full_like(Y, 7), mps.MPSCommandBuffer()
    buffer.commit()
    loss = mps.MPSCNNLoss(mps.MPSCNNLossDescriptor("categoricalcrossentropy", "sum"))
    for call, error in [
        (lambda: loss.encode(Y, labels, target, command_buffer=buffer), OrderError),
        (lambda: loss.encode(Y, labels, target, validate=True), ValueError),
        (lambda: loss.encode(Y, labels, target[:, :, :1]), ShapeError),
        (lambda: loss.encode(Y, T, target), TypeError),
        (lambda: loss.encode(Y, [labels], target), ValueError),
        (lambda: loss.encode(Y, labels, Y), ValueError),
    ]:
        with pytest.raises(error):
            call()
        labels.synchronize()
        assert not labels.loss_image.any()
        assert (target == 7).all()
    cosine = mps.MPSNNForwardLoss(mps.MPSCNNLossDescriptor("cosinedistance", "sum"))
    with pytest.raises(ValueError, match="weights are given"):
        cosine.encode(Y, T, WEIGHTS)
    gradient = mps.MPSNNLossGradient(squared())
    before = gradient.copy()
    with pytest.raises(ShapeError, match="g has shape"):
        gradient.encode(Y, Y, T)
    with pytest.raises(ShapeError, match="destination_gradient has shape"):
        gradient.encode(Y[:, :, :1, :1], Y, T, None, None, target[:1])
    assert gradient == before


@pytest.mark.parametrize("name", ["offset", "clip_rect", "source_feature_channel_offset"])
def test_only_whole_images(name: str) -> None:
    value = {"offset": (1, 0), "clip_rect": ((0, 0, 0), (1, 1, 1)), "source_feature_channel_offset": 4}[name]
    wide = np.zeros((1, 1, 2, 8), F32)
    with pytest.raises(UnsupportedError, match=f"{name} is"):
        mps.MPSCNNLoss(squared(), **{name: value}).encode(wide, mps.MPSCNNLossLabels((1, 1, 1), wide))
    with pytest.raises(UnsupportedError, match=f"{name} is"):
        mps.MPSNNForwardLoss(squared(), **{name: value}).encode(wide, wide)
    own = name if name == "clip_rect" else f"secondary_{name}"
    with pytest.raises(UnsupportedError, match=f"{own} is"):
        mps.MPSNNLossGradient(squared(), **{own: value}).encode(wide[:, :, :1, :1], wide, wide)
