"""Functions of MPSGraph through PyObjC, over a fake that refuses what the bridge or MPSGraph does not take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mpsref.errors import UnsupportedError
from mpsref.mpsgraph import Pooling2DOpDescriptor
from mpsref.mpsgraph.graph import FUNCTIONS
from mpsref_apple import mpsgraph
from mpsref_apple.fake import NSArray, Refusal
from mpsref_apple.fake_graph import NSNumber
from mpsref_apple.probe import run
from tests.mpsgraph.test_functions import CALLS


@pytest.fixture
def device() -> Iterator[Any]:
    with run.fake() as (_, device):
        yield device


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_has_a_call(device: Any, name: str) -> None:
    """By its selector, with the types of its arguments, in one graph."""
    wanted = FUNCTIONS[name].call(**CALLS[name])
    for found, expected in zip(
        mpsgraph.call(name, **CALLS[name]), wanted if isinstance(wanted, tuple) else (wanted,), strict=True
    ):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_what_a_selector_does_not_take_is_refused(device: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"scale_offset is given to resize_bilinear; MPSGraph's resizeBilinear"):
        mpsgraph.call("resize_bilinear", **CALLS["resize_bilinear"], scale_offset=[1, 1, 0, 0])


def test_shapes_are_sequences_of_numbers_and_no_lists(device: Any) -> None:
    graph = mpsgraph.GraphRun(run.runtime.in_use())
    shape = graph.tensor(np.zeros((2, 3), np.float32)).shape()
    assert isinstance(shape, NSArray)
    assert not isinstance(shape, list)
    assert {type(n) for n in shape} == {NSNumber}
    assert [int(n) for n in shape] == [2, 3]


def test_the_table_has_the_selectors_of_the_functions() -> None:
    methods = mpsgraph.names()["classes"]["MPSGraph"]["methods"]
    for name, one in FUNCTIONS.items():
        kinds = [kind for _, kind in methods[one.selector]["arguments"]]
        assert len(kinds) == len(mpsgraph.parameters_of(name)) + 1, name
        assert kinds[-1] == "NSString?", name
        tensors = {key for key, kind in zip(mpsgraph.parameters_of(name), kinds, strict=False) if "Tensor" in kind}
        assert set(one.tensors) <= {one for one in tensors if "Layout" not in one}, name


def call(graph: Any, method: str, *arguments: Any) -> Any:
    return getattr(graph.graph, method)(*arguments)


FLOAT32 = 268435488


@pytest.mark.parametrize(
    ("method", "arguments", "text"),
    [
        ("placeholderWithShape_dataType_name_", ((2.5,), FLOAT32, None), "float"),
        ("placeholderWithShape_dataType_name_", (2, FLOAT32, None), "it must be a list of NSNumber"),
        ("placeholderWithShape_dataType_name_", ([2], 7, None), "it must be MPSDataType"),
        ("constantWithData_shape_dataType_", (b"1234", [2], FLOAT32), "the data have 4 bytes"),
        ("constantWithData_shape_dataType_", (np.zeros(2), [2], FLOAT32), "it must be NSData"),
        ("reLUWithTensor_name_", (np.zeros(2), None), "it must be MPSGraphTensor"),
        ("reLUWithTensor_name_", (None, None), "it must be MPSGraphTensor"),
        ("reLUWithTensor_name_", (), "takes 2 arguments, not 0"),
        ("reLUWithTensor_", (), "no selector reLUWithTensor:"),
    ],
)
def test_a_wrong_call_is_refused(device: Any, method: str, arguments: tuple[Any, ...], text: str) -> None:
    with pytest.raises((Refusal, TypeError), match=text):
        call(mpsgraph.GraphRun(run.runtime.in_use()), method, *arguments)


def test_feeds_are_tensor_data_by_tensors(device: Any) -> None:
    graph = mpsgraph.GraphRun(run.runtime.in_use())
    x = graph.tensor(np.ones(2, np.float32))
    y = graph.graph.reLUWithTensor_name_(x, None)
    graph.feeds[x] = np.ones(2, np.float32)
    with pytest.raises(Refusal, match="it must be MPSGraphTensorDataDictionary"):
        graph.values([y])


def test_a_buffer_has_the_size_of_its_tensor(device: Any) -> None:
    graph = mpsgraph.GraphRun(run.runtime.in_use())
    with pytest.raises(Refusal, match="the data have 8 bytes"):
        graph.data(graph.buffer(np.ones(2, np.float32)), np.ones(3, np.float32))


def test_a_planted_result_is_read(device: Any) -> None:
    device.planted["MPSGraph", "relu"] = lambda values: values + 1
    assert mpsgraph.call("relu", tensor=np.array([1, -1], np.float32))[0].tolist() == [2, 1]


def test_a_planted_shape_is_read(device: Any) -> None:
    device.planted["MPSGraph", "shape of max_pooling_2d"] = lambda shape: shape + 1
    of = Pooling2DOpDescriptor(kernel_width=1, kernel_height=1, stride_in_x=1, stride_in_y=1, data_layout="NHWC")
    assert mpsgraph.result_shape("max_pooling_2d", source=np.ones((1, 1, 1, 1), np.float32), descriptor=of) == [2] * 4
