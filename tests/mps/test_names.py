"""Attributes that are no properties raise the same error on every class."""

from __future__ import annotations

import enum
import inspect
import json
import pickle
import re
from enum import Enum
from typing import Any

import numpy as np
import pytest

from mpsref import mps
from mpsref.mps import PropertyError, graph
from mpsref.mps.core.types import HEADERS
from tests.subjects.classes import MADE, OTHERWISE, arguments, made

OPEN = ("DataSource", "SecureCoding", "MPSNNPadding")
"""Protocols and base classes of the application, which add attributes of their own."""


KERNELS = [one for one in MADE if issubclass(one, mps.MPSKernel) and not re.search("Matrix|Optimizer", one.__name__)]

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
        with pytest.raises(
            TypeError, match=r"wieght is no property of (MPS|CustomK)|unexpected keyword|takes no arguments"
        ):
            kind(**arguments(kind), wieght=1)


@pytest.mark.parametrize(
    ("kind", "name", "member"),
    [
        (graph.MPSNNTrainingStyle, "UpdateDeviceGPU", "GPU"),
        (graph.MPSNNTrainingStyle, "updateDeviceNone", "NONE"),
        (graph.MPSCNNBatchNormalizationFlags, "CalculateStatisticsAutomatic", "Default"),
        (mps.MPSImageEdgeMode, "clamp", "Clamp"),
        (mps.MPSCNNNeuronType, "reLU", "ReLU"),
        (mps.MPSCNNNeuronType, "MPSCNNNeuronTypeReLU", "ReLU"),
        (mps.MPSImageFeatureChannelFormat, "None_", "NONE"),
        (mps.MPSNNPaddingMethod, "sizeSame", "SizeSame"),
    ],
)
def test_an_error_for_a_member_suggests_one(kind: Any, name: str, member: str) -> None:
    with pytest.raises(AttributeError, match=rf"has no member '{name}': did you mean {member}\?$"):
        getattr(kind, name)
    assert not hasattr(kind, "wieght")


ENUMERATIONS = {
    one.__name__: one
    for module in (mps, graph)
    for one in (getattr(module, name) for name in module.__all__)
    if isinstance(one, type) and issubclass(one, Enum)
}


@pytest.mark.parametrize("kind", ENUMERATIONS.values(), ids=list(ENUMERATIONS))
def test_each_name_of_apple_leads_to_the_member_of_its_value(kind: Any) -> None:
    """Also as Swift spells it, with a small first letter; there is one spelling of None."""
    assert not {"None_", "none", "None"} & kind.__members__.keys()
    for name, value in json.loads(HEADERS.read_text("utf-8"))["enumerations"].get(kind.__name__, {}).items():
        cut = name.removeprefix(kind.__name__)
        known = [key for key, member in kind.__members__.items() if member == value]
        for spelling in {name, cut, cut[:1].lower() + cut[1:]} - kind.__members__.keys():
            if known and spelling:
                with pytest.raises(AttributeError, match=rf"did you mean ({'|'.join(known)})\?"):
                    getattr(kind, spelling)


def test_an_error_for_the_name_of_a_member_suggests_one() -> None:
    found = (
        ("Clamp", "did you mean clamp"),
        (".clamp", "did you mean clamp"),
        ("xyz", "'xyz'; it"),
        ("Mirror", "r'; it"),
    )
    for name, words in found:
        with pytest.raises(ValueError, match=words):
            mps.MPSCNNPoolingMax(2, 2, edge_mode=name)
    with pytest.raises(ValueError, match="did you mean gpu"):
        graph.MPSCNNConvolutionNode(graph.MPSNNImageNode(), SOURCE, training_style="UpdateDeviceGPU")


def test_a_name_of_the_other_module_says_where_it_is() -> None:
    for module, name, words in (
        (mps, "MPSCNNDropoutNode", "it is in mpsref.mps.graph"),
        (graph, "MPSCNNDropout", "it is in mpsref.mps"),
        (mps, "MPSCNNPoolingMx", "did you mean MPSCNNPoolingMax"),
        (graph, "MPSCNNPoolingMxNode", "did you mean MPSCNNPoolingMaxNode"),
    ):
        with pytest.raises(AttributeError, match=rf"module '{module.__name__}' has no attribute '{name}': {words}"):
            getattr(module, name)


