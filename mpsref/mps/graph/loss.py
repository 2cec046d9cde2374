"""Loss nodes: the end of a graph for inference, and the start of its gradients.

The result of :class:`MPSCNNLossNode` *is* the gradient for its source; the loss goes into its labels [doc]. The result
of :class:`MPSNNForwardLossNode` is the loss, whose gradient node is like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import flag
from mpsref.errors import ShapeError
from mpsref.kernels import Loss
from mpsref.mps.core.properties import Property, fix
from mpsref.mps.graph.nodes import (
    Bound,
    BoundState,
    Call,
    MPSNNFilterNode,
    MPSNNGradientFilterNode,
    MPSNNImageNode,
    MPSNNStateNode,
    Step,
)
from mpsref.mps.loss_descriptor import MPSCNNLossDescriptor
from mpsref.mps.loss_labels import MPSCNNLossLabels


def _function(descriptor: Any) -> Loss:
    if not isinstance(descriptor, MPSCNNLossDescriptor):
        raise TypeError(f"loss_descriptor is of type {type(descriptor).__name__}; it must be an MPSCNNLossDescriptor")
    return descriptor.function


class MPSNNLabelsNode(MPSNNStateNode):
    """The labels of a loss node: an input of the graph."""

    def check(self, value: Any) -> Any:
        """Return labels if they are :class:`~mpsref.mps.MPSCNNLossLabels`; ``TypeError`` if not."""
        if not isinstance(value, MPSCNNLossLabels):
            raise TypeError(f"labels for {self.name!r} are of type {type(value).__name__}; pass MPSCNNLossLabels")
        return value

    @property
    def producer(self) -> None:
        """``None``: labels are an input."""
        return None

    @property
    def name(self) -> str:
        """The label of the loss node with ``.labels``, or that of the handle."""
        assert self._producer is not None
        return self.label or f"{self._producer.name}.labels"


class MPSCNNLossNode(MPSNNFilterNode):
    """A loss; its result is the gradient for ``source``.

    Labels come in with each run, as :class:`~mpsref.mps.MPSCNNLossLabels`, under the node ``input_labels``.
    """

    kind = "loss"
    spec_class = Loss
    state_class = None
    result_is_gradient = True
    needs = "a loss is its own gradient filter: use its result image as the source gradient"

    def __init__(self, source: MPSNNImageNode, loss_descriptor: MPSCNNLossDescriptor, **properties: Any) -> None:
        """Make a node."""
        self._function = _function(loss_descriptor)
        self._descriptor = loss_descriptor.copy()
        super().__init__((source,), **properties)
        self._source_states = (MPSNNLabelsNode._of(self),)

    @property
    def loss_descriptor(self) -> MPSCNNLossDescriptor:
        """A copy of what the loss was made with."""
        return self._descriptor.copy()

    @property
    def input_labels(self) -> MPSNNLabelsNode:
        """Where the labels come in, and where the loss is found after the run."""
        labels = self._source_states[0]
        assert isinstance(labels, MPSNNLabelsNode)
        return labels

    def _bind(self, shapes: Sequence[Shape], parameters: Any, states: Sequence[BoundState]) -> Bound:
        return Bound(self._function, shapes[0])

    def _methods(self, step: Step) -> Sequence[str]:
        return "forward", "gradient"

    def _compute(self, call: Call, *images: Array) -> Array:
        labels: MPSCNNLossLabels = call.state["labels"]
        wide = np.result_type(images[0], np.float32)
        truth = [t if t is None or t.dtype <= wide else t.astype(wide) for t in labels.device_read()]
        call.state["loss"] = self._function.forward(images[0], *truth, backend=call.backend)
        return self._function.gradient(None, images[0], *truth, backend=call.backend)

    def check_labels(self, labels: MPSCNNLossLabels, shape: Shape) -> None:
        """Raise ``ShapeError`` unless labels and weights fit predictions of ``shape``."""
        for name, image in zip(("labels", "weights"), labels.device_read(), strict=True):
            if image is not None and (image.shape[:3] != shape[:3] or image.shape[3] < shape[3]):
                raise ShapeError(
                    f"{name} of {self.name!r} have shape {image.shape}, the predictions {shape}; they must agree, and "
                    "may have more channels"
                )
        n, height, width, channels = shape
        labels.check_loss_shape(self._function.loss_shape((n, height, width, channels)), self._function.reduction)


class MPSNNLossGradientNode(MPSNNGradientFilterNode):
    """The gradient of a forward loss, for the predictions or for the labels."""

    is_labels_gradient_filter = Property(flag, False, "Whether it is the gradient for the labels.", read_only=True)

    def __init__(
        self,
        source_gradient: MPSNNImageNode,
        source_image: MPSNNImageNode,
        gradient_state: MPSNNStateNode,
        labels: MPSNNImageNode,
        weights: MPSNNImageNode | None = None,
        loss_descriptor: MPSCNNLossDescriptor | None = None,
        is_labels_gradient_filter: bool = False,
        **properties: Any,
    ) -> None:
        """Make a node from the images of the forward node, its state and its descriptor."""
        self._function = _function(loss_descriptor)
        fix(self, is_labels_gradient_filter=is_labels_gradient_filter)
        others = [labels] if weights is None else [labels, weights]
        super().__init__(
            source_gradient,
            source_image,
            gradient_state,
            *others,
            source_index=int(self.is_labels_gradient_filter),
            **properties,
        )

    def _image_shape(self, state: BoundState) -> Shape:
        return state.source_shapes[0]

    def _bind(self, shapes: Sequence[Shape], parameters: Any, states: Sequence[BoundState]) -> Bound:
        if shapes[2:] != states[0].source_shapes[1:]:
            raise ShapeError(
                f"labels and weights have shapes {shapes[2:]}; those of {self.forward.name!r} have "
                f"{states[0].source_shapes[1:]}: both must be equal"
            )
        return super()._bind(shapes, parameters, states)

    def _methods(self, step: Step) -> Sequence[str]:
        return ("gradient_labels" if self.is_labels_gradient_filter else "gradient",)

    def _compute(self, call: Call, *images: Array) -> Array:
        g, y, *others = images
        function = self._function.gradient_labels if self.is_labels_gradient_filter else self._function.gradient
        return function(g, y, *others, backend=call.backend)


class MPSNNForwardLossNode(MPSNNFilterNode):
    """A loss as an image; labels and weights are images, too.

    It is differentiated for the predictions, and for the labels as well with ``gradient_for_labels`` (not in MPS).
    """

    kind = "floss"
    spec_class = Loss
    gradient_class = MPSNNLossGradientNode
    gradient_for_labels = Property(flag, False, "Whether training graphs make a gradient for the labels.")

    def __init__(
        self,
        source: MPSNNImageNode | Sequence[MPSNNImageNode],
        labels: MPSNNImageNode | MPSCNNLossDescriptor | None = None,
        loss_descriptor: MPSCNNLossDescriptor | None = None,
        weights: MPSNNImageNode | None = None,
        **properties: Any,
    ) -> None:
        """Make a node from (source, labels, descriptor, weights), or ([source, labels, weights], descriptor)."""
        if isinstance(source, (list, tuple)):
            sources, descriptor = list(source), labels if loss_descriptor is None else loss_descriptor
        else:
            sources = [one for one in (source, labels, weights) if one is not None]
            descriptor = loss_descriptor
        if len(sources) not in (2, 3):
            raise ValueError(f"there are {len(sources)} sources; there must be 2 or 3: source, labels, weights")
        self._function = _function(descriptor)
        self._descriptor: Any = descriptor
        super().__init__(sources, **properties)

    @property
    def differentiable_sources(self) -> Sequence[int]:
        """The predictions, and with ``gradient_for_labels`` the labels."""
        return (0, 1) if self.gradient_for_labels else (0,)

    @property
    def _gradients_of(self) -> Sequence[int]:
        return (0, 1)

    @property
    def _several_gradients(self) -> bool:
        return False  # asked for one, it gives that of the predictions [doc]

    def _bind(self, shapes: Sequence[Shape], parameters: Any, states: Sequence[BoundState]) -> Bound:
        y, *others = shapes
        for name, shape in zip(("labels", "weights"), others, strict=False):
            if shape[:3] != y[:3] or shape[3] < y[3]:
                raise ShapeError(f"{name} have shape {shape}; predictions {y}: they must agree, more channels apart")
        return Bound(self._function, self._function.loss_shape(y))  # type: ignore[arg-type]

    def _compute(self, call: Call, *images: Array) -> Array:
        call.state["loss"] = self._function.forward(*images, backend=call.backend)
        return call.state["loss"]  # type: ignore[no-any-return]

    def _gradient_node(self, source_gradient: MPSNNImageNode, source_index: int) -> MPSNNGradientFilterNode:
        source, labels, *weights = self.source_images
        return MPSNNLossGradientNode(
            source_gradient,
            source,
            self._state,
            labels,
            weights[0] if weights else None,
            self._descriptor,
            source_index == 1,
        )
