"""Graphs with the calls of Apple's class: formats that are set later, encodes, one result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mpsref import mps
from mpsref.errors import OrderError, UnsupportedError
from mpsref.mps import MPSImageFeatureChannelFormat, graph

Float16, Float32 = MPSImageFeatureChannelFormat.Float16, MPSImageFeatureChannelFormat.Float32
X = np.linspace(-3, 4, 2 * 4 * 4 * 3, dtype=np.float32).reshape(2, 4, 4, 3)


def network(**properties: Any) -> tuple[graph.MPSNNGraph, graph.MPSNNImageNode]:
    x = graph.MPSNNImageNode("x")
    relu = graph.MPSCNNNeuronReLUNode(x, a=0.1, label="relu")
    relu.result_image.export_from_graph = True
    pooled = graph.MPSCNNPoolingAverageNode(relu.result_image, filter_size=2, label="pool")
    return graph.MPSNNGraph(pooled.result_image, **properties), relu.result_image


@pytest.mark.parametrize("given", [Float16, 3, "float16"])
def test_the_format_can_be_set_later(given: Any) -> None:
    compiled, _ = network()
    assert compiled.format is Float32
    wide = compiled.encode([X])
    compiled.format = given
    assert compiled.format is Float16
    narrow = compiled.encode([X])
    assert (wide.dtype, narrow.dtype) == (np.float32, np.float16)
    np.testing.assert_array_equal(narrow, network(format=given)[0].encode([X]))
    compiled.format = "float32"
    np.testing.assert_array_equal(compiled.encode([X]), wide)


def test_illegal_formats_change_nothing() -> None:
    compiled, _ = network(backend="cpu")
    for bad, error in (("half", ValueError), (MPSImageFeatureChannelFormat.Unorm8, UnsupportedError), (1.5, TypeError),
                       ("float64", TypeError)):  # fmt: skip
        with pytest.raises(error, match="format"):
            compiled.format = bad
        assert compiled.format is Float32
        assert compiled.encode([X]).dtype == np.float32
    exact, _ = network(backend="reference")
    exact.format = "float64"
    assert exact.encode([X]).dtype == np.float64


def test_the_format_of_an_image_is_kept() -> None:
    compiled, image = network()
    image.format = "float16"
    compiled = graph.MPSNNGraph([image, *compiled.program.result_images])
    assert [one.dtype for one in compiled.run([X]).images] == [np.float16, np.float32]
    compiled.format = Float16
    assert [one.dtype for one in compiled.run([X]).images] == [np.float16, np.float16]


def test_encode_returns_the_first_result_and_fills_lists() -> None:
    compiled, image = network()
    result = compiled.run([X])
    images: list[Any] = ["before"]
    np.testing.assert_array_equal(compiled.encode([X], None, images), result.image)
    assert images[0] == "before"
    np.testing.assert_array_equal(images[1], result.intermediate_images[image])
    one = compiled.encode({"x": mps.MPSImage(X)})
    assert isinstance(one, mps.MPSImage)
    batch = compiled.encode_batch([mps.MPSImageBatch.from_array(X)])
    assert isinstance(batch, mps.MPSImageBatch)
    for encoded in (one.array, batch.to_array()):
        np.testing.assert_array_equal(encoded, result.image)
    with pytest.raises(TypeError, match="intermediate_images is of type tuple; it must be a list"):
        compiled.encode([X], None, ())  # type: ignore[arg-type]


def test_encode_returns_exported_states() -> None:
    x = graph.MPSNNImageNode("x")
    source = mps.ArrayConvolutionDataSource(
        mps.MPSCNNConvolutionDescriptor(1, 1, 3, 1), np.ones((1, 1, 1, 3), np.float32)
    )
    node = graph.MPSCNNConvolutionNode(x, source, training_style="none")
    node.result_state.export_from_graph = True  # type: ignore[union-attr]
    last = graph.training_graph(graph.MPSNNInitialGradientNode(node.result_image))
    compiled = graph.MPSNNGraph(result_image=last.gradient_image(x), result_image_is_needed=True)
    states: list[Any] = []
    assert compiled.encode([X], None, None, states).shape == X.shape
    assert isinstance(states[0], mps.MPSCNNConvolutionGradientState)
    assert states[0].gradient_for_weights.ravel() == pytest.approx(X.sum((0, 1, 2)), rel=1e-5)


def test_command_buffers_and_completion_handlers() -> None:
    compiled, _ = network()
    buffer = mps.MPSCommandBuffer()
    expected = compiled.encode([X], command_buffer=buffer)
    buffer.commit()
    with pytest.raises(OrderError, match="command_buffer"):
        compiled.encode([X], command_buffer=buffer)
    calls: list[Any] = []
    result = compiled.execute_async([X], lambda image, error: calls.append((image, error)))
    np.testing.assert_array_equal(result, expected)
    ((image, error),) = calls
    assert image is result
    assert error is None
    np.testing.assert_array_equal(compiled.execute_async([X]), expected)
    assert compiled.execute_async([X, X], lambda image, error: calls.append((image, error))) is None
    assert calls[1][0] is None
    assert isinstance(calls[1][1], ValueError)
    with pytest.raises(ValueError, match="source_images"):
        compiled.execute_async([X, X])

    def failing(image: object, error: object) -> None:
        calls.append((image, error))
        raise RuntimeError("of the handler")

    with pytest.raises(RuntimeError, match="of the handler"):
        compiled.execute_async([X], failing)
    assert len(calls) == 3
    with pytest.raises(TypeError, match="completion_handler is of type int"):
        compiled.execute_async([X], 1)  # type: ignore[arg-type]


def test_one_result_or_several() -> None:
    compiled, _ = network()
    (pooled,) = compiled.program.result_images
    assert graph.MPSNNGraph(result_image=pooled).result_image_is_needed
    assert not graph.MPSNNGraph(result_image=pooled, result_image_is_needed=False).result_image_is_needed
    with pytest.raises(TypeError, match="result_image and result_images are both given"):
        graph.MPSNNGraph(pooled, result_image=pooled)
    with pytest.raises(TypeError, match="result_images is of type NoneType"):
        graph.MPSNNGraph()
