"""Attributes that are no properties raise the same error on every class."""

from __future__ import annotations

import enum
import inspect
from typing import Any

import numpy as np
import pytest

from mpsref import mps
from mpsref.mps import PropertyError, graph
from tests.contracts.test_illegal_calls import made

OPEN = ("DataSource", "SecureCoding", "MPSNNPadding")
"""Protocols and base classes of the application, which add attributes of their own."""


def objects() -> dict[str, Any]:
    """Return an object of each class that can be made."""
    x = graph.MPSNNImageNode("x")
    pooled = graph.MPSCNNPoolingMaxNode(x, filter_size=2)
    source = mps.ArrayConvolutionDataSource(mps.MPSCNNConvolutionDescriptor(1, 1, 2, 2), [[[[1, 0]]], [[[0, 1]]]])
    image = np.ones((1, 1, 1, 2), np.float32)
    compiled = graph.MPSNNGraph(pooled.result_image)
    _, convolution = mps.MPSCNNConvolution(source).encode(image, return_state=True)
    _, dropout = mps.MPSCNNDropout(0.5, 1, (1, 1, 1)).encode(image, return_state=True)
    _, pooling = mps.MPSCNNPoolingMax(1, 1).encode(image, return_state=True)
    norm = mps.MPSCNNBatchNormalization(mps.BatchNormalizationDataSource(2))
    _, instance = mps.MPSCNNInstanceNormalization(mps.InstanceNormalizationDataSource(2)).encode(
        image, return_state=True
    )
    special = [
        compiled, compiled.run([np.ones((1, 2, 2, 1), np.float32)]), convolution, dropout, pooling, instance,
        norm.result_state_for_source_image(image), mps.MPSCNNLossLabels((1, 1, 1), image),
        mps.MPSNNDefaultPadding(), mps.MPSNNNeuronDescriptor("relu"), mps.MPSImageBatch([mps.MPSImage(image)]),
        graph.training_graph(graph.MPSNNInitialGradientNode(pooled.result_image)), pooled.result_state,
        mps.MPSCNNConvolutionWeightsAndBiasesState(mps.MPSCNNConvolutionDescriptor(1, 1, 1, 1)),
    ]  # fmt: skip
    found = {type(one).__name__: one for one in special}
    for module in (mps, graph):
        for name in module.__all__:
            kind = getattr(module, name)
            if not inspect.isclass(kind) or issubclass(kind, (enum.Enum, Exception, tuple)) or name.endswith(OPEN):
                continue
            one = found.get(name) or made(kind)
            if isinstance(one, kind):
                found[name] = one
    return found


OBJECTS = objects()


def test_most_classes_can_be_made() -> None:
    assert len(OBJECTS) > 150
    assert {"MPSNNGraph", "MPSCNNLossDescriptor", "MPSNNOptimizerDescriptor", "MPSCNNLossLabels", "MPSImage",
            "MPSCommandBuffer", "MPSCNNConvolutionGradientState", "MPSTemporaryImage"} <= set(OBJECTS)  # fmt: skip


@pytest.mark.parametrize("name", sorted(OBJECTS))
def test_a_name_that_is_no_property_raises(name: str) -> None:
    one = OBJECTS[name]
    with pytest.raises(PropertyError, match=f"{type(one).__name__} has no property 'wieght'; "):
        one.wieght = 2
    assert not hasattr(one, "wieght")


@pytest.mark.parametrize(
    ("name", "attribute"),
    [("MPSImage", "width"), ("MPSCommandBuffer", "status"), ("MPSNNGraph", "backend"), ("RunResult", "loss"),
     ("MPSCNNLossLabels", "loss_image"), ("MPSNNDefaultPadding", "edge_mode"), ("MPSNNNeuronDescriptor", "a"),
     ("MPSCNNConvolutionGradientState", "record"), ("TrainingGraph", "nodes")],
)  # fmt: skip
def test_a_read_only_attribute_raises(name: str, attribute: str) -> None:
    with pytest.raises(PropertyError, match=f"{attribute} of {name} is read-only; "):
        setattr(OBJECTS[name], attribute, 1)


def test_a_label_is_a_property_of_an_object_with_a_setter() -> None:
    image = mps.MPSTemporaryImage(np.ones((1, 1, 1, 1), np.float32))
    image.read_count = 3
    with pytest.raises(PropertyError, match=r"those that can be set are: .*read_count"):
        image.wieght = 1  # type: ignore[attr-defined]


def test_a_keyword_that_is_no_property_raises_the_same_error() -> None:
    for call in (
        lambda: mps.MPSCNNPoolingMax(2, 2, wieght=1),
        lambda: mps.MPSCNNLossDescriptor("huber", "sum", wieght=1),
        lambda: graph.MPSNNImageNode("x", wieght=1),
        lambda: graph.MPSNNGraph(graph.MPSCNNSoftMaxNode(graph.MPSNNImageNode("x")).result_image, wieght=1),
    ):
        with pytest.raises(PropertyError, match="wieght is no property of MPS"):
            call()
