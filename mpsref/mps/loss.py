"""Loss kernels with Apple's names.

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

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import Pair, flag, number
from mpsref.errors import ShapeError, UnsupportedError
from mpsref.kernels.loss import Loss
from mpsref.mps.core import image_arguments
from mpsref.mps.core.clip_regions import Region
from mpsref.mps.core.command_buffer import MPSCommandBuffer
from mpsref.mps.core.kernel import Encoding, ImageKernel, MPSCNNBinaryKernel, MPSCNNKernel, saved
from mpsref.mps.core.properties import Property, fix
from mpsref.mps.core.state import MPSNNGradientState, one_state
from mpsref.mps.core.whole_image import IMAGE, require_defaults, require_whole
from mpsref.mps.loss_descriptor import (
    MPSCNNLossDataDescriptor,
    MPSCNNLossDescriptor,
    MPSCNNLossType,
    MPSCNNReductionType,
    delta,
    epsilon,
    label_smoothing,
    loss_descriptor,
)
from mpsref.mps.loss_labels import MPSCNNLossLabels
from mpsref.registry import Backend

__all__ = [
    "MPSCNNLoss",
    "MPSCNNLossDataDescriptor",
    "MPSCNNLossDescriptor",
    "MPSCNNLossLabels",
    "MPSCNNLossType",
    "MPSCNNReductionType",
    "MPSCNNYOLOLoss",
    "MPSNNForwardLoss",
    "MPSNNInitialGradient",
    "MPSNNLossGradient",
]

NUMBERS = "weight", "label_smoothing", "epsilon", "delta"
"""What a gradient state carries, and what two of the kernels let be set."""


class Truth(NamedTuple):
    """What a loss compares with, while its kernel is encoded."""

    labels: Array
    weights: Array | None
    validate: bool


class Described(ImageKernel):
    """What the loss kernels share: the descriptor, whose values they show."""

    loss_descriptor = Property(
        loss_descriptor, MPSCNNLossDescriptor(0, 0), "Type, reduction and parameters, a copy.", read_only=True
    )
    _truth: Truth

    def __init__(
        self, loss_descriptor: MPSCNNLossDescriptor, *, backend: str | Backend | None = None, **properties: Any
    ) -> None:
        """Make a kernel with a copy of the descriptor; ``TypeError`` for what is none."""
        fix(self, loss_descriptor=loss_descriptor)
        super().__init__(backend=backend, **properties)

    @property
    def loss_type(self) -> MPSCNNLossType:
        """Which loss."""
        return self.loss_descriptor.loss_type

    @property
    def reduction_type(self) -> MPSCNNReductionType:
        """What becomes of the losses of all elements."""
        return self.loss_descriptor.reduction_type

    @property
    def reduce_across_batch(self) -> bool:
        """Whether all images are reduced to one number."""
        return self.loss_descriptor.reduce_across_batch

    @property
    def number_of_classes(self) -> int:
        """Over how many classes softmax labels are smoothed."""
        return self.loss_descriptor.number_of_classes

    @property
    def function(self) -> Loss:
        """The functional form."""
        return self.loss_descriptor.function


class Settable(Described):
    """A loss kernel whose numbers can be set after it is made."""

    weight = Property(number, 1.0, "What every loss and gradient is multiplied by.")
    label_smoothing = Property(label_smoothing, 0.0, "How much labels are smoothed, in [0, 1].")
    epsilon = Property(epsilon, 1e-7, "What is added to the arguments of ``Log``'s logarithms, >= 0.")
    delta = Property(delta, 1.0, "Where ``Huber`` turns into a line, > 0.")

    def __init__(
        self, loss_descriptor: MPSCNNLossDescriptor, *, backend: str | Backend | None = None, **properties: Any
    ) -> None:
        """Make a kernel with a copy of the descriptor; ``TypeError`` for what is none."""
        described = (
            {}
            if not isinstance(loss_descriptor, MPSCNNLossDescriptor)
            else {name: getattr(loss_descriptor, name) for name in NUMBERS}
        )
        super().__init__(loss_descriptor, backend=backend, **{**described, **properties})

    @property
    def function(self) -> Loss:
        """The functional form, with the numbers as they are now."""
        described = self.loss_descriptor.copy()
        for name in NUMBERS:
            setattr(described, name, getattr(self, name))
        return described.function

    def _extras(self) -> Mapping[str, Any]:
        return {name: getattr(self, name) for name in NUMBERS}


@saved("loss_descriptor")
class MPSCNNLoss(Described, MPSCNNKernel):
    """A loss and its gradient in one: the labels receive the loss image, the destination is the gradient."""

    @property
    def weight(self) -> float:
        """What every loss and gradient is multiplied by."""
        return self.loss_descriptor.weight

    @property
    def label_smoothing(self) -> float:
        """How much labels are smoothed."""
        return self.loss_descriptor.label_smoothing

    @property
    def epsilon(self) -> float:
        """What is added to the arguments of ``Log``'s logarithms."""
        return self.loss_descriptor.epsilon

    @property
    def delta(self) -> float:
        """Where ``Huber`` turns into a line."""
        return self.loss_descriptor.delta

    def encode(  # type: ignore[override]  # Apple's loss has other selectors than its parent, too
        self,
        source_image: Any,
        labels: Any,
        destination_image: Any = None,
        *,
        validate: bool = False,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> Any:
        """Return the gradient for the predictions ``source_image`` (N, H, W, C), of the kind that was passed in.

        ``labels`` are :class:`MPSCNNLossLabels` (or a list that names them once for each image), whose loss image is
        written. ``validate`` is that of :meth:`mpsref.Loss.forward`. Runs with default offset, clip rectangle and
        channels alone (``UnsupportedError``); nothing is written when an error is raised.
        """
        source = image_arguments.source("source_image", source_image)
        labels = one_state("labels", labels, source.array.shape[0])
        if not isinstance(labels, MPSCNNLossLabels):
            raise TypeError(f"labels is of type {type(labels).__name__}; it must be MPSCNNLossLabels")
        require_defaults(self, *IMAGE)
        function, x = self.function, source.array
        labels.check_loss_shape(function.loss_shape(x.shape), function.reduction)
        with Encoding(self, command_buffer):
            t, weights = labels.device_read()
            loss = function.forward(x, t, weights, validate=validate, backend=self.backend)
            self._truth = Truth(t, weights, False)
            result = self._encode((source,), destination_image, None, False, None, command_buffer)
            del self._truth
            labels.device_write(loss)
            return result

    encode_batch = encode  # type: ignore[assignment]  # as above

    def _compute(self, parts: Sequence[Array], destination: Array, region: Region) -> None:
        (y,), (t, weights, _) = parts, self._truth
        require_whole(self, self.destination_name, region, y.shape)
        self.function.gradient(None, y, t, weights, out=destination[region], backend=self.backend)


@saved("loss_descriptor")
class MPSNNForwardLoss(Settable, MPSCNNKernel):
    """A loss alone: the destination is the loss image. A state carries the numbers to the gradient."""

    def encode(  # type: ignore[override]  # Apple's loss has other selectors than its parent, too
        self,
        source_image: Any,
        labels: Any,
        weights: Any = None,
        destination_image: Any = None,
        *,
        return_state: bool = False,
        destination_state: Any = None,
        validate: bool = False,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> Any:
        """Return the loss image of predictions ``source_image``, ``labels`` and ``weights``, images (N, H, W, C).

        The loss image is (N, 1, 1, 1), for the reduction NONE (N, H, W, C). ``validate`` is that of
        :meth:`mpsref.Loss.forward`. Otherwise as in :meth:`mpsref.mps.MPSCNNKernel.encode`; runs with default offset,
        clip rectangle and channels alone (``UnsupportedError``).
        """
        source = image_arguments.source("source_image", source_image)
        require_defaults(self, *IMAGE)
        with Encoding(self, command_buffer):
            self._truth = _truth(labels, weights, validate)
            result = self._encode((source,), destination_image, None, return_state, destination_state, command_buffer)
            del self._truth
            return result

    encode_batch = encode  # type: ignore[assignment]  # as above

    def _destination_shape(self, sources: Sequence[image_arguments.ImageArgument], size: Pair) -> Shape:
        n, height, width, c = sources[0].array.shape
        return self.function.loss_shape((n, height, width, c))

    def _channels_written(self, read: Sequence[slice]) -> int:
        return 1 if self.reduction_type is not MPSCNNReductionType.NONE else super()._channels_written(read)

    def _compute(self, parts: Sequence[Array], destination: Array, region: Region) -> None:
        (y,), (t, weights, validate) = parts, self._truth
        function = self.function
        require_whole(self, self.destination_name, region, function.loss_shape(y.shape))
        function.forward(y, t, weights, validate=validate, out=destination[region], backend=self.backend)


@saved("loss_descriptor")
class MPSNNLossGradient(Settable, MPSCNNBinaryKernel):
    """The gradient of :class:`MPSNNForwardLoss` for predictions or labels; the reduction divides nothing."""

    destination_name = "destination_gradient"

    compute_label_gradients = Property(flag, False, "Whether the gradient is that for the labels.")

    def encode(  # type: ignore[override]  # Apple's loss has other selectors than its parent, too
        self,
        source_gradient: Any,
        source_image: Any,
        labels: Any,
        weights: Any = None,
        gradient_state: Any = None,
        destination_gradient: Any = None,
        *,
        validate: bool = False,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> Any:
        """Return the gradient for the predictions ``source_image`` (or for the labels), like ``source_gradient``.

        ``source_gradient`` has the shape of the loss image. With a ``gradient_state`` of :class:`MPSNNForwardLoss`, its
        four numbers replace those of this kernel. Nothing is written, and no property changed, when an error is raised.
        """
        sources = (
            image_arguments.source("source_gradient", source_gradient),
            image_arguments.source("source_image", source_image),
        )
        require_defaults(self, "clip_rect", "destination_feature_channel_offset")
        for prefix in self.prefixes:
            require_defaults(self, *(prefix + name for name in IMAGE if name in SOURCE_PROPERTIES))
        state = one_state("gradient_state", gradient_state, sources[1].array.shape[0])
        if state is not None and not (
            isinstance(state, MPSNNGradientState) and issubclass(state.record.kernel_class, MPSNNForwardLoss)
        ):
            raise TypeError(
                f"gradient_state is {state!r}; it must be the state that MPSNNForwardLoss.encode(..., "
                "return_state=True) returns"
            )
        with Encoding(self, command_buffer):
            if state is not None:
                for name in NUMBERS:
                    setattr(self, name, state.record.extras[name])
            self._truth = _truth(labels, weights, validate)
            like = self._truth.labels if self.compute_label_gradients else sources[1].array
            given, shape = None, like.shape
            if destination_gradient is not None:
                given = image_arguments.destination(self.destination_name, destination_gradient, sources)
                shape = given.array.shape
                if shape != like.shape:
                    raise ShapeError(f"destination_gradient has shape {shape}; the result has shape {like.shape}")
            array, _ = self._run(sources, given, shape, sources[0].array.dtype)
            del self._truth
            return image_arguments.like(source_gradient, array) if given is None else image_arguments.written(given)

    encode_batch = encode  # type: ignore[assignment]  # as above

    def _channels_written(self, read: Sequence[slice]) -> int:
        return self._truth.labels.shape[3] if self.compute_label_gradients else super()._channels_written(read[1:])

    def _compute(self, parts: Sequence[Array], destination: Array, region: Region) -> None:
        (g, y), (t, weights, validate) = parts, self._truth
        function = self.function
        run = function.gradient_labels if self.compute_label_gradients else function.gradient
        run(g, y, t, weights, validate=validate, out=destination[region], backend=self.backend)


SOURCE_PROPERTIES = "offset", "edge_mode", "source_feature_channel_offset", "source_feature_channel_max_count"


@saved()
class MPSNNInitialGradient(MPSCNNKernel):
    """Ones in the shape of the source: the gradient of a loss for itself, with which a backward pass begins [doc]."""

    def _compute(self, parts: Sequence[Array], destination: Array, region: Region) -> None:
        destination[region] = 1


class MPSCNNYOLOLoss:
    """Apple's loss for object detection, which mpsref does not build: how its parts combine is not documented."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        """Raise ``UnsupportedError``."""
        raise UnsupportedError(
            "MPSCNNYOLOLoss is not built: Apple does not document how its parts combine; compose MPSCNNLoss kernels"
        )


def _truth(labels: Any, weights: Any, validate: bool) -> Truth:
    read = None if weights is None else image_arguments.source("weights", weights).array
    return Truth(image_arguments.source("labels", labels).array, read, flag("validate", validate))
