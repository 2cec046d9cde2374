"""Attributes that are no properties raise the same error on every class."""

from __future__ import annotations

import numpy as np
import pytest

from mpsref import mps
from mpsref.mps import PropertyError, graph
from tests.subjects.classes import MADE, made

OPEN = ("DataSource", "SecureCoding", "MPSNNPadding")
"""Protocols and base classes of the application, which add attributes of their own."""


OBJECTS = {
    kind.__name__: made(kind) for kind in MADE if not issubclass(kind, tuple) and not kind.__name__.endswith(OPEN)
}


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
