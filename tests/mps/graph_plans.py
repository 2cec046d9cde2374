"""Random graphs: a plan is a list of steps, drawn by Hypothesis or written by hand, from which nodes are built."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from mpsref import mps
from mpsref.arguments.arrays import Array, Shape
from mpsref.mps.graph import MPSNNFilterNode, MPSNNImageNode

BATCH = 2
CHANNELS = 3
SHAPE = (BATCH, 4, 4, CHANNELS)
SEQUENCE = 3
"""Seed of the dropout masks."""

UNARY = ("tanh", "sigmoid", "relu", "softmax", "logsoftmax", "pavg", "pmax", "near", "bilin", "conv", "bn", "inorm")
UNARY += ("drop", "mean", "pad", "twice", "convt", "pl2", "snorm", "lcn", "lrn")
BINARY = ("add", "sub", "mul", "gate", "cat")
ENDS = ("weighted", "softmaxcrossentropy", "meansquarederror", "forward")


class Action(NamedTuple):
    """One node: its kind, and the images that it reads, counted backwards from the last one."""

    kind: str
    first: int = 0
    second: int = 0


class Plan(NamedTuple):
    """A graph: images 0 and 1 are inputs; the last image, and optionally another, end in a node with a gradient."""

    actions: tuple[Action, ...]
    ends: tuple[tuple[str, int], ...] = (("weighted", 0),)
    seed: int = 0


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Draw a plan; actions read recent images more often, so that few are pruned."""
    back = st.one_of(st.just(0), st.integers(0, 7))
    unary = st.builds(Action, st.sampled_from(UNARY), back)
    binary = st.builds(Action, st.sampled_from(BINARY), back, back)
    actions = draw(st.lists(st.one_of(unary, binary), min_size=1, max_size=7))
    ends = draw(st.lists(st.tuples(st.sampled_from(ENDS), st.integers(0, 1)), min_size=1, max_size=2))
    return Plan(tuple(actions), tuple(ends), draw(st.integers(0, 999)))


@dataclass
class Network:
    """The nodes of a plan, and its inputs."""

    inputs: dict[MPSNNImageNode, Array]
    shapes: dict[MPSNNImageNode, Shape]
    lasts: list[MPSNNFilterNode] = field(default_factory=list)
    """The nodes with which training graphs start."""
    outputs: list[MPSNNImageNode] = field(default_factory=list)
    """The images or losses whose sum is the objective."""
    labels: dict[Any, mps.MPSCNNLossLabels] = field(default_factory=dict)
    weighted: list[Any] = field(default_factory=list)
    """The nodes with parameters."""

    def floats(self, seed: int) -> dict[MPSNNImageNode, Array]:
        """Return another batch for the same graph."""
        rng = np.random.default_rng(seed)
        return {image: rng.normal(size=value.shape) for image, value in self.inputs.items()}


