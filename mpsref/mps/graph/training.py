"""Automatic training graphs: a gradient node for each node that leads to the last one, in reverse order.

If several nodes read an image, its gradients are added in a fixed order, one addition node at a time, so that results
are reproducible bit for bit.

Source: ``trainingGraphWithSourceGradient:nodeHandler:`` in ``MPSNNGraphNodes.h`` [doc]; the order, the sums at the
inputs of the graph, and an error for a node without gradient [design graph-no-gradient].
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

from mpsref.errors import NoGradientError, TrainingGraphWarning
from mpsref.mps import graph
from mpsref.mps.core.properties import closed, hinting, instance_of
from mpsref.mps.graph.compile import label, post_order
from mpsref.mps.graph.inspection import columns
from mpsref.mps.graph.nodes import MPSNNFilterNode, MPSNNImageNode, NodeHandler, image_node


@closed
@dataclass(frozen=True)
class TrainingGraph:
    """The result of :func:`training_graph`."""

    nodes: list[MPSNNFilterNode] = field(default_factory=list, init=False)
    """All new nodes, in the order of their creation."""
    additions: list[MPSNNFilterNode] = field(default_factory=list, init=False)
    """The nodes that add the gradients of an image with several readers."""
    _totals: dict[MPSNNImageNode, MPSNNImageNode] = field(default_factory=dict, init=False)
    _of: dict[MPSNNFilterNode, tuple[MPSNNFilterNode | None, MPSNNImageNode]] = field(default_factory=dict, init=False)

    @property
    def termini(self) -> list[MPSNNFilterNode]:
        """The new nodes whose results no new node reads; compile a graph for these results."""
        read = {image for node in self.nodes for image in node.source_images}
        return [node for node in self.nodes if node.result_image not in read]

    def gradient_image(self, image: MPSNNImageNode) -> MPSNNImageNode:
        """Return the gradient of a forward image.

        Parameters
        ----------
        image : MPSNNImageNode
            An image of the forward graph.

        Returns
        -------
        MPSNNImageNode
            The sum of the gradients of all readers of ``image``.

        Raises
        ------
        NoGradientError
            If the training graph does not compute it.
        """
        if image_node("image", image) not in self._totals:
            raise NoGradientError(f"image {image.name!r} has no gradient in this training graph: no node computes it")
        return self._totals[image]

    def table(self) -> str:
        """Return the new nodes as a table: label, class, forward node, and the image whose gradient is computed."""
        rows = [("label", "class", "mirrors", "gradient of")]
        for node in self.nodes:
            forward, image = self._of[node]
            rows.append((node.name, type(node).__name__, forward.name if forward else "-", image.name))
        return columns(rows)


def inherit_handles(
    new: MPSNNFilterNode, forward: MPSNNFilterNode | None, image: MPSNNImageNode, gradient: MPSNNImageNode
) -> None:
    """Set the handle of a gradient to the handle of its forward image; of several summands only the sum has it."""
    new.result_image.handle = image.handle
    if forward is None:
        for summand in new.source_images:
            summand.handle = None


@hinting
def training_graph(
    last: MPSNNFilterNode, gradient_image: MPSNNImageNode | None = None, node_handler: NodeHandler | None = None
) -> TrainingGraph:
    """Build the gradient nodes of all nodes that lead to ``last``, usually a loss node.

    Parameters
    ----------
    last : MPSNNFilterNode
        The last forward node.
    gradient_image : MPSNNImageNode, optional
        The gradient of the result of ``last``. By default the result itself: results of loss nodes and of initial
        gradients are gradients.
    node_handler : callable, optional
        ``handler(new node, forward node or None, image, source gradient)`` is called for each new node, which computes
        the gradient of ``image``. It can change the node. If it returns ``False``, or ``image.stop_gradient`` is set,
        no nodes are built that depend on the new node. :func:`inherit_handles` by default.

    Returns
    -------
    TrainingGraph

    Raises
    ------
    NoGradientError
        If a node that leads to ``last`` has no gradient.

    Notes
    -----
    ``trainingGraphWithSourceGradient:nodeHandler:`` in ``MPSNNGraphNodes.h`` [doc].

    Examples
    --------
    >>> from mpsref.mps import graph
    >>> x = MPSNNImageNode("x")
    >>> square = graph.MPSNNMultiplicationNode(x, x, label="square")
    >>> built = training_graph(graph.MPSNNInitialGradientNode(square.result_image))
    >>> [node.label for node in built.nodes]
    ['square.grad[0]', 'square.grad[1]', 'x.sum0']
    """
    instance_of("last", last, MPSNNFilterNode, "a filter node, such as a loss node")
    if last.form == "gradient":
        raise NoGradientError(f"{type(last).__name__} {last.name!r} has no gradient: MPS has no second derivatives")
    if node_handler is not None and not callable(node_handler):
        raise TypeError(f"node_handler is of type {type(node_handler).__name__}; it must be a function, or None")
    first = last.result_image if gradient_image is None else image_node("gradient_image", gradient_image)
    is_gradient = last.result_is_gradient
    if not is_gradient and gradient_image is None:
        warnings.warn(
            f"the result of {last.name!r} is taken for its own gradient; end the graph with a loss node or an "
            "MPSNNInitialGradientNode, or pass gradient_image",
            TrainingGraphWarning,
            stacklevel=2,
        )
    order = post_order([last], lambda node: [image.producer for image in node.source_images])
    label(order)
    return _Builder(node_handler or inherit_handles, last).build(order, first, is_gradient)


class _Builder:
    """Visits the nodes in reverse order, with the gradients of each image so far."""

    def __init__(self, handler: NodeHandler, last: MPSNNFilterNode) -> None:
        self.made = TrainingGraph()
        self.handler = handler
        self.last = last
        self.arrived: dict[MPSNNImageNode, list[MPSNNImageNode]] = {}

    def build(self, order: Sequence[MPSNNFilterNode], first: MPSNNImageNode, is_gradient: bool) -> TrainingGraph:
        self.arrived[self.last.source_images[0] if is_gradient else self.last.result_image] = [first]
        for node in reversed(order[:-1] if is_gradient else order):
            gradient = self._total(node.result_image)
            if gradient is None:
                continue
            if not node.differentiable_sources:
                raise NoGradientError(self._no_way_through(node))
            for new in node.gradient_filters_with_source(gradient):
                image = new.forward_source
                new.label = new.derived_label
                if self._emit(new, node, image, gradient):
                    self.arrived.setdefault(image, []).append(new.result_image)
        for image in list(self.arrived):
            self._total(image)
        return self.made

    def _total(self, image: MPSNNImageNode) -> MPSNNImageNode | None:
        """Add the gradients of ``image``; ``None`` if there are none, or if the handler prunes the sum."""
        summands = self.arrived.pop(image, [])
        if not summands:
            return None
        total, go = summands[0], True
        for summand in summands[1:]:
            addition = graph.MPSNNAdditionNode(total, summand, label=f"{image.name}.sum{len(self.made.additions)}")
            addition._inserted = True
            self.made.additions.append(addition)
            go = self._emit(addition, None, image, total) and go
            total = addition.result_image
        self.made._totals[image] = total
        return total if go else None

    def _emit(
        self, new: MPSNNFilterNode, forward: MPSNNFilterNode | None, image: MPSNNImageNode, gradient: MPSNNImageNode
    ) -> bool:
        """Record a new node and call the handler; return whether to continue from it."""
        self.made.nodes.append(new)
        self.made._of[new] = forward, image
        answer = self.handler(new, forward, image, gradient)
        return answer is not False and not image.stop_gradient and not new.result_image.stop_gradient

    def _no_way_through(self, node: MPSNNFilterNode) -> str:
        path = [self.last]
        while path[-1] is not node:
            path.append(next(n for image in path[-1].source_images if (n := image.producer) and _leads(n, node)))
        way = " <- ".join(node.name for node in path)
        return (
            f"{type(node).__name__} {node.name!r} has no gradient ({node.why_no_gradient}), on the way {way}; set "
            "stop_gradient on its result_image, or return False in the node handler for the nodes that read it"
        )


def _leads(node: MPSNNFilterNode, to: MPSNNFilterNode) -> bool:
    return to in post_order([node], lambda reader: [image.producer for image in reader.source_images])
