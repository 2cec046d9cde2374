"""Losses with Apple's names: descriptors, labels, kernels and nodes.

>>> import numpy as np
>>> labels = MPSCNNLossLabels((1, 1, 1), np.float32([[[[0, 0, 1]]]]))
>>> loss = MPSCNNLoss(MPSCNNLossDescriptor("softmaxcrossentropy", "sum"))
>>> logits = np.float32([[[[1, 2, 3]]]])
>>> [round(float(v), 4) for v in loss.encode(logits, labels).ravel()]
[0.09, 0.2447, -0.3348]
>>> labels.synchronize()
>>> round(float(labels.loss_image[0, 0, 0, 0]), 6)
0.407606

Source: ``MPSCNNLoss.h``, ``MPSNNGraphNodes.h`` [doc].
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mpsref.arguments import arrays
from mpsref.arguments.arrays import Array, DType, ImageShape, Shape, as_array, as_shape, concatenated
from mpsref.arguments.device import on_host
from mpsref.arguments.parameters import Pair, flag, number
from mpsref.errors import ShapeError
from mpsref.kernels.loss import LOSS_TYPES, REDUCTIONS, Loss
from mpsref.mps.core import image_arguments, types
from mpsref.mps.core.call import Call, Computation, made
from mpsref.mps.core.command_buffer import MPSCommandBuffer, check_encodable
from mpsref.mps.core.encode import ImageKernel, array_of
from mpsref.mps.core.image_arguments import Encoded, ImageArgument, ImageLike, ImageResult, batch_form
from mpsref.mps.core.image_kernels import MPSCNNBinaryKernel, MPSCNNKernel
from mpsref.mps.core.properties import (
    Alias,
    Argument,
    Initializer,
    NoNewAttributes,
    Property,
    at_least,
    constructed,
    describe_parameters,
    initialize,
    instance_of,
    set_read_only,
)
from mpsref.mps.core.reads import check_usable
from mpsref.mps.core.serialization import Descriptor, secure_coding
from mpsref.mps.core.state import (
    DestinationState,
    MPSNNGradientState,
    StateLike,
    Synchronized,
    SynchronizedState,
    one_per_image,
    one_state,
)
from mpsref.mps.core.types import Enumeration, MPSDataLayout, MTLSize, member
from mpsref.mps.core.whole_image import DESTINATION, IMAGE, SOURCE, require_defaults, require_whole
from mpsref.mps.graph.nodes import (
    ForwardKernelNode,
    MPSNNFilterNode,
    MPSNNGradientFilterNode,
    MPSNNImageNode,
    MPSNNStateNode,
    StepCall,
    image_node,
    placed_call,
)
from mpsref.mps.graph.trainable import NodeParameters

# --- descriptors ------------------------------------------------------------------------------------------------------


class MPSCNNLossType(Enumeration):
    """The losses. Source: ``MPSCNNTypes.h`` [doc]."""

    MeanAbsoluteError = 0
    MeanSquaredError = 1
    SoftMaxCrossEntropy = 2
    SigmoidCrossEntropy = 3
    CategoricalCrossEntropy = 4
    Hinge = 5
    Huber = 6
    CosineDistance = 7
    Log = 8
    KullbackLeiblerDivergence = 9


class MPSCNNReductionType(Enumeration):
    """How the losses of all elements are reduced. Source: ``MPSCNNTypes.h`` [doc]."""

    NONE = 0
    Sum = 1
    Mean = 2
    SumByNonZeroWeights = 3


@constructed(init=False, kw_only=True)
class _Numbers:
    """The numbers of a loss: properties of descriptors and kernels."""

    weight: Property[float] = Property(number, 1.0, "The factor of every loss and gradient.")
    label_smoothing: Property[float] = Property(
        partial(number, low=0, high=1), 0.0, "The amount of label smoothing, in [0, 1]."
    )
    epsilon: Property[float] = Property(partial(number, low=0), 1e-7, "The summand in the logarithms of ``Log``, >= 0.")
    delta: Property[float] = Property(
        partial(number, low=0, above=True), 1.0, "The end of the quadratic part of ``Huber``, > 0."
    )


NUMBERS = "weight", "label_smoothing", "epsilon", "delta"
SETTABLE = "reduce_across_batch", "weight", "label_smoothing", "number_of_classes", "epsilon", "delta"


@secure_coding(version=1, arguments=("loss_type", "reduction_type", *SETTABLE))
@describe_parameters
class MPSCNNLossDescriptor(_Numbers, Descriptor):
    """A loss type, a reduction and their parameters, which can be set; a kernel has a copy, which cannot be changed.

    ``CosineDistance`` has the reduction ``Sum`` only [doc], which is checked when a descriptor is made or used. Legal
    values are those of :class:`mpsref.Loss`.

    Raises
    ------
    ValueError
        For illegal values, and for a reduction that the type does not have.

    Examples
    --------
    >>> MPSCNNLossDescriptor("huber", "mean", delta=0.5)
    MPSCNNLossDescriptor(MPSCNNLossType.Huber, MPSCNNReductionType.Mean, delta=0.5)
    """

    loss_type = Property(partial(member, kind=MPSCNNLossType), MPSCNNLossType.MeanAbsoluteError, "The loss.")
    reduction_type = Property(
        partial(member, kind=MPSCNNReductionType),
        MPSCNNReductionType.NONE,
        "How the losses of all elements are reduced.",
    )
    reduce_across_batch = Property(flag, False, "Whether all images are reduced to one number.")
    number_of_classes = Property(at_least(1), 1, "The number of classes, for smoothed softmax labels.")

    def __init__(
        self,
        /,
        loss_type: MPSCNNLossType | int | str,
        reduction_type: MPSCNNReductionType | int | str,
        **properties: Any,
    ) -> None:
        set_read_only(self, loss_type=loss_type, reduction_type=reduction_type)
        initialize(self, properties)
        self.check()

    cnn_loss_descriptor_with_type_reduction_type = Initializer(__init__)

    def check(self) -> None:
        """Raise ``ValueError`` for a reduction that the type does not have."""
        _ = self.function

    @property
    def function(self) -> Loss:
        """The functional form."""
        return form_of(self)


def form_of(descriptor: MPSCNNLossDescriptor, numbers: object = None, is_reduced: bool = True) -> Loss:
    """Return the functional form, with the numbers of the descriptor or those of a kernel."""
    weight, smoothing, epsilon, delta = _numbers_of(numbers or descriptor)
    reduction: tuple[str, bool] = "none", False
    if is_reduced:
        reduction = REDUCTIONS[descriptor.reduction_type], descriptor.reduce_across_batch
    kind, classes = LOSS_TYPES[descriptor.loss_type], descriptor.number_of_classes
    return made(Loss, kind, *reduction, weight, smoothing, classes, epsilon, delta)  # type: ignore[no-any-return]


_numbers_of: Callable[[object], tuple[float, float, float, float]] = operator.attrgetter(*NUMBERS)


class MPSCNNLossDataDescriptor(NoNewAttributes):
    """Labels or weights in memory, of one image or several.

    ``array`` is a copy of them as (N, H, W, C). Source: ``MPSCNNLossDataDescriptor`` [doc], without its strides, which
    a NumPy array has [design instance-state].

    >>> labels = MPSCNNLossDataDescriptor(np.zeros(12, np.float32), "heightxwidthxfeaturechannels", (3, 2, 1))
    >>> labels.array.shape
    (2, 2, 3, 1)

    Parameters
    ----------
    data : array_like of float
        N times the values of an image.
    layout : MPSDataLayout, int or str
        The order of the values.
    size : tuple of int
        (width, height, channels).

    Raises
    ------
    TypeError
        For integers.
    ShapeError
        For another number of values.
    """

    def __init__(
        self, data: ArrayLike, layout: MPSDataLayout | int | str, size: MTLSize | tuple[int, int, int]
    ) -> None:
        array = as_array("data", data)
        if array.dtype.kind != "f":
            raise TypeError(f"data has dtype {array.dtype}; it must be a floating-point array: convert it")
        self._layout = types.member("layout", layout, MPSDataLayout)
        self._size = types.size("size", size)
        width, height, channels = self._size
        values = math.prod(self._size)
        if not values or array.size % values or not array.size:
            raise ShapeError(
                f"data has {array.size} values; it must have N * {values} for N >= 1 images of width {width}, height "
                f"{height} and {channels} channels, each >= 1"
            )
        if self._layout is MPSDataLayout.FeatureChannelsxHeightxWidth:
            images = array.reshape(-1, channels, height, width).transpose(0, 2, 3, 1)
        else:
            images = array.reshape(-1, height, width, channels)
        self._array = np.array(images, dtype=array.dtype.newbyteorder("="), order="C")

    cnn_loss_data_descriptor_with_data_layout_size = Initializer(__init__)

    array: Alias[Array] = Alias("_array", "The data, (N, H, W, C).")
    layout: Alias[MPSDataLayout] = Alias("_layout", "The layout of the given data.")
    size: Alias[MTLSize] = Alias("_size", "(width, height, channels) of an image.")


ONE_PIXEL = MTLSize(1, 1, 1)
"""The size of a loss image with one number for each image."""


# --- labels -----------------------------------------------------------------------------------------------------------


class MPSCNNLossLabels(SynchronizedState):
    """Labels and weights (N, H, W, C) of a batch, and the loss image, (N, 1, 1, 1) or (N, H, W, C).

    Accessors raise ``NotSynchronizedError`` unless :meth:`synchronize` has completed since a loss was encoded.
    Source: ``MPSCNNLossLabels`` in ``MPSCNNLoss.h`` [doc]; one object for a whole batch [design instance-state].

    Parameters
    ----------
    loss_image_size : tuple of int, default (1, 1, 1)
        (width, height, channels) of the loss image. A descriptor in this place is that of the labels.
    labels_descriptor, weights_descriptor : MPSCNNLossDataDescriptor or image
        Data of descriptors are copied, pixels of images are read when a loss runs.
    labels_image, weights_image : array_like (N, H, W, C), MPSImage or batch of images
        In place of the descriptors.

    Raises
    ------
    TypeError
        For a mixture of descriptors and images.
    ShapeError
        For weights whose shape is not that of the labels.

    Examples
    --------
    >>> MPSCNNLossLabels((1, 1, 1), np.zeros((2, 4, 4, 3), np.float32))
    <MPSCNNLossLabels: labels (2, 4, 4, 3), loss image (2, 1, 1, 1)>
    """

    def __init__(
        self,
        loss_image_size: MTLSize | tuple[int, int, int] | MPSCNNLossDataDescriptor = ONE_PIXEL,
        labels_descriptor: ImageLike | MPSCNNLossDataDescriptor | None = None,
        weights_descriptor: ImageLike | MPSCNNLossDataDescriptor | None = None,
        *,
        labels_image: ImageLike | None = None,
        weights_image: ImageLike | None = None,
    ) -> None:
        labels = _one_of("labels", labels_descriptor, labels_image)
        weights = _one_of("weights", weights_descriptor, weights_image)
        if isinstance(loss_image_size, MPSCNNLossDataDescriptor):
            if labels is not None or weights is not None:
                raise TypeError("a labels descriptor as the first argument stands alone; pass a loss_image_size first")
            loss_image_size, labels = ONE_PIXEL, loss_image_size
        self._size = types.size("loss_image_size", loss_image_size)
        if labels is None:
            raise TypeError(
                "labels_descriptor and labels_image are None; pass an MPSCNNLossDataDescriptor, or an image"
            )
        if weights is not None and isinstance(labels, MPSCNNLossDataDescriptor) != isinstance(
            weights, MPSCNNLossDataDescriptor
        ):
            raise TypeError(
                f"labels is of type {type(labels).__name__} and weights of type {type(weights).__name__}; both must be "
                "descriptors, or both images"
            )
        self._labels, self._weights = _image("labels", labels), None if weights is None else _image("weights", weights)
        t, w = self.device_read()
        shape = t.shape
        if w is not None and w.shape[:3] != shape[:3]:
            raise ShapeError(f"weights has shape {w.shape} and labels {shape}; N, H and W must be equal")
        width, height, channels = self._size
        if (height, width) not in ((1, 1), shape[1:3]):
            raise ShapeError(
                f"loss_image_size is {tuple(self._size)}; width and height must be 1 or those of the labels, "
                f"{shape[2], shape[1]}"
            )
        self._loss = np.zeros((shape[0], height, width, channels), np.float32)

    loss_image_size: Alias[MTLSize] = Alias("_size", "(width, height, channels) of the loss image.")

    @property
    def loss_image(self) -> Array:
        """The loss image, read-only; zeros before the first loss."""
        self.check_readable("loss_image")
        view: Array = on_host(self._loss).view()
        view.setflags(write=False)
        return view

    labels_image: Synchronized[ImageLike] = Synchronized(
        "_labels", "The labels: the image that was passed, or the array of the descriptor."
    )
    weights_image: Synchronized[ImageLike | None] = Synchronized(
        "_weights",
        "The weights: the image that was passed, or the array of the descriptor; ``None`` without weights.",
    )

    def device_read(self) -> tuple[Array, Array | None]:
        """Return labels and weights (N, H, W, C) for a kernel that is encoded now."""
        weights = None if self._weights is None else image_arguments.source("weights", self._weights).array
        return image_arguments.source("labels", self._labels).array, weights

    def check_loss_shape(self, shape: ImageShape, reduction: str) -> None:
        """Raise ``ShapeError`` unless the loss image of a kernel has the size ``loss_image_size``.

        Source: the size of the source image or 1 x 1 x 1 [doc], depending on the reduction [design loss-image-size].
        """
        shape = as_shape("shape", shape)
        if shape != (shape[0], self._size.height, self._size.width, self._size.depth):
            _, height, width, channels = shape
            raise ShapeError(
                f"loss_image_size is {tuple(self._size)}; with the reduction {reduction!r} it must be "
                f"{(width, height, channels)} (width, height, channels)"
            )

    def device_write(self, loss: Array) -> None:
        """Write the loss image of a kernel that is encoded now."""
        self._loss = loss
        self.written()

    def __repr__(self) -> str:
        shape, weights = self.device_read()[0].shape, "" if self._weights is None else ", weights"
        return f"<{type(self).__name__}: labels {shape}{weights}, loss image {self._loss.shape}>"


class LabelsOfImages:
    """Labels with one object for each image, as kernels read and write those of a batch."""

    def __init__(self, name: str, labels: Sequence[MPSCNNLossLabels]) -> None:
        """Raise ``ShapeError`` unless each object has the labels of one image, and all have or lack weights."""
        self._labels = labels
        read = [part.device_read() for part in labels]
        for k, (t, w) in enumerate(read):
            if t.shape[0] != 1 or t.shape != read[0][0].shape or (w is None) != (read[0][1] is None):
                raise ShapeError(
                    f"{name}[{k}] is {labels[k]!r}; in a list with an object for each image it must have the labels of "
                    f"one image, like {name}[0], {labels[0]!r}: or pass one MPSCNNLossLabels for the batch"
                )

    def device_read(self) -> tuple[Array, Array | None]:
        """Return labels and weights (N, H, W, C) for a kernel that is encoded now."""
        labels, weights = zip(*(part.device_read() for part in self._labels), strict=True)
        return concatenated(labels), None if weights[0] is None else concatenated(weights)

    def check_loss_shape(self, shape: ImageShape, reduction: str) -> None:
        """Raise ``ShapeError`` unless the loss image of a kernel has the size that all objects have."""
        for part in self._labels:
            part.check_loss_shape((1, *shape[1:]), reduction)

    def device_write(self, loss: Array) -> None:
        """Write the loss image of each object."""
        for k, part in enumerate(self._labels):
            part.device_write(loss[k : k + 1].copy())

    def synchronize(self) -> None:
        """Make all objects readable by the host."""
        for part in self._labels:
            part.synchronize()


def labels_of_batch(name: str, value: object, images: int | None = None) -> MPSCNNLossLabels | LabelsOfImages:
    """Return the labels of a batch: ``value``, or those of a list with an object for each image.

    Raises ``TypeError`` or ``ShapeError`` for anything else.
    """
    legal = "MPSCNNLossLabels: write MPSCNNLossLabels((1, 1, 1), labels_image=array)"
    if isinstance(value, MPSCNNLossLabels):
        return value
    given = instance_of(name, value, (list, tuple), legal)
    labels = [instance_of(f"{name}[{k}]", part, MPSCNNLossLabels, legal) for k, part in enumerate(given)]
    if images is not None and len(labels) != images:
        raise ShapeError(
            f"{name} is a list of {len(labels)}; it must have one MPSCNNLossLabels for each of {images} images"
        )
    return labels[0] if len({id(part) for part in labels}) == 1 else LabelsOfImages(name, labels)


def check_targets(predictions: Shape, targets: Sequence[Shape | None], of: str = "") -> None:
    """Raise ``ShapeError`` unless labels and weights have N, H and W of the predictions, and enough channels."""
    for name, shape in zip(("labels", "weights"), targets, strict=False):
        if shape is not None and (shape[:3] != predictions[:3] or shape[3] < predictions[3]):
            raise ShapeError(
                f"{name}{of} have shape {shape}, the predictions {predictions}; they must have its N, H and W, "
                "and at least as many channels"
            )


def _one_of(name: str, descriptor: Any, image: Any) -> Any:
    """Return the descriptor or the image; ``TypeError`` for both."""
    if descriptor is not None and image is not None:
        raise TypeError(f"{name}_descriptor and {name}_image are both given; pass one of them")
    return image if descriptor is None else descriptor


def _image(name: str, value: ImageLike | MPSCNNLossDataDescriptor) -> ImageLike:
    """Return the array of a descriptor, or the image itself."""
    if isinstance(value, MPSCNNLossDataDescriptor):
        return value.array
    image_arguments.source(name, value)  # raises unless it is an image
    return value


# --- kernels ----------------------------------------------------------------------------------------------------------


class _Described:
    """Type and reduction of a kernel or a node, those of its loss descriptor."""

    loss_type = Alias("loss_descriptor.loss_type", "The loss.")
    reduction_type = Alias("loss_descriptor.reduction_type", "How losses are reduced.")
    reduce_across_batch = Alias("loss_descriptor.reduce_across_batch", "Whether all images are reduced to one number.")
    number_of_classes = Alias(
        "loss_descriptor.number_of_classes", "The number of classes over which labels are smoothed."
    )


class _DescribedNumbers(_Described):
    """The numbers, too."""

    weight = Alias("loss_descriptor.weight", "The factor of every loss and gradient.")
    label_smoothing = Alias("loss_descriptor.label_smoothing", "The amount of label smoothing.")
    epsilon = Alias("loss_descriptor.epsilon", "The summand in logarithms.")
    delta = Alias("loss_descriptor.delta", "The end of the quadratic part of ``Huber``.")


@constructed(init=False)
class _LossKernel(_Described, ImageKernel):
    """A kernel with a loss descriptor."""

    loss_descriptor: Argument[MPSCNNLossDescriptor] = Argument(
        MPSCNNLossDescriptor._checked_copy, "Type, reduction and parameters, a copy."
    )


class _Settable(_Numbers, _LossKernel):
    """A loss kernel whose numbers can be set after it is made."""

    recorded = NUMBERS

    def _set_arguments(self, **values: Any) -> None:
        super()._set_arguments(**values)
        set_read_only(self, **{name: getattr(self.loss_descriptor, name) for name in NUMBERS})

    @property
    def function(self) -> Loss:
        """The functional form, with the present numbers."""
        return form_of(self.loss_descriptor, self)


class LabelledLoss(MPSCNNKernel):
    """A kernel that writes the loss image to labels, and whose destination is the gradient; not a class of MPS."""

    loss_descriptor: Any
    function: Alias[Any] = Alias("_function", "The functional form: :class:`mpsref.Loss`, or an object like it.")

    def _set_arguments(self, **values: Any) -> None:
        super()._set_arguments(**values)
        self._function = self.loss_descriptor.function  # of a copy that does not change

    _form: Alias[Loss] = Alias("function", "The functional form that a backend has.")

    def encode(  # type: ignore[override]  # as Apple's selectors differ
        self,
        source_image: ImageLike,
        labels: MPSCNNLossLabels | Sequence[MPSCNNLossLabels],
        destination_image: ImageLike | None = None,
        *,
        validate: bool = False,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> ImageResult:
        """Compute the loss and return its gradient for the predictions.

        Parameters
        ----------
        source_image : array_like (N, H, W, C), MPSImage or batch of images
            The predictions.
        labels : MPSCNNLossLabels, or sequence with an object for each image
            Labels and weights; the loss image is written, to each object that of its image.
        validate : bool, default False
            As in :meth:`mpsref.Loss.forward`.

        Returns
        -------
        ndarray, MPSImage or MPSImageBatch
            The gradient, of the kind of ``source_image``.

        Raises
        ------
        UnsupportedError
            If offset, clip rectangle or channel properties are not the defaults.
        """
        source = image_arguments.source("source_image", source_image, command_buffer=command_buffer)
        targets = (
            labels if type(labels) is MPSCNNLossLabels else labels_of_batch("labels", labels, source.array.shape[0])
        )
        require_defaults(self, *IMAGE)
        function, x = self._function, source.array
        targets.check_loss_shape(function.loss_shape(x.shape), function.reduction)
        if command_buffer is not None:
            check_encodable(command_buffer)
        t, weights = targets.device_read()
        loss = function.forward(x, t, weights, validate=validate, backend=self.backend)
        result = self._encode((source,), destination_image, None, False, None, command_buffer, t, weights)
        targets.device_write(loss)
        return result

    encode_batch = batch_form(encode)

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        require_defaults(self, *IMAGE)  # again: a padding policy may have set some
        require_whole(self, size, shapes[0])
        function = self.function
        return Computation(
            compute=lambda images, backend, *targets: function.gradient(None, *images, *targets, backend=backend),
            returns_result=True,
            form=self._form,
        )


@constructed()
class MPSCNNLoss(_DescribedNumbers, _LossKernel, LabelledLoss):
    """A loss and its gradient: the loss image is written to the labels, the destination is the gradient."""


@constructed()
class MPSNNForwardLoss(_Settable, MPSCNNKernel):
    """A loss: the destination is the loss image. A state records the numbers for the gradient."""

    def encode(  # type: ignore[override]  # as Apple's selectors differ
        self,
        source_image: ImageLike,
        labels: ImageLike,
        weights: ImageLike | None = None,
        destination_image: ImageLike | None = None,
        *,
        return_state: bool = False,
        destination_state: DestinationState = None,
        validate: bool = False,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> Encoded:
        """Return the loss image, (N, 1, 1, 1) or for the reduction NONE (N, H, W, C).

        Parameters
        ----------
        source_image, labels, weights : array_like (N, H, W, C), MPSImage or batch of images
            The predictions, their labels, and optional weights.
        validate : bool, default False
            As in :meth:`mpsref.Loss.forward`.

        Raises
        ------
        UnsupportedError
            If offset, clip rectangle or channel properties are not the defaults.
        """
        source = image_arguments.source("source_image", source_image, command_buffer=command_buffer)
        require_defaults(self, *IMAGE)
        given, targets = _targets(labels, weights, validate, command_buffer)
        result = self._encode(
            (source,), destination_image, None, return_state, destination_state, command_buffer, *targets
        )
        image_arguments.count_reads(given)
        return result

    encode_batch = batch_form(encode)

    _is_whole = True

    def _place(self, sources: Sequence[ImageArgument], asked: Shape | Pair | None, state: Any) -> tuple[Shape, DType]:
        shape: Shape = self.function.loss_shape(arrays.as_shape("source_image", sources[0].array.shape))
        placed = self._described(sources, shape) if asked is None else (asked, sources[0].array.dtype)
        require_defaults(self, *IMAGE)  # again: a padding policy may have set some
        require_whole(self, placed[0], shape)
        return shape, placed[1]

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        function = self.function
        return _with_targets(function, function.forward)


@constructed()
class MPSNNLossGradient(_Settable, MPSCNNBinaryKernel):
    """The gradient of :class:`MPSNNForwardLoss` for predictions or labels; without the division of the reduction."""

    destination_name, _is_whole = "destination_gradient", True
    _number_of_sources = Alias("prefixes", "The labels, too.", lambda prefixes: len(prefixes) + 1)

    _: KW_ONLY
    compute_label_gradients: Property[bool] = Property(flag, False, "Whether the gradient is that for the labels.")

    def encode(  # type: ignore[override]  # as Apple's selectors differ
        self,
        source_gradient: ImageLike,
        source_image: ImageLike,
        labels: ImageLike,
        weights: ImageLike | None = None,
        source_state: StateLike | None = None,
        destination_gradient: ImageLike | None = None,
        *,
        validate: bool = False,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> ImageResult:
        """Return the gradient for the predictions, or with ``compute_label_gradients`` for the labels.

        Parameters
        ----------
        source_gradient : array_like, MPSImage or batch of images
            The gradient of the loss image.
        source_image, labels, weights : array_like (N, H, W, C), MPSImage or batch of images
            As in the forward pass.
        source_state : MPSNNGradientState, optional
            The state of :class:`MPSNNForwardLoss`; its numbers replace those of this kernel.
        validate : bool, default False
            As in :meth:`mpsref.Loss.gradient`.
        """
        sources = (
            image_arguments.source("source_gradient", source_gradient, command_buffer=command_buffer),
            image_arguments.source("source_image", source_image, command_buffer=command_buffer),
        )
        state: Any = source_state
        if isinstance(state, (list, tuple)):
            if one_per_image(state) and all(entry == state[0] for entry in state):
                state = [state[0]] * len(state)  # the numbers are those of all images
            state = one_state("source_state", state, sources[1].array.shape[0])
        if isinstance(state, MPSNNGradientState) and state._reads is not None:
            check_usable("source_state", state, command_buffer)
        if command_buffer is not None:
            check_encodable(command_buffer)
        read, targets = _targets(labels, weights, validate, command_buffer)
        like = targets[0] if self.compute_label_gradients else sources[1].array
        given, target = None, None
        if destination_gradient is not None:
            given = image_arguments.destination(self.destination_name, destination_gradient, sources, command_buffer)
            target = given.array
            if target.shape != like.shape:
                raise ShapeError(f"destination_gradient has shape {target.shape}; the result has shape {like.shape}")
        call, own = self._call(sources, like.shape, state)
        array = call.run([*map(array_of, sources)], target, own.backend, targets)
        image_arguments.count_reads((*sources, *read))
        if own is not self:
            self._take(own, call)
        if state is not None:
            state._count_read()
        return image_arguments.in_form_of(source_gradient, array) if given is None else image_arguments.written(given)

    encode_batch = batch_form(encode)

    def _infer_destination(self, sources: Sequence[ImageArgument], state: Any) -> tuple[Shape, DType]:
        g, x, labels = sources
        if state is not None:
            self._check_state(state)
        self._configure(state)
        result = labels if self.compute_label_gradients else x
        return result.array.shape, g.array.dtype.newbyteorder("=")

    def _place(self, sources: Sequence[ImageArgument], asked: Shape | Pair | None, state: Any) -> tuple[Shape, DType]:
        require_defaults(self, *self._fixed)
        self._configure(state)
        return super()._place(sources, asked, state)

    _fixed = (*DESTINATION, *(prefix + name for prefix in MPSCNNBinaryKernel.prefixes for name in SOURCE))

    def _check_state(self, state: Any) -> None:
        if not (isinstance(state, MPSNNGradientState) and issubclass(state.record.kernel_class, MPSNNForwardLoss)):
            raise TypeError(
                f"source_state is {state!r}; it must be the state that MPSNNForwardLoss.encode(..., "
                "return_state=True) returns"
            )

    def _configure(self, state: Any) -> None:
        """Set the numbers that a state has recorded."""
        if state is not None:
            self._assign(**{name: state.record.extras[name] for name in NUMBERS})

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        function = self.function
        return _with_targets(function, function.gradient_labels if self.compute_label_gradients else function.gradient)


def _targets(
    labels: ImageLike, weights: ImageLike | None, validate: bool, command_buffer: MPSCommandBuffer | None
) -> tuple[list[ImageArgument], tuple[Array, Array | None, bool]]:
    """Return labels and weights as images that are read, and as operands of the kernel."""
    read = [image_arguments.source("labels", labels, command_buffer=command_buffer)]
    if weights is not None:
        read.append(image_arguments.source("weights", weights, command_buffer=command_buffer))
    validate = validate if type(validate) is bool else flag("validate", validate)
    return read, (read[0].array, None if weights is None else read[1].array, validate)


def _with_targets(function: Loss, method: Callable[..., Array]) -> Computation:
    """Return the computation by a method that reads labels and weights after the images: operands, or images, too."""

    def compute(images: Sequence[Array], backend: Any, *operands: Any) -> Array:
        *targets, validate = operands or (False,)
        return method(*images, *targets, validate=validate, backend=backend)

    return Computation(compute=compute, images=4, form=function)


class MPSNNInitialGradient(MPSCNNKernel):
    """Ones in the shape of the source: the gradient of a loss for itself, the start of a backward pass [doc]."""

    def _problem(self, shapes: Sequence[Shape], size: Pair) -> Computation:
        return Computation(compute=lambda images, backend: 1)


# --- nodes ------------------------------------------------------------------------------------------------------------


class MPSNNLabelsNode(MPSNNStateNode):
    """The labels of a loss node: an input of the graph."""

    def check(self, value: object) -> MPSCNNLossLabels | LabelsOfImages:
        """Return the labels of a batch: the object, or that of a list with an object for each image."""
        return labels_of_batch(f"labels for {self.name!r}", value)

    @property
    def producer(self) -> None:
        """``None``: labels are an input."""
        return None

    @property
    def name(self) -> str:
        """The label of the loss node with ``.labels``, or that of the handle."""
        assert self._producer is not None
        return self.label or f"{self._producer.name}.labels"


class _LossNode(_DescribedNumbers, MPSNNFilterNode):
    """A node with a loss descriptor, whose numbers are properties."""

    _abstract = True
    loss_descriptor = _LossKernel.loss_descriptor.replace()


class LabelledLossNode(MPSNNFilterNode):
    """A loss node that reads and writes labels; not a class of MPS."""

    _abstract = True
    loss_descriptor: Any
    spec_class = Loss
    state_class = None
    result_is_gradient = True
    why_no_gradient = "a loss is its own gradient filter: use its result image as the source gradient"

    def __init__(self, source: MPSNNImageNode, loss_descriptor: Any, **properties: Any) -> None:
        set_read_only(self, loss_descriptor=loss_descriptor)
        self._function: Any = self.loss_descriptor.function
        super().__init__((source,), **properties)
        self._source_states = (MPSNNLabelsNode._of(self),)

    @property
    def input_labels(self) -> MPSNNLabelsNode:
        """The labels, which have the loss after the run."""
        labels = self._source_states[0]
        assert isinstance(labels, MPSNNLabelsNode)
        return labels

    _called = "forward", "gradient"

    def _step_inputs(self, step: StepCall, like: Array) -> Sequence[Array | None]:
        labels: MPSCNNLossLabels | LabelsOfImages = step.state["labels"]
        return [None if image is None else step.place(image) for image in labels.device_read()]

    def _compute(self, step: StepCall, *images: Array) -> Array:
        wide = np.result_type(images[0], np.float32)
        targets = [image if image is None or image.dtype <= wide else image.astype(wide) for image in step.prepared]
        step.state["loss"] = self._function.forward(*images, *targets, backend=step.backend)
        return step.call.run(images, None, step.backend, targets)

    def check_labels(self, labels: MPSCNNLossLabels | LabelsOfImages, shape: Shape) -> None:
        """Raise ``ShapeError`` unless labels and weights fit predictions of ``shape``."""
        instance_of("labels", labels, (MPSCNNLossLabels, LabelsOfImages), "an MPSCNNLossLabels")
        shape = as_shape("shape", shape)
        check_targets(
            shape, [None if image is None else image.shape for image in labels.device_read()], f" of {self.name!r}"
        )
        n, height, width, channels = shape
        labels.check_loss_shape(self._function.loss_shape((n, height, width, channels)), self._function.reduction)


class MPSCNNLossNode(_LossNode, LabelledLossNode):
    """A loss, whose result is the gradient for the predictions.

    The :class:`~mpsref.mps.MPSCNNLossLabels` of a run are passed for ``input_labels``; the loss is written to them
    [doc].
    """

    kind, kernel_class = "loss", MPSCNNLoss

    def __init__(self, source: MPSNNImageNode, loss_descriptor: MPSCNNLossDescriptor, **properties: Any) -> None:
        LabelledLossNode.__init__(self, source, loss_descriptor, **properties)


class MPSNNLossGradientNode(_LossNode, MPSNNGradientFilterNode):
    """The gradient of a forward loss.

    Parameters
    ----------
    source_gradient, source_image, labels : MPSNNImageNode
        The gradient of the loss, and the sources of the forward node. A list of these three images, or of four with the
        weights, may take the place of ``source_gradient``; ``gradient_state`` is next.
    weights : MPSNNImageNode, optional
        The weights of the forward node. Without weights ``gradient_state`` may be in this place.
    gradient_state : MPSNNStateNode
        The ``result_state`` of the forward node.
    loss_descriptor : MPSCNNLossDescriptor
        The loss, which is copied.
    is_labels_gradient_filter : bool, default False
        Whether it is the gradient for the labels in place of the predictions.
    **properties
        Initial values of other properties, by name.
    """

    is_labels_gradient_filter = Property(flag, False, "Whether it is the gradient for the labels.", read_only=True)

    def __init__(
        self,
        source_gradient: MPSNNImageNode | Sequence[MPSNNImageNode],
        source_image: Any = None,
        labels: Any = None,
        weights: Any = None,
        gradient_state: Any = None,
        loss_descriptor: Any = None,
        is_labels_gradient_filter: bool = False,
        **properties: Any,
    ) -> None:
        if isinstance(source_gradient, (list, tuple)):
            images: list[Any] = list(source_gradient)
            given = source_image, labels, weights, gradient_state, loss_descriptor
            others = [value for value in given if value is not None]
        else:
            images, others = [source_gradient, source_image, labels], [gradient_state, loss_descriptor]
            if isinstance(weights, MPSNNStateNode):
                others.insert(0, weights)
            elif weights is not None:
                images.append(weights)
        if len(images) not in (3, 4):
            raise ValueError(
                f"there are {len(images)} sources; there must be 3 or 4: source gradient, source image, labels, weights"
            )
        while others and others[-1] is None:
            others.pop()
        if others and isinstance(others[-1], bool):
            is_labels_gradient_filter = others.pop()
        gradient_state, loss_descriptor, *_ = *others, None, None
        for name, node in zip(("source_gradient", "labels"), (images[0], images[2]), strict=True):
            image_node(name, node)
        set_read_only(self, loss_descriptor=loss_descriptor, is_labels_gradient_filter=is_labels_gradient_filter)
        self._function = self.loss_descriptor.function
        first, source_image, *targets = images
        source_index = int(self.is_labels_gradient_filter)
        super().__init__(first, source_image, gradient_state, *targets, source_index=source_index, **properties)
        self._image_index = 0
        self._called = ("gradient_labels",) if self.is_labels_gradient_filter else ("gradient",)

    kernel_class, _renamed = MPSNNLossGradient, {"compute_label_gradients": "is_labels_gradient_filter"}

    def _bind(self, shapes: Sequence[Shape], parameters: NodeParameters | None, states: Sequence[Call]) -> Call:
        expected = states[0].record.source_shapes[1:]
        if shapes[2:] != expected:
            raise ShapeError(
                f"labels and weights have shapes {shapes[2:]}; those of {self.forward.name!r} have {expected}: both "
                "must be equal"
            )
        return placed_call(self._compiled, shapes[:2], super()._bind(shapes, parameters, states).shape)


class MPSNNForwardLossNode(_LossNode):
    """A loss whose result is the loss image.

    A training graph computes the gradient for the predictions, and with ``gradient_for_labels`` (not in MPS) also for
    the labels.

    Parameters
    ----------
    source : MPSNNImageNode
        The predictions, or a list of predictions, labels and optionally weights, with the descriptor next.
    labels : MPSNNImageNode
        The labels.
    weights : MPSNNImageNode, optional
        The weights. Without weights ``loss_descriptor`` may be in this place.
    loss_descriptor : MPSCNNLossDescriptor
        The loss, which is copied.
    **properties
        Initial values of other properties, by name.
    """

    kind = "floss"
    spec_class = Loss
    kernel_class = MPSNNForwardLoss
    gradient_class = MPSNNLossGradientNode
    gradient_for_labels = Property(flag, False, "Whether training graphs make a gradient for the labels.")

    def __init__(
        self,
        source: MPSNNImageNode | Sequence[MPSNNImageNode],
        labels: MPSNNImageNode | MPSCNNLossDescriptor | None = None,
        weights: MPSNNImageNode | MPSCNNLossDescriptor | None = None,
        loss_descriptor: MPSCNNLossDescriptor | None = None,
        **properties: Any,
    ) -> None:
        descriptor: Any = loss_descriptor
        if isinstance(source, (list, tuple)):
            sources: list[Any] = list(source)
            descriptor = labels if descriptor is None else descriptor
        else:
            if isinstance(weights, MPSCNNLossDescriptor) and descriptor is None:
                weights, descriptor = None, weights
            sources = [image for image in (source, labels, weights) if image is not None]
        if len(sources) not in (2, 3):
            raise ValueError(f"there are {len(sources)} sources; there must be 2 or 3: source, labels, weights")
        set_read_only(self, loss_descriptor=descriptor)
        self._function = self.loss_descriptor.function
        super().__init__(sources, **properties)

    @property
    def differentiable_sources(self) -> Sequence[int]:
        """The predictions, and with ``gradient_for_labels`` the labels."""
        return (0, 1) if self.gradient_for_labels else (0,)

    _all_gradients = (0, 1)
    _has_several = False  # the single one is that of the predictions [doc]

    def _bind(self, shapes: Sequence[Shape], parameters: NodeParameters | None, states: Sequence[Call]) -> Call:
        y, *others = shapes
        check_targets(y, others, f" of {self.name!r}")
        call = super()._bind((y,), parameters, states)
        return call._replace(record=replace(call.record, source_shapes=tuple(shapes)))

    def _compute(self, step: StepCall, *images: Array) -> Array:
        assert step.call.computation is not None
        loss: Array = step.call.computation.computed(images, step.backend)  # in float32 at least
        step.state["loss"] = loss
        return loss

    def _gradient_node(self, source_gradient: MPSNNImageNode, source_index: int) -> MPSNNGradientFilterNode:
        source, labels, *weights = self.source_images
        return MPSNNLossGradientNode(
            source_gradient,
            source,
            labels,
            weights[0] if weights else None,
            self._state,
            self.loss_descriptor,
            source_index == 1,
        )


class MPSNNInitialGradientNode(ForwardKernelNode):
    """An image of ones in the shape of its source: the start of the gradients of a graph without a loss node."""

    kind, kernel_class = "one", MPSNNInitialGradient
    state_class = None
    result_is_gradient = True
    why_no_gradient = "its result is the first gradient: use its result image as the source gradient"
    _differentiable = ()