RESULT = graph.MPSCNNSoftMaxNode(graph.MPSNNImageNode()).result_image
POOL, X = mps.MPSCNNPoolingMaxGradient(1, 1), np.ones((1, 1, 1, 1), np.float32)
SOURCE = mps.ArrayConvolutionDataSource(mps.MPSCNNConvolutionDescriptor(1, 1, 1, 1), [1.0])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: mps.MPSCNNPoolingMax(kernelWidth=2, kernelHeight=2), "kernelWidth .* did you mean kernel_width"),
        (lambda: mps.MPSCNNPoolingMax(2, 2, edgeMode=1), "edgeMode .* did you mean edge_mode"),
        (lambda: graph.MPSCNNPoolingMaxNode(graph.MPSNNImageNode(), filterSize=2), "filterSize .* mean filter_size"),
        (lambda: graph.MPSNNGraph(RESULT, resultImageIsNeeded=True), "did you mean result_image_is_needed"),
        (lambda: POOL.encode(X, X, gradientState=None), "gradientState .* did you mean gradient_state"),
        (lambda: POOL.encode(X, X, gradient_image=X), "gradient_image .* did you mean source_gradient"),
        (lambda: POOL.encode_batch(X, X, commandBuffer=None), "commandBuffer .* did you mean command_buffer"),
    ],
)
def test_an_error_for_a_keyword_suggests_one(call: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        call()


def test_every_encode_refuses_an_unknown_keyword() -> None:
    for kind in KERNELS:
        for name in ("encode", "encode_batch"):
            method = getattr(kind, name, None)
            if method is None or "command_buffer" not in inspect.signature(method).parameters:
                continue
            assert "unknown" not in inspect.signature(method).parameters
            required = [None for one in inspect.signature(method).parameters.values() if one.default is one.empty]
            given = {"reshaped_width": 1, "reshaped_height": 1, "reshaped_feature_channels": 1}
            size = given if kind is mps.MPSNNReshape else {}
            with pytest.raises(TypeError, match=r"commandBuffer is no argument of \w+.encode\w*: did you mean command"):
                method(made(kind), *required[1 + len(size) :], **size, commandBuffer=None)


def test_a_selector_of_apple_suggests_the_method() -> None:
    for name in ("encode_to_command_buffer", "encodeToCommandBuffer", "encode_to_command_buffer_source_image"):
        with pytest.raises(AttributeError, match=rf"has no attribute '{name}': did you mean encode\?"):
            getattr(POOL, name)
    node = graph.MPSCNNSoftMaxNode(graph.MPSNNImageNode())
    with pytest.raises(AttributeError, match=r"training_graph\(...\) returns an object whose gradient_image\(image\)"):
        _ = node.gradient_image  # type: ignore[attr-defined]
    with pytest.raises(AttributeError) as raised:
        _ = node.resultImage  # type: ignore[attr-defined]
    assert str(pickle.loads(pickle.dumps(raised.value))).endswith("did you mean result_image?")


PUBLIC = [getattr(module, name) for module in (mps, graph) for name in module.__all__]
CLASSES = [kind for kind in PUBLIC if isinstance(kind, type) and not issubclass(kind, (enum.Enum, BaseException))]


def camel(name: str) -> str:
    """Return a name in Apple's spelling."""
    head, *rest = name.split("_")
    return head + "".join(map(str.title, rest))


def in_words(*functions: Any) -> list[str]:
    """Return the arguments that are given by a keyword, and have another name in Apple's spelling."""
    parameters = (one for function in functions for one in inspect.signature(function).parameters.values())
    by_keyword = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    found = dict.fromkeys(one.name for one in parameters if one.kind in by_keyword)
    return [name for name in found if camel(name) != name.lower() and name[0] != "_"]


def test_every_constructor_hints_at_a_keyword_in_swifts_spelling() -> None:
    """Also where an argument is then missing."""
    found = set()
    for kind in CLASSES:
        if inspect.isabstract(kind) or vars(kind).get("_abstract"):
            continue
        for name in in_words(kind, kind.__init__):
            with pytest.raises(TypeError, match=f"^{camel(name)} is no .*: did you mean {name}\\?"):
                kind(**{camel(name): None})
            found.add(kind)
    assert {mps.MPSImageDescriptor, mps.MPSImage, mps.MPSCNNLossLabels, mps.MPSCNNConvolutionDescriptor} <= found
    assert len(found) > 120


def test_every_method_hints_at_a_keyword_in_swifts_spelling() -> None:
    found = set()
    for kind in (one for one in CLASSES if not inspect.isabstract(one)):
        for attribute in (name for name in dir(kind) if name[0] != "_"):
            method = getattr(kind, attribute)
            if not inspect.isroutine(method) or not str(getattr(method, "__module__", "")).startswith("mpsref"):
                continue
            method = getattr(OBJECTS.get(kind.__name__, kind), attribute)
            for name in in_words(method):
                with pytest.raises(TypeError, match=f"^{camel(name)} is no argument of .*: did you mean {name}\\?"):
                    method(**{camel(name): None})
                found.add(method.__qualname__)
    assert len(found) > 100
    assert {"MPSCNNConvolutionWeightsAndBiasesState", "MPSImage"} <= {name.partition(".")[0] for name in found}


def test_public_functions_hint_at_a_keyword_in_swifts_spelling() -> None:
    functions = [one for one in PUBLIC if inspect.isfunction(one)]
    assert graph.training_graph in functions
    for function in functions:
        for name in in_words(function):
            with pytest.raises(TypeError, match=f"^{camel(name)} is no argument of .*: did you mean {name}\\?"):
                function(**{camel(name): None})
