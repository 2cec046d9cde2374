"""Attributes that are no properties raise the same error on every class."""

from __future__ import annotations

import numpy as np
import pytest

from mpsref import mps
from mpsref.mps import PropertyError
from tests.subjects.classes import MADE, OTHERWISE, arguments, made

OPEN = ("DataSource", "SecureCoding", "MPSNNPadding")
"""Protocols and base classes of the application, which add attributes of their own."""


OBJECTS = {
    kind.__name__: made(kind) for kind in MADE if not issubclass(kind, tuple) and not kind.__name__.endswith(OPEN)
}


def test_a_name_that_is_no_property_raises() -> None:
    for name, one in OBJECTS.items():
        with pytest.raises(PropertyError, match=rf"{name} has no property 'wieght'(: did you mean weight\?)?; "):
            one.wieght = 2
        assert not hasattr(one, "wieght")


@pytest.mark.parametrize(
    ("name", "attribute"),
    [("MPSImage", "width"), ("MPSCommandBuffer", "status"), ("MPSNNGraph", "backend"), ("RunResult", "loss"),
     ("MPSCNNLossLabels", "loss_image"), ("MPSNNDefaultPadding", "edge_mode"), ("MPSCNNNeuronReLU", "a"),
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


KEYWORDS = [kind for kind in MADE if kind.__name__ in OBJECTS and kind.__name__ not in OTHERWISE]


def test_a_keyword_that_is_no_property_raises() -> None:
    for kind in KEYWORDS:
        with pytest.raises(TypeError, match=r"wieght is no property of MPS|unexpected keyword|takes no arguments"):
            kind(**arguments(kind), wieght=1)
