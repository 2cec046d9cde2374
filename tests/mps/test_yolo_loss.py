"""The loss of YOLO: against an implementation in PyTorch, one box at a time."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from mpsref import OrderError, ShapeError, mps
from mpsref.arguments.arrays import Array
from tests.mps.fakes import NAMES

ANCHORS = ((1.0, 2.0), (0.5, 0.75), (1.25, 1.75))
TYPES = "meansquarederror", "huber", "sigmoidcrossentropy", "softmaxcrossentropy"
SHAPE = (2, 2, 3, 3, 9)


def descriptor(reduction: str = "sum", **properties: Any) -> mps.MPSCNNYOLOLossDescriptor:
    return mps.MPSCNNYOLOLossDescriptor(*TYPES, reduction, ANCHORS, **properties)


def case(seed: int, every_anchor: bool = True) -> tuple[Array, Array]:
    """Return predictions and labels: objects in most of the cells, for all anchors or for some."""
    rng = np.random.default_rng(seed)
    y = rng.normal(size=SHAPE) * [1, 1, 0.4, 0.4, 1, 1, 1, 1, 1]
    t = np.zeros(SHAPE)
    there = rng.random((*SHAPE[:3], 1 if every_anchor else SHAPE[3])) < 0.6
    of_cell = np.broadcast_to(there, SHAPE[:4])
    centre, size = rng.uniform(0.1, 0.9, (*SHAPE[:3], 1, 2)), rng.uniform(0.4, 2.5, (*SHAPE[:3], 1, 2))
    if seed % 2:  # predictions near the labels: several boxes of a cell overlap them by more than the threshold
        y[..., :2] = np.log(centre / (1 - centre)) + 0.2 * y[..., :2]
        y[..., 2:4] = np.log(size / np.array(ANCHORS)) + 0.2 * y[..., 2:4]
    classes = np.eye(4)[rng.integers(0, 4, SHAPE[:3])][..., None, :]
    full = np.concatenate([np.broadcast_to(part, (*SHAPE[:4], part.shape[-1])) for part in (centre, size)], axis=-1)
    t[..., :4], t[..., 4], t[..., 5:] = full, 1, classes
    t[~of_cell] = 0
    images = [np.ascontiguousarray(part.reshape(*SHAPE[:3], -1), np.float32) for part in (y, t)]
    return images[0], images[1]


def in_torch(y: Array, t: Array, weights: Array | None = None, *, rescore: bool = True, huber: float = 1.0) -> Any:
    """Return the loss of each image and the gradient of their sum, float64, from the definition of each box."""
    torch = pytest.importorskip("torch")
    raw = torch.tensor(y.astype(np.float64).reshape(SHAPE), requires_grad=True)
    labels = torch.tensor(t.astype(np.float64).reshape(SHAPE))
    factors = (
        torch.ones(SHAPE, dtype=torch.float64) if weights is None else torch.tensor(weights.reshape(SHAPE)).double()
    )

    def overlap(box: Any, label: Any, anchor: tuple[float, float]) -> float:
        centre, width, height = torch.sigmoid(box[:2]), anchor[0] * torch.exp(box[2]), anchor[1] * torch.exp(box[3])
        x = min(centre[0] + width / 2, label[0] + label[2] / 2) - max(centre[0] - width / 2, label[0] - label[2] / 2)
        z = min(centre[1] + height / 2, label[1] + label[3] / 2) - max(centre[1] - height / 2, label[1] - label[3] / 2)
        inside = max(float(x), 0.0) * max(float(z), 0.0)
        return inside / float(width * height + label[2] * label[3] - inside)

    losses = []
    for n in range(SHAPE[0]):
        total = torch.zeros((), dtype=torch.float64)
        for row in range(SHAPE[1]):
            for column in range(SHAPE[2]):
                cell, wanted, weight = (part[n, row, column] for part in (raw, labels, factors))
                known = [
                    overlap(cell[a].detach(), wanted[a], ANCHORS[a]) if wanted[a, 4] > 0 else None for a in range(3)
                ]
                largest = max((u for u in known if u is not None), default=None)
                for a, u in enumerate(known):
                    box, label, w = cell[a], wanted[a], weight[a]
                    if u is not None and (u == largest or u > 0.7):
                        total = total + 10 * (w[:2] * (torch.sigmoid(box[:2]) - label[:2]) ** 2).sum()
                        goal = torch.log(label[2:4] / torch.tensor(ANCHORS[a], dtype=torch.float64))
                        smooth = torch.nn.functional.huber_loss(box[2:4], goal, reduction="none", delta=huber)
                        total = total + 10 * (w[2:4] * smooth).sum()
                        confidence = label[4] * (u if rescore else 1)
                        entropy = torch.nn.functional.binary_cross_entropy_with_logits(box[4], confidence)
                        total = total + 100 * w[4] * entropy
                        total = total - 2 * (w[5:] * label[5:] * torch.log_softmax(box[5:], 0)).sum()
                    elif u is None or u < 0.3:
                        zero = torch.zeros((), dtype=torch.float64)
                        entropy = torch.nn.functional.binary_cross_entropy_with_logits(box[4], zero)
                        total = total + 5 * w[4] * entropy
        losses.append(total)
    torch.stack(losses).sum().backward()
    return torch.stack(losses).detach().numpy(), raw.grad.numpy().reshape(y.shape)


def encoded(y: Array, t: Array, weights: Array | None = None, backend: str | None = None, **properties: Any) -> Any:
    labels = mps.MPSCNNLossLabels((1, 1, 1), labels_image=t, weights_image=weights)
    g = mps.MPSCNNYOLOLoss(descriptor(**properties), backend=backend).encode(y, labels)
    labels.synchronize()
    return labels.loss_image[:, 0, 0, 0], g


@pytest.mark.parametrize("every_anchor", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_pytorch_agrees(seed: int, every_anchor: bool, backend: str) -> None:
    y, t = case(seed, every_anchor)
    loss, g = encoded(y, t, backend=backend)
    expected, gradient = in_torch(y, t)
    np.testing.assert_allclose(loss, expected, 1e-4)
    np.testing.assert_allclose(g, gradient, 1e-4, 1e-3)
    assert np.count_nonzero(g.reshape(SHAPE)[..., :4]), "some boxes have objects"
    assert seed % 2 or np.count_nonzero(g.reshape(SHAPE)[..., 4] == 0), "some boxes count for nothing"


def test_pytorch_agrees_with_weights_and_other_parameters() -> None:
    y, t = case(7)
    rng = np.random.default_rng(8)
    weights = rng.integers(0, 3, y.shape).astype(np.float32)
    weights.reshape(SHAPE)[..., 5:] = weights.reshape(SHAPE)[..., 5:6]  # the gradient of softmax needs equal ones
    part = mps.MPSCNNLossDescriptor("huber", "mean", delta=0.25)
    loss, g = encoded(y, t, weights, rescore=False, wh_loss_descriptor=part)
    expected, gradient = in_torch(y, t, weights, rescore=False, huber=0.25)
    np.testing.assert_allclose(loss, expected, 1e-4)
    np.testing.assert_allclose(g, gradient, 1e-4, 1e-3)


def test_reductions() -> None:
    y, t = case(1)
    (first, second), g = encoded(y, t)
    whole = y[0].size
    weights = np.ones_like(y)
    weights[0, 0] = 0
    for properties, expected in [
        ({"reduction": "mean"}, [first / whole, second / whole]),
        ({"reduce_across_batch": True}, [first + second, 0]),
        ({"reduction": "mean", "reduce_across_batch": True}, [(first + second) / (2 * whole), 0]),
    ]:
        loss, same = encoded(y, t, **properties)
        np.testing.assert_allclose(loss, expected, 1e-5)
        np.testing.assert_array_equal(same, g)
    loss, _ = encoded(y, t, weights)
    divided, _ = encoded(y, t, weights, reduction="sumbynonzeroweights")
    np.testing.assert_allclose(divided, loss / np.count_nonzero(weights, axis=(1, 2, 3)), 1e-5)
    labels = mps.MPSCNNLossLabels((3, 2, 27), labels_image=t)
    mps.MPSCNNYOLOLoss(descriptor("none")).encode(y, labels)
    labels.synchronize()
    np.testing.assert_allclose(labels.loss_image.sum(axis=(1, 2, 3)), [first, second], 1e-5)


def test_descriptors() -> None:
    one = descriptor("mean", scale_xy=3, wh_loss_descriptor=mps.MPSCNNLossDescriptor("huber", "sum", delta=0.5))
    assert (one.number_of_anchor_boxes, one.anchor_boxes, one.rescore) == (3, ANCHORS, True)
    assert (one.scale_wh, one.scale_no_object, one.scale_object, one.scale_class) == (10, 5, 100, 2)
    assert (one.min_iou_for_object_presence, one.max_iou_for_object_absence) == (0.7, 0.3)
    for twin in (eval(repr(one), NAMES), copy.deepcopy(one), mps.MPSCNNYOLOLossDescriptor.from_json(one.to_json())):
        assert twin == one
        assert twin.wh_loss_descriptor.delta == 0.5
    kernel = mps.MPSCNNYOLOLoss(one)
    one.scale_xy, one.wh_loss_descriptor = 4, mps.MPSCNNLossDescriptor("meansquarederror", "sum")
    assert (kernel.scale_xy, kernel.loss_wh.delta, kernel.number_of_anchor_boxes) == (3, 0.5, 3)
    in_bytes = np.float32(ANCHORS).tobytes()
    name = (
        "cnn_loss_descriptor_with_xy_loss_type_wh_loss_type_confidence_loss_type_classes_loss_type_reduction_type_"
        "anchor_boxes_number_of_anchor_boxes"
    )
    assert getattr(mps.MPSCNNYOLOLossDescriptor, name)(*TYPES, "sum", in_bytes, 3) == descriptor()


WRONG = [
    (
        lambda: mps.MPSCNNYOLOLossDescriptor(*TYPES, "sum", ANCHORS, 2),
        ValueError,
        "number_of_anchor_boxes is 2; .* has 3",
    ),
    (lambda: mps.MPSCNNYOLOLossDescriptor(*TYPES, "sum", [1, 2, 3]), ShapeError, "an array \\(A, 2\\)"),
    (lambda: mps.MPSCNNYOLOLossDescriptor(*TYPES, "sum", [[1, 0]]), ValueError, "must be > 0"),
    (lambda: descriptor(max_iou_for_object_absence=1.5), ValueError, "max_iou_for_object_absence is 1.5"),
    (lambda: descriptor(xy_loss_descriptor="huber"), TypeError, "xy_loss_descriptor is of type str"),
    (
        lambda: descriptor(xy_loss_descriptor=mps.MPSCNNLossDescriptor("cosinedistance", "sum")),
        ValueError,
        "xy_loss_descriptor is a cosine distance",
    ),
    (lambda: mps.MPSCNNYOLOLoss(mps.MPSCNNLossDescriptor("huber", "sum")), TypeError, "an MPSCNNYOLOLossDescriptor"),
    (lambda: encoded(*np.zeros((2, 1, 1, 1, 26), np.float32)), ShapeError, "source_image has 26 channels; with 3"),
    (lambda: encoded(*np.zeros((2, 1, 1, 1, 15), np.float32)), ShapeError, "source_image has 15 channels"),
    (lambda: encoded(case(0)[0], np.zeros((2, 2, 2, 27), np.float32)), ShapeError, "labels have shape \\(2, 2, 2, 27"),
    (lambda: encoded(case(0)[0], np.zeros((2, 2, 3, 18), np.float32)), ShapeError, "labels have shape \\(2, 2, 3, 18"),
]


@pytest.mark.parametrize(("call", "error", "words"), WRONG, ids=[row[2] for row in WRONG])
def test_illegal_calls(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_no_error_writes_anything() -> None:
    y, t = case(0)
    labels, into = mps.MPSCNNLossLabels((1, 1, 1), labels_image=t), np.full_like(y, 7)
    buffer = mps.MPSCommandBuffer()
    buffer.commit()
    with pytest.raises(OrderError):
        mps.MPSCNNYOLOLoss(descriptor()).encode(y, labels, into, command_buffer=buffer)
    with pytest.raises(ShapeError):
        mps.MPSCNNYOLOLoss(descriptor("none")).encode(y, labels, into)
    assert (into == 7).all()
    assert mps.MPSCNNYOLOLoss(descriptor()).encode(y, labels, into) is into
    assert not (into == 7).any()


def test_numbers_of_boxes_that_do_not_count_have_no_effect() -> None:
    y, t = case(2)
    _, expected = encoded(y, t)
    unused = expected.reshape(SHAPE)[..., 4] == 0
    y.reshape(SHAPE)[unused, 5:] = 1e30
    y.reshape(SHAPE)[unused, 4] = -50
    loss, g = encoded(y, t)
    assert np.isfinite(loss).all()
    np.testing.assert_array_equal(g, expected)


def test_a_node_trains(backend: str) -> None:
    y, t = case(4)
    node = mps.graph.MPSCNNYOLOLossNode(mps.graph.MPSNNImageNode("y"), descriptor())
    compiled = mps.graph.MPSNNGraph(node.result_image, backend=backend)
    labels = mps.MPSCNNLossLabels((1, 1, 1), labels_image=t)
    g = compiled.encode_batch([y], [labels])
    loss, expected = encoded(y, t, backend=backend)
    np.testing.assert_allclose(g, expected, 1e-5, 1e-5)
    labels.synchronize()
    np.testing.assert_allclose(labels.loss_image[:, 0, 0, 0], loss, 1e-5)
    wrong = np.zeros((1, 1, 1, 26), np.float32)
    with pytest.raises(ValueError, match="has 26 channels; with 3"):
        compiled.encode_batch([wrong], [mps.MPSCNNLossLabels(labels_image=wrong)])