class Builder:
    """Builds the nodes of a plan, deterministically."""

    def __init__(self, plan: Plan, style: str, flags: str) -> None:
        self.rng = np.random.default_rng(plan.seed)
        self.style, self.flags = style, flags
        inputs = {MPSNNImageNode(name): self.rng.normal(size=SHAPE) for name in ("x", "w")}
        self.images = list(inputs)
        self.network = Network(inputs, dict.fromkeys(inputs, SHAPE))
        for action in plan.actions:
            self.act(action)
        if len(self.images) == len(inputs):
            self.act(Action("tanh"))
        made = self.images[len(inputs) :]
        for kind, back in plan.ends:
            self.end(kind, made[-1 - back % len(made)])

    def shape(self, image: MPSNNImageNode) -> Shape:
        return self.network.shapes[image]

    def act(self, action: Action) -> None:
        """Add a node if its kind accepts the images."""
        x = self.images[-1 - action.first % len(self.images)]
        if action.kind in BINARY:
            fit = [i for i in self.images if self.shape(i)[: 3 if action.kind == "cat" else 4] == self.shape(x)]
            fit = [i for i in self.images if self.shape(i)[:3] == self.shape(x)[:3]] if action.kind == "cat" else fit
            node = self.binary(action.kind, x, fit[-1 - action.second % len(fit)])
        else:
            node = self.unary(action.kind, x)
        if node is not None:
            self.images.append(node.result_image)
            compiled = mps.graph.MPSNNGraph(node.result_image)
            shapes = compiled.infer_shapes({i: self.shape(i) for i in compiled.source_images})
            self.network.shapes[node.result_image] = shapes[node.result_image]

    def binary(self, kind: str, x: MPSNNImageNode, y: MPSNNImageNode) -> MPSNNFilterNode:
        if kind == "cat":
            return mps.graph.MPSNNConcatenationNode([y, x])
        if kind == "gate":  # one channel of y for all of x
            return mps.graph.MPSNNMultiplicationNode(x, y, secondary_stride_in_feature_channels=0, primary_scale=0.5)
        if kind == "sub":
            return mps.graph.MPSNNSubtractionNode(x, y, secondary_scale=1.5)
        return mps.graph.MPSNNAdditionNode(y, x) if kind == "add" else mps.graph.MPSNNMultiplicationNode(x, y)

    def unary(self, kind: str, x: MPSNNImageNode) -> MPSNNFilterNode | None:
        _, height, width, channels = self.shape(x)
        weighted: dict[str, Any] = {"training_style": self.style}
        numbers = lambda *shape: self.rng.normal(size=shape).astype(np.float32)  # noqa: E731
        if kind == "twice":
            return mps.graph.MPSNNMultiplicationNode(x, x)
        if kind in ("softmax", "logsoftmax"):
            return (mps.graph.MPSCNNSoftMaxNode if kind == "softmax" else mps.graph.MPSCNNLogSoftMaxNode)(x)
        if kind in ("tanh", "sigmoid", "relu"):
            node = {"tanh": "TanH", "sigmoid": "Sigmoid", "relu": "ReLU"}[kind]
            return getattr(mps.graph, f"MPSCNNNeuron{node}Node")(x, **({"a": 0.3} if kind == "relu" else {}))
        if kind in ("pavg", "pmax", "pl2"):
            if min(height, width) < 2:
                return None
            node = {"pavg": "Average", "pmax": "Max", "pl2": "L2Norm"}[kind]
            return getattr(mps.graph, f"MPSCNNPooling{node}Node")(x, 2, 2, 2, 1)
        if kind in ("near", "bilin"):
            if max(height, width) > 4:
                return None
            return (
                mps.graph.MPSCNNUpsamplingNearestNode if kind == "near" else mps.graph.MPSCNNUpsamplingBilinearNode
            )(x, 2, 1)
        if kind == "mean":
            return mps.graph.MPSNNReductionSpatialMeanNode(x)
        if kind == "pad":
            return mps.graph.MPSNNPadNode(x, (1, 0, 0), (0, 1, 0), "mirror") if min(height, width) > 1 else None
        if kind == "drop":
            return mps.graph.MPSCNNDropoutNode(x, 0.6, seed=len(self.images))
        if kind in ("snorm", "lcn", "lrn"):
            node = {"snorm": "Spatial", "lcn": "LocalContrast", "lrn": "CrossChannel"}[kind]
            return getattr(mps.graph, f"MPSCNN{node}NormalizationNode")(x, 3, beta=0.7, delta=1.0)
        if kind in ("conv", "convt"):
            descriptor = mps.MPSCNNConvolutionDescriptor(3, 3, channels, CHANNELS)
            source = mps.ArrayConvolutionDataSource(
                descriptor, numbers(CHANNELS, 3, 3, channels) / 3, numbers(CHANNELS)
            )
            if kind == "conv":
                made = mps.graph.MPSCNNConvolutionNode(x, source, **weighted)
            else:
                made = mps.graph.MPSCNNConvolutionTransposeNode(x, None, source, **weighted)
        else:
            scale = {"gamma": 1 + numbers(channels) / 4, "beta": numbers(channels), "epsilon": 0.1}
            if kind == "bn":
                source = mps.BatchNormalizationDataSource(channels, **scale)
                made = mps.graph.MPSCNNBatchNormalizationNode(x, source, flags=self.flags, **weighted)
            else:
                source = mps.InstanceNormalizationDataSource(channels, **scale)
                made = mps.graph.MPSCNNInstanceNormalizationNode(x, source, **weighted)
        made.result_state.export_from_graph = True
        self.network.weighted.append(made)
        return made

    def end(self, kind: str, image: MPSNNImageNode) -> None:
        """Add a node whose sum, or loss, has a gradient."""
        net, shape = self.network, self.shape(image)
        if kind == "weighted":  # with distinct weights, since the sum of a softmax is constant
            weights = MPSNNImageNode(f"weights{len(net.lasts)}")
            net.inputs[weights], net.shapes[weights] = self.rng.normal(size=shape), shape
            product = mps.graph.MPSNNMultiplicationNode(image, weights)
            net.lasts.append(mps.graph.MPSNNInitialGradientNode(product.result_image))
            net.outputs.append(product.result_image)
            return
        truth = np.eye(shape[3])[self.rng.integers(shape[3], size=shape[:3])]
        if kind == "forward":
            given = MPSNNImageNode(f"truth{len(net.lasts)}")
            net.inputs[given], net.shapes[given] = truth, shape
            descriptor = mps.MPSCNNLossDescriptor("meansquarederror", "sum")
            loss = mps.graph.MPSNNForwardLossNode(image, given, descriptor, gradient_for_labels=True)
            net.lasts.append(mps.graph.MPSNNInitialGradientNode(loss.result_image))
            net.outputs.append(loss.result_image)
            return
        node = mps.graph.MPSCNNLossNode(image, mps.MPSCNNLossDescriptor(kind, "sum"))
        net.labels[node.input_labels] = mps.MPSCNNLossLabels((1, 1, 1), truth.astype(np.float32))
        net.lasts.append(node)
        net.outputs.append(node.result_image)


def build(plan: Plan, style: str = "none", flags: str = "default") -> Network:
    """Return the nodes of a plan; ``flags`` are those of its batch normalizations."""
    return Builder(plan, style, flags).network
