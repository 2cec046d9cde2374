"""The loss of YOLO with Apple's names: descriptor, kernel and node.

An image is a grid of cells. A box of a cell has 5 + K channels, x, y, w, h, C and K classes, and each of A anchors has
a box in every cell. The loss of a box is that of its four parts, each an :class:`mpsref.Loss` with a scale:

    x, y      l(sigmoid(x), tx), l(sigmoid(y), ty)              of boxes with an object, times ``scale_xy``
    w, h      l(w, log(tw / anchor width)), the same for h      of boxes with an object, times ``scale_wh``
    C         l(C, tC u) of boxes with an object, times ``scale_object``; of boxes without, l(C, 0) ``scale_no_object``
    classes   l(classes, labels)                                of boxes with an object, times ``scale_class``

u is the intersection over union of the predicted box and that of the label, or 1 without ``rescore``; its gradient is
0. The predicted box has its centre at the sigmoids and the size ``anchor exp(w, h)``; labels have centre, width and
height in cells.

>>> import numpy as np
>>> described = MPSCNNYOLOLossDescriptor("meansquarederror", "huber", "meansquarederror", "softmaxcrossentropy", "sum",
...                                      [[1, 1]])
>>> labels = MPSCNNLossLabels((1, 1, 1), np.float32([0.5, 0.5, 1, 1, 1, 1, 0]).reshape(1, 1, 1, 7))
>>> g = MPSCNNYOLOLoss(described).encode(np.float32([0, 0, 0, 0, 0.5, 0, 0]).reshape(1, 1, 1, 7), labels)
>>> g.ravel().tolist()
[0.0, 0.0, 0.0, 0.0, -100.0, -1.0, 1.0]

Source: ``MPSCNNLoss.h``: layout, parts, sigmoid, scales, thresholds and rescoring [doc]. It leaves open which boxes
have an object [choice yolo-object], what the labels of w and h are [obs yolo-size], and whether the gradient goes
through u [obs yolo-rescore].
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from mpsref.arguments.arrays import Array, ImageShape, Shape, as_array
from mpsref.arguments.device import on_host
from mpsref.arguments.parameters import flag, integer, number
from mpsref.errors import ShapeError
from mpsref.kernels import Neuron
from mpsref.kernels.loss import REDUCTIONS, Loss, LossForward
from mpsref.mps.core.call import Call, made
from mpsref.mps.core.command_buffer import MPSCommandBuffer
from mpsref.mps.core.image_arguments import ImageLike, ImageResult, batch_form
from mpsref.mps.core.properties import (
    Alias,
    Argument,
    Initializer,
    Property,
    constructed,
    describe_parameters,
    initialize,
    instance_of,
    set_read_only,
)
from mpsref.mps.core.serialization import Descriptor, secure_coding
from mpsref.mps.core.types import member
from mpsref.mps.graph.nodes import MPSNNImageNode
from mpsref.mps.graph.trainable import NodeParameters
from mpsref.mps.loss import (
    LabelledLoss,
    LabelledLossNode,
    MPSCNNLoss,
    MPSCNNLossDescriptor,
    MPSCNNLossLabels,
    MPSCNNLossType,
    MPSCNNReductionType,
    check_targets,
    form_of,
)
from mpsref.registry import Backend

SIGMOID = Neuron("sigmoid")
LARGEST_EXPONENT = 80.0
"""Widths and heights are limited to ``exp`` of it, so that areas are finite."""


class Boxes(NamedTuple):
    """Which boxes count, (N, H, W, A) each."""

    has_object: Array
    is_absent: Array
    overlap: Array
    """Intersection over union with the label; 0 where the label has no object."""


@dataclass(frozen=True)
class YOLOLoss:
    """The functional form, with the methods of :class:`mpsref.Loss` that a loss kernel calls."""

    parts: tuple[Loss, Loss, Loss, Loss]
    """Of x and y, w and h, confidence, and classes; nothing is reduced."""
    anchors: tuple[tuple[float, float], ...]
    reduction: str
    reduce_across_batch: bool
    rescore: bool
    scales: tuple[float, float, float, float]
    """Of x and y, w and h, the confidence of objects, and classes."""
    scale_no_object: float
    presence: float
    absence: float

    def loss_shape(self, shape: ImageShape) -> ImageShape:
        """Return the shape of the loss image."""
        return self._reduction.loss_shape(shape)

    @cached_property
    def _reduction(self) -> Loss:
        return made(Loss, "meansquarederror", self.reduction, self.reduce_across_batch)  # type: ignore[no-any-return]

    def boxes(self, name: str, image: Array) -> Array:
        """Return an image as (N, H, W, A, 5 + K); ``ShapeError`` for channels that are not those of boxes."""
        n, height, width, channels = image.shape
        anchors = len(self.anchors)
        if channels % anchors or channels // anchors < 6:
            raise ShapeError(
                f"{name} has {channels} channels; with {anchors} anchor box(es) it must have {anchors} times (5 plus "
                "the number of classes, at least 1)"
            )
        return image.reshape(n, height, width, anchors, channels // anchors)

    def assigned(self, y: Array, t: Array) -> Boxes:
        """Return which boxes have an object, and which have none; all others count for nothing.

        Of the boxes of a cell whose label has a confidence above 0, the one that overlaps its label most has an object
        (the first of equal ones), and each that overlaps it by more than ``presence``. The others, and those without
        such a label, have none if they overlap it by less than ``absence``.
        """
        y, t = y.astype(np.float64), t.astype(np.float64)
        labelled = t[..., 4] > 0
        with np.errstate(over="ignore"):
            centre = 1 / (1 + np.exp(-y[..., :2]))
        size = np.array(self.anchors) * np.exp(np.clip(y[..., 2:4], -LARGEST_EXPONENT, LARGEST_EXPONENT))
        label_centre, label_size = t[..., :2], t[..., 2:4]
        low = np.maximum(centre - size / 2, label_centre - label_size / 2)
        high = np.minimum(centre + size / 2, label_centre + label_size / 2)
        common = np.maximum(high - low, 0).prod(axis=-1)
        union = size.prod(axis=-1) + label_size.prod(axis=-1) - common
        overlap = np.where(labelled & (union > 0), common / np.where(union > 0, union, 1), 0)
        candidates = np.where(labelled, overlap, -1)
        best = np.arange(len(self.anchors)) == candidates.argmax(axis=-1)[..., None]
        has_object = labelled & (best | (overlap > self.presence))
        return Boxes(has_object, ~has_object & (overlap < self.absence), overlap)

    def _terms(
        self, y: Array, t: Array, weights: Array | None, backend: str | Backend | None
    ) -> Iterator[tuple[slice, Loss, Array, Array, Array]]:
        """Yield for each part its channels, loss, predictions, labels and weights, (N, H, W A, channels)."""
        shape = y.shape
        check_targets(shape, (t.shape, None if weights is None else weights.shape))
        boxes, labels = self.boxes("source_image", y), self.boxes("labels", t[..., : shape[3]])
        known = self.assigned(boxes, labels)
        has, overlap = known.has_object[..., None], known.overlap[..., None]

        def image(array: Array) -> Array:
            n, height, width, anchors, channels = array.shape
            return np.ascontiguousarray(array).reshape(n, height, width * anchors, channels)

        anchors = np.array(self.anchors)
        sizes = np.where(has & (labels[..., 2:4] > 0), labels[..., 2:4] / anchors, 1)
        target = labels[..., 4:5] * (overlap if self.rescore else 1)
        absent = self.scale_no_object * known.is_absent[..., None]
        cuts = slice(0, 2), slice(2, 4), slice(4, 5), slice(5, boxes.shape[4])
        centre = SIGMOID.forward(image(boxes[..., :2]), backend=backend)
        predictions = centre, *(image(boxes[..., cut]) for cut in cuts[1:])
        wanted = labels[..., :2], np.log(sizes), np.where(has, target, 0), labels[..., 5:]
        for k, (cut, loss) in enumerate(zip(cuts, self.parts, strict=True)):
            factor = np.where(has, self.scales[k], absent if k == 2 else 0.0)
            factor = np.broadcast_to(factor, (*boxes.shape[:4], cut.stop - cut.start))
            if weights is not None:
                factor = factor * self.boxes("weights", weights[..., : shape[3]])[..., cut]
            goal = np.where(factor == 0, 0, wanted[k])
            yield cut, loss, predictions[k], image(goal.astype(y.dtype)), image(factor.astype(y.dtype))

    def elements(self, y: Array, t: Array, weights: Array | None, method: str, backend: str | Backend | None) -> Array:
        """Return the loss or the gradient of each element, like y; boxes that do not count have 0."""
        if type(y) is not np.ndarray or type(t) is not np.ndarray:
            y, t = on_host(y), on_host(t)
        result = np.zeros_like(y)
        boxes = self.boxes("source_image", result)
        for cut, loss, p, q, w in self._terms(y, t, None if weights is None else on_host(weights), backend):
            given = (p, q, w) if method == "forward" else (None, p, q, w)
            with np.errstate(all="ignore"):
                values = np.where(w == 0, 0, getattr(loss, method)(*given, backend=backend))
            part = boxes[..., cut]
            if method == "gradient" and cut.start == 0:
                raw = np.ascontiguousarray(self.boxes("source_image", y)[..., cut]).reshape(p.shape)
                values = SIGMOID.gradient(values.astype(y.dtype), raw, backend=backend)
            part[...] = values.reshape(part.shape)
        return result

    def forward(
        self,
        y: Array,
        t: Array,
        weights: Array | None = None,
        *,
        validate: bool = False,
        backend: str | Backend | None = None,
    ) -> Array:
        """Return the loss image."""
        values = self.elements(y, t, weights, "forward", backend)
        if self.reduction == "none":
            return values
        problem = LossForward(self._reduction, y.shape, y.shape[3], weights is not None)
        sums = values.sum(axis=(1, 2, 3), dtype=np.float64)
        return problem.loss_image(sums, weights).astype(y.dtype)

    def gradient(
        self,
        g: None,
        y: Array,
        t: Array,
        weights: Array | None = None,
        validate: bool = False,
        *,
        out: Array | None = None,
        backend: str | Backend | None = None,
    ) -> Array:
        """Return the gradient of the sum for y."""
        values = self.elements(y, t, weights, "gradient", backend)
        if out is None:
            return values
        out[...] = values
        return out


# --- the descriptor ---------------------------------------------------------------------------------------------------


def _part(name: str, value: object) -> MPSCNNLossDescriptor:
    descriptor = instance_of(name, value, MPSCNNLossDescriptor)
    if descriptor.loss_type is MPSCNNLossType.CosineDistance:
        raise ValueError(f"{name} is a cosine distance, which is one number of an image; take another type")
    return descriptor.copy()


def _anchors(name: str, value: Any) -> tuple[tuple[float, float], ...]:
    """Return widths and heights; as bytes, they are float32."""
    array = np.frombuffer(value, np.float32) if isinstance(value, (bytes, bytearray)) else as_array(name, value)
    if array.dtype.kind not in "iuf" or array.size % 2 or not array.size or array.ndim > 2:
        raise ShapeError(f"{name} must be the width and the height of each anchor box, an array (A, 2)")
    numbers = array.reshape(-1, 2).tolist()
    if not all(0 < side <= LARGEST_SIDE for pair in numbers for side in pair):
        raise ValueError(f"{name} is {numbers}; widths and heights must be > 0 and <= {LARGEST_SIDE:g}")
    return tuple((float(width), float(height)) for width, height in numbers)


LARGEST_SIDE = 1e30


def _scale(default: float, of: str) -> Property[float]:
    return Property(number, default, f"The factor of the loss of {of}.")


def _share(default: float, text: str) -> Property[float]:
    return Property(partial(number, low=0, high=1), default, text)


TYPES = "xy_loss_type", "wh_loss_type", "confidence_loss_type", "classes_loss_type"
PARTS = tuple(name.replace("_type", "_descriptor") for name in TYPES)
SCALES = "scale_xy", "scale_wh", "scale_object", "scale_class"
_parts_of: Callable[[object], tuple[MPSCNNLossDescriptor, ...]] = operator.attrgetter(*PARTS)
_form_of_part = partial(form_of, is_reduced=False)
_scales_of: Callable[[object], tuple[float, float, float, float]] = operator.attrgetter(*SCALES)
SETTABLE = (
    "reduce_across_batch", "rescore", *SCALES, "scale_no_object", "min_iou_for_object_presence",
    "max_iou_for_object_absence", *PARTS,
)  # fmt: skip


@secure_coding(version=1, arguments=(*TYPES, "reduction_type", "anchor_boxes"), properties=SETTABLE)
@describe_parameters
class MPSCNNYOLOLossDescriptor(Descriptor):
    """The parts of a YOLO loss, their scales, and the anchor boxes; a kernel has a copy, which cannot be changed.

    The type of a part is any but ``CosineDistance``. The descriptor of each part can be set later; its reduction is not
    used. Anchor boxes are numbers (A, 2), or bytes of float32.

    Raises
    ------
    TypeError, ValueError
        For values that are not legal, and another number of anchor boxes.
    """

    xy_loss_descriptor = Property(_part, MPSCNNLossDescriptor("meansquarederror", "none"), "The loss of x and y.")
    wh_loss_descriptor = Property(_part, MPSCNNLossDescriptor("huber", "none"), "The loss of width and height.")
    confidence_loss_descriptor = Property(
        _part, MPSCNNLossDescriptor("sigmoidcrossentropy", "none"), "The loss of the confidence."
    )
    classes_loss_descriptor = Property(
        _part, MPSCNNLossDescriptor("softmaxcrossentropy", "none"), "The loss of the classes."
    )
    reduction_type = Property(
        partial(member, kind=MPSCNNReductionType),
        MPSCNNReductionType.NONE,
        "How the losses of all elements are reduced.",
    )
    anchor_boxes: Property[tuple[tuple[float, float], ...]] = Property(
        _anchors, ((1.0, 1.0),), "Width and height of each anchor box, in cells."
    )
    reduce_across_batch = Property(flag, False, "Whether all images are reduced to one number.")
    rescore = Property(flag, True, "Whether the label of the confidence is multiplied by the overlap.")
    scale_xy = _scale(10.0, "x and y")
    scale_wh = _scale(10.0, "width and height")
    scale_no_object = _scale(5.0, "the confidence of boxes without an object")
    scale_object = _scale(100.0, "the confidence of boxes with an object")
    scale_class = _scale(2.0, "the classes")
    min_iou_for_object_presence = _share(0.7, "The overlap above which a box has an object, in [0, 1].")
    max_iou_for_object_absence = _share(0.3, "The overlap below which a box has none, in [0, 1].")

    def __init__(
        self,
        /,
        xy_loss_type: MPSCNNLossType | int | str,
        wh_loss_type: MPSCNNLossType | int | str,
        confidence_loss_type: MPSCNNLossType | int | str,
        classes_loss_type: MPSCNNLossType | int | str,
        reduction_type: MPSCNNReductionType | int | str,
        anchor_boxes: ArrayLike | bytes,
        number_of_anchor_boxes: int | None = None,
        **properties: Any,
    ) -> None:
        given = xy_loss_type, wh_loss_type, confidence_loss_type, classes_loss_type
        made = {}
        for name, part, value in zip(TYPES, PARTS, given, strict=True):
            made[part] = MPSCNNLossDescriptor(member(name, value, MPSCNNLossType), "sum")
        set_read_only(self, **made, reduction_type=reduction_type, anchor_boxes=anchor_boxes)
        boxes = len(self.anchor_boxes)
        if number_of_anchor_boxes is not None and integer("number_of_anchor_boxes", number_of_anchor_boxes, 1) != boxes:
            raise ValueError(f"number_of_anchor_boxes is {number_of_anchor_boxes}; anchor_boxes has {boxes}")
        set_read_only(self, **{name: properties.pop(name) for name in PARTS if name in properties})
        initialize(self, properties)

    cnn_loss_descriptor_with_xy_loss_type_wh_loss_type_confidence_loss_type_classes_loss_type_reduction_type_anchor_boxes_number_of_anchor_boxes = Initializer(  # noqa: E501
        __init__
    )

    xy_loss_type: Alias[MPSCNNLossType] = Alias("xy_loss_descriptor.loss_type", "The loss of x and y.")
    wh_loss_type: Alias[MPSCNNLossType] = Alias("wh_loss_descriptor.loss_type", "The loss of width and height.")
    confidence_loss_type: Alias[MPSCNNLossType] = Alias(
        "confidence_loss_descriptor.loss_type", "The loss of the confidence."
    )
    classes_loss_type: Alias[MPSCNNLossType] = Alias("classes_loss_descriptor.loss_type", "The loss of the classes.")

    number_of_anchor_boxes: Alias[int] = Alias("anchor_boxes", "A, the number of anchor boxes.", len)

    @property
    def function(self) -> YOLOLoss:
        """The functional form."""
        xy, wh, confidence, classes = map(_form_of_part, _parts_of(self))
        return YOLOLoss(
            (xy, wh, confidence, classes),
            self.anchor_boxes,
            REDUCTIONS[self.reduction_type],
            self.reduce_across_batch,
            self.rescore,
            _scales_of(self),
            self.scale_no_object,
            self.min_iou_for_object_presence,
            self.max_iou_for_object_absence,
        )

    def copy(self) -> Self:
        """Return an equal descriptor with parts of its own, which can be changed."""
        return copy.deepcopy(self)._fixed(False)


# --- kernel and node --------------------------------------------------------------------------------------------------


@constructed()
class MPSCNNYOLOLoss(LabelledLoss):
    """The loss of YOLO and its gradient: the loss image is written to the labels, the destination is the gradient."""

    loss_descriptor: Argument[MPSCNNYOLOLossDescriptor] = Argument(
        MPSCNNYOLOLossDescriptor._checked_copy, "Parts and parameters, a copy."
    )

    loss_xy = Alias("loss_descriptor.xy_loss_descriptor", "The loss of x and y.", MPSCNNLoss)
    loss_wh = Alias("loss_descriptor.wh_loss_descriptor", "The loss of width and height.", MPSCNNLoss)
    loss_confidence = Alias("loss_descriptor.confidence_loss_descriptor", "The loss of the confidence.", MPSCNNLoss)
    loss_classes = Alias("loss_descriptor.classes_loss_descriptor", "The loss of the classes.", MPSCNNLoss)
    scale_xy = Alias("loss_descriptor.scale_xy", "The factor of x and y.")
    scale_wh = Alias("loss_descriptor.scale_wh", "The factor of width and height.")
    scale_no_object = Alias("loss_descriptor.scale_no_object", "The factor of boxes without an object.")
    scale_object = Alias("loss_descriptor.scale_object", "The factor of the confidence of boxes with an object.")
    scale_class = Alias("loss_descriptor.scale_class", "The factor of the classes.")
    min_iou_for_object_presence = Alias("loss_descriptor.min_iou_for_object_presence", "The overlap of an object.")
    max_iou_for_object_absence = Alias(
        "loss_descriptor.max_iou_for_object_absence", "The overlap of boxes without an object."
    )
    reduction_type = Alias("loss_descriptor.reduction_type", "How losses are reduced.")
    reduce_across_batch = Alias("loss_descriptor.reduce_across_batch", "Whether all images are reduced to one number.")
    number_of_anchor_boxes = Alias("loss_descriptor.number_of_anchor_boxes", "The number of anchor boxes.")
    anchor_boxes = Alias("loss_descriptor.anchor_boxes", "Width and height of each anchor box.")

    _form = Alias("function.parts", "The functional form of a part.", operator.itemgetter(0))

    def encode(  # type: ignore[override]  # as Apple's selectors differ
        self,
        source_image: ImageLike,
        labels: MPSCNNLossLabels | Sequence[MPSCNNLossLabels],
        destination_image: ImageLike | None = None,
        *,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> ImageResult:
        """Compute the loss and return its gradient for the predictions.

        Parameters, results and errors are those of :meth:`MPSCNNLoss.encode`. The channels are those of boxes, see
        :class:`MPSCNNYOLOLossDescriptor`; ``ShapeError`` for others.
        """
        return super().encode(source_image, labels, destination_image, command_buffer=command_buffer)

    encode_batch = batch_form(encode)


class MPSCNNYOLOLossNode(LabelledLossNode):
    """The loss of YOLO, whose result is the gradient for the predictions, as that of ``MPSCNNLossNode``."""

    kind, kernel_class = "yolo loss", MPSCNNYOLOLoss
    loss_descriptor = MPSCNNYOLOLoss.loss_descriptor.replace()

    def __init__(self, source: MPSNNImageNode, loss_descriptor: MPSCNNYOLOLossDescriptor, **properties: Any) -> None:
        super().__init__(source, loss_descriptor, **properties)

    def _bind(self, shapes: Sequence[Shape], parameters: NodeParameters | None, states: Sequence[Call]) -> Call:
        self._function.boxes(f"the source of {self.name!r}", np.empty(shapes[0], np.bool_))
        return super()._bind(shapes, parameters, states)
