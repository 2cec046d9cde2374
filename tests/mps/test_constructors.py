"""Constructors that are made from the arguments of a class: signatures, documentation, errors, what is saved."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import pytest

from mpsref import mps
from mpsref.mps import graph
from mpsref.mps.core.kernel import MPSKernel
from mpsref.mps.core.properties import Argument

CLASSES = [getattr(module, name) for module in (mps, graph) for name in module.__all__]
DESCRIBED = [one for one in CLASSES if isinstance(one, type) and issubclass(one, (MPSKernel, graph.MPSNNFilterNode))]
GENERATED = [
    kind
    for kind in DESCRIBED
    if issubclass(kind, MPSKernel) and inspect.unwrap(kind.__init__).__code__.co_filename == "<string>"
]

PADDING = '"padding":{"class":"MPSNNDefaultPadding","properties":{"edge_mode":null,"padding_method":16},"version":1}'
FORMS = {
    "MPSNNPad(padding_size_after=MPSImageCoordinate(x=0, y=1, channel=4), fill_value=0.5, fill_value_array=(1.0,))": (
        '{"class":"MPSNNPad","properties":{"clip_rect":null,"destination_feature_channel_offset":0,"edge_mode":0,'
        '"fill_value":0.5,"fill_value_array":[1.0],"offset":[0,0,0],' + PADDING + ',"padding_size_after":[0,1,4],'
        '"padding_size_before":[0,0,0],"source_feature_channel_max_count":null,"source_feature_channel_offset":0},'
        '"version":1}'
    ),
    "MPSCNNDropout(keep_probability=0.5, seed=7, mask_stride_in_pixels=MTLSize(width=1, height=0, depth=1), sequence=3)": (  # noqa: E501
        '{"class":"MPSCNNDropout","properties":{"clip_rect":null,"destination_feature_channel_offset":0,"edge_mode":0,'
        '"keep_probability":0.5,"mask_stride_in_pixels":[1,0,1],"offset":[0,0,0],' + PADDING + ',"seed":7,"sequence":3,'
        '"source_feature_channel_max_count":null,"source_feature_channel_offset":0},"version":1}'
    ),
}  # fmt: skip
"""``repr`` of kernels, and what they are saved as, byte by byte."""


def test_there_are_generated_constructors_and_documentation() -> None:
    assert len(GENERATED) > 30
    undocumented = [kind.__name__ for kind in DESCRIBED if "Parameters\n---" not in inspect.cleandoc(kind.__doc__)]
    assert len(undocumented) < 40
    assert not {kind.__name__ for kind in GENERATED} & set(undocumented)


def test_the_signature_has_the_arguments_of_the_class() -> None:
    for kind in GENERATED:
        bases = [vars(base).items() for base in reversed(kind.__mro__)]
        arguments = {name: one for base in bases for name, one in base if isinstance(one, Argument)}
        assert list(inspect.signature(kind).parameters) == [*arguments, "backend", "properties"], kind.__name__


ABSTRACT = graph.MPSNNFilterNode, graph.MPSNNTrainableNode, graph.MPSCNNNeuronNode
"""Base classes: the first two have a ``__new__`` that refuses them, the third one has the parameters of all types."""


def test_help_shows_the_parameters_of_the_signature() -> None:
    for kind in (one for one in DESCRIBED if one not in ABSTRACT):
        parameters = list(inspect.signature(kind).parameters)
        assert "kwargs" not in parameters, kind.__name__
        section = inspect.cleandoc(kind.__doc__).partition("Parameters\n----------\n")[2].split("\n\n")[0]
        documented = re.findall(r"\w+", " ".join(re.findall(r"^(\S[^:\n]*)", section, re.MULTILINE)))
        assert documented in ([], parameters), kind.__name__


@pytest.mark.parametrize("form", FORMS)
def test_repr_and_json_are_stable(form: str) -> None:
    kernel = eval(form, vars(mps) | {name: getattr(mps, name) for name in mps.__all__})
    assert repr(kernel) == form
    assert kernel.to_json() == FORMS[form]
    assert repr(type(kernel).from_json(kernel.to_json())) == form


def test_python_reports_missing_and_unknown_arguments() -> None:
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'kernel_height'"):
        mps.MPSCNNPoolingMax(3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"takes from 3 to 5 positional arguments but 6 were given"):
        mps.MPSCNNPoolingMax(1, 2, 3, 4, 5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="strides is no property of MPSCNNPoolingMax that can be set"):
        mps.MPSCNNPoolingMax(3, 3, strides=2)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match=r"^kernel_height is 0; it must be an integer >= 1$"):
        mps.MPSCNNPoolingMaxGradient(3, 0)


class Nested(mps.MPSNNPadding):
    """A policy that encodes with the kernel that asks it."""

    def __init__(self, again: Any) -> None:
        self.again = again

    def destination_image_descriptor_for_source_images(self, images: Any, states: Any, kernel: Any, size: Any) -> Any:
        kernel.padding, padding = mps.MPSNNDefaultPadding(), kernel.padding
        self.again(kernel)
        kernel.padding = padding
        return size


X, T = (np.arange(first, first + 8, dtype=np.float32).reshape(1, 2, 2, 2) for first in (0, 3))
ONES = np.ones((1, 2, 2, 2), np.uint8)


@pytest.mark.parametrize(
    ("make", "encode", "other"),
    [
        (
            lambda: mps.MPSCNNDropout(0.5, 0, (1, 1, 1)),
            lambda one: one.encode(X, mask=ONES),
            lambda one: one.encode(X, mask=0 * ONES),
        ),
        (
            lambda: mps.MPSNNForwardLoss(mps.MPSCNNLossDescriptor("meansquarederror", "none")),
            lambda one: one.encode(X, T),
            lambda one: one.encode(X, 0 * T),
        ),
        (
            lambda: mps.MPSCNNLoss(mps.MPSCNNLossDescriptor("meansquarederror", "none")),
            lambda one: one.encode(X, mps.MPSCNNLossLabels((2, 2, 2), T)),
            lambda one: one.encode(X, mps.MPSCNNLossLabels((2, 2, 2), 0 * T)),
        ),
    ],
    ids=["dropout", "forward loss", "loss"],
)
def test_a_kernel_may_be_encoded_during_an_encode_of_its_own(make: Any, encode: Any, other: Any) -> None:
    expected, kernel = encode(make()), make()
    kernel.padding = Nested(other)
    np.testing.assert_array_equal(encode(kernel), expected)
    assert not np.array_equal(other(make()), expected)


def test_the_forms_of_a_method_show_what_it_takes() -> None:
    parameters = ["self", "primary_image", "secondary_image", "source_states", "destination_image"]
    form = mps.MPSCNNAdd.result_state_batch_for_primary_image
    assert (form.__name__, list(inspect.signature(form).parameters)) == (
        "result_state_batch_for_primary_image",
        parameters,
    )
    form = mps.MPSCNNAdd.temporary_result_state_batch_for_command_buffer
    assert form.__name__ == "temporary_result_state_batch_for_command_buffer"
    assert list(inspect.signature(form).parameters) == [parameters[0], "command_buffer", *parameters[1:]]
    assert "result_state_batch_for_primary_image" in (form.__doc__ or "")
