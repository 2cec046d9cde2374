"""Data sources: the sequence of calls, what is copied and rounded, 8-bit weights, and everything that can be wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpsref import mps
from mpsref.arguments.arrays import Array
from mpsref.errors import OrderError, ShapeError
from mpsref.mps.convolution_data_source import load
from tests.mps.convolution_layers import NotedSource, PlainSource

ONE_TO_ONE = mps.MPSCNNConvolutionDescriptor(3, 1, 1, 1)
SEQUENCE = [
    "load", "data_type", "descriptor", "weights", "bias_terms", "kernel_weights_data_type", "label", "purge",
]  # fmt: skip
KINDS: list[Any] = [
    getattr(mps, f"MPSCNN{name}{end}")
    for name in ("Convolution", "ConvolutionTranspose", "FullyConnected")
    for end in ("", "Gradient")
]


def weights_of(kernel: Any) -> Array:
    """The weights in force."""
    state = kernel.export_weights_and_biases()
    state.synchronize()
    weights: Array = state.weights
    return weights


@pytest.mark.parametrize("kind", KINDS)
def test_every_kernel_calls_the_methods_in_one_order_and_once(kind: Any) -> None:
    source = NotedSource(ONE_TO_ONE, [1, 2, 3], [0.5])
    kernel = kind(source)
    assert source.calls == SEQUENCE
    source.calls.clear()
    kernel.reload_weights_and_biases_from_data_source()
    assert source.calls == SEQUENCE
    source.calls.clear()
    assert kernel.label is None
    assert kernel.data_source is source
    assert "NotedSource" in repr(kernel)
    assert source.calls == []


def test_the_whole_order_with_8_bit_weights() -> None:
    names: list[str] = []

    class Quantized(PlainSource):
        def __getattribute__(self, name: str) -> Any:
            value = super().__getattribute__(name)
            if callable(value) and not name.startswith("__"):
                return lambda: (names.append(name), value())[1]
            return value

    source = Quantized(
        ONE_TO_ONE, np.zeros(3, np.uint8), weights_quantization_type=1, weights_layout="ohwi",
        ranges_for_uint8_kernel=np.zeros((1, 2), np.float32), kernel_weights_data_type=np.float16,
    )  # fmt: skip
    mps.MPSCNNConvolution(source)
    assert names == [
        "load", "data_type", "descriptor", "weights", "bias_terms", "weights_quantization_type",
        "ranges_for_uint8_kernel", "weights_layout", "kernel_weights_data_type", "label", "purge",
    ]  # fmt: skip


FAILURES = [
    ({"load": False}, OrderError, r"load\(\) returned False; it must return True"),
    ({"load": None}, OrderError, r"load\(\) returned None"),
    ({"load": OSError("no such file")}, OSError, "no such file"),
    ({"data_type": "float64"}, ValueError, "returned 'float64'; it must be one of 'uint8', 'float16', 'float32'"),
    ({"data_type": "float"}, ValueError, r"data_type\(\) returned 'float'"),
    ({"data_type": None}, ValueError, r"data_type\(\) returned None"),
    ({"data_type": "float16"}, TypeError, r"weights\(\) has dtype float32; it must be float16"),
    ({"descriptor": None}, TypeError, r"descriptor\(\) is of type NoneType"),
    ({"weights": np.zeros(4, np.float32)}, ShapeError, r"has shape \(4,\); it must be \(1, 1, 3, 1\) or flat with 3"),
    ({"weights": np.zeros((1, 1, 1, 3), np.float32)}, ShapeError, "this looks like .out, in, height, width."),
    ({"weights": np.zeros(3)}, TypeError, r"weights\(\) has dtype float64; it must be float32: .*astype"),
    ({"weights": None}, TypeError, r"weights\(\) has dtype object"),
    ({"bias_terms": np.zeros(2, np.float32)}, ShapeError, r"bias_terms\(\) has shape \(2,\); it must be \(1,\)"),
    ({"bias_terms": np.zeros(1, np.float16)}, TypeError, r"bias_terms\(\) has dtype float16; it must be float32"),
    ({"kernel_weights_data_type": "float64"}, ValueError, r"kernel_weights_data_type\(\) returned 'float64'"),
    ({"label": 3}, TypeError, r"label\(\) is 3"),
]  # fmt: skip


@pytest.mark.parametrize(("answers", "error", "words"), FAILURES)
def test_a_data_source_that_fails_is_purged_and_leaves_the_old_weights(
    answers: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        mps.MPSCNNConvolution(NotedSource(ONE_TO_ONE, [1, 2, 3], [0.5], **answers))
    source = NotedSource(ONE_TO_ONE, [1, 2, 3], [0.5])
    kernel = mps.MPSCNNConvolution(source)
    before = kernel.copy()
    source.calls.clear()
    source.answers = answers
    with pytest.raises(error, match=words):
        kernel.reload_weights_and_biases_from_data_source()
    assert (source.calls[0], source.calls[-1], source.calls.count("purge")) == ("load", "purge", 1)
    assert weights_of(kernel).ravel().tolist() == [1, 2, 3]
    source.answers = {}
    assert kernel == before


def test_a_method_that_is_missing_is_named_before_anything_is_called() -> None:
    class Half:
        def load(self) -> bool:
            raise AssertionError("must not be called")

    with pytest.raises(TypeError, match=r"Half, which lacks the method.s. data_type, descriptor, weights, bias_terms"):
        mps.MPSCNNConvolution(Half())
    with pytest.raises(TypeError, match="ndarray, which lacks"):
        mps.MPSCNNConvolution(np.zeros(3))


def test_data_is_copied_before_purge() -> None:
    source = PlainSource(ONE_TO_ONE, np.array([1, 2, 3], np.float32), np.array([4], np.float32))

    def purge() -> None:
        source._weights[:], source._biases[:] = 9, 9

    source.purge = purge
    kernel = mps.MPSCNNConvolution(source)
    assert kernel.encode(np.ones((1, 1, 1, 1), np.float32)).item() == 2 + 4


def test_later_changes_wait_for_a_reload() -> None:
    source = mps.ArrayConvolutionDataSource(ONE_TO_ONE, [1, 2, 3])
    kernel = mps.MPSCNNConvolution(source)
    source.weights_array[:] = 7
    assert weights_of(kernel).ravel().tolist() == [1, 2, 3]
    kernel.reload_weights_and_biases_from_data_source()
    assert weights_of(kernel).ravel().tolist() == [7, 7, 7]


@pytest.mark.parametrize("shape", [(6,), (2, 1, 3, 1)])
def test_weights_may_be_flat_or_shaped(shape: tuple[int, ...]) -> None:
    descriptor = mps.MPSCNNConvolutionDescriptor(3, 1, 1, 2)
    weights = np.arange(6, dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(load(PlainSource(descriptor, weights)).weights.ravel(), range(6))


@pytest.mark.parametrize("shape", [(6,), (2, 1, 3), (2, 1, 3, 1)])
def test_depthwise_weights_have_three_axes(shape: tuple[int, ...]) -> None:
    descriptor = mps.MPSCNNDepthWiseConvolutionDescriptor(3, 1, 1, 2)
    loaded = load(PlainSource(descriptor, np.arange(6, dtype=np.float32).reshape(shape)))
    assert loaded.weights.tolist() == [[[0, 1, 2]], [[3, 4, 5]]]
    with pytest.raises(ShapeError, match=r"has shape \(2, 1, 1, 3\)"):
        load(PlainSource(descriptor, np.zeros((2, 1, 1, 3), np.float32)))


def test_strange_layouts_in_memory_are_read_right() -> None:
    descriptor = mps.MPSCNNConvolutionDescriptor(3, 2, 1, 1)
    expected = np.arange(6, dtype=np.float32).reshape(1, 2, 3, 1)
    for weights in (np.asfortranarray(expected), expected.astype(">f4"), np.repeat(expected, 2, axis=0)[::2]):
        loaded = load(PlainSource(descriptor, weights)).weights
        np.testing.assert_array_equal(loaded, expected)
        assert loaded.dtype == np.float32
        assert loaded.flags.c_contiguous


def test_kernel_weights_are_float16_where_nothing_else_is_said() -> None:
    tenth = np.full(3, 0.1, np.float32)
    plain, biases = PlainSource(ONE_TO_ONE, tenth, tenth[:1]), np.float32(0.1)
    assert load(plain).weights.ravel().tolist() == [0.0999755859375] * 3
    assert load(plain).biases == biases, "biases are not rounded"
    as_said = PlainSource(ONE_TO_ONE, tenth, kernel_weights_data_type="float32")
    assert load(as_said).weights.ravel().tolist() == [biases] * 3
    assert load(mps.ArrayConvolutionDataSource(ONE_TO_ONE, tenth)).weights.ravel().tolist() == [biases] * 3
    half = mps.ArrayConvolutionDataSource(ONE_TO_ONE, tenth, None, np.float16)
    assert load(half).weights.ravel().tolist() == [0.0999755859375] * 3
    assert half.weights_array.tolist() == [[[[biases]] * 3]]


@pytest.mark.parametrize("value", [1 + 2**-11, 1 + 3 * 2**-11, 65519.0, 65520.0, 2.0**-25, -0.0])
def test_rounding_is_to_nearest_even(value: float) -> None:
    expected = {1 + 2**-11: 1.0, 1 + 3 * 2**-11: 1 + 2**-9, 65519.0: 65504.0, 65520.0: np.inf, 2.0**-25: 0.0}
    loaded = load(PlainSource(ONE_TO_ONE, np.full(3, value, np.float32))).weights
    assert loaded.ravel().tolist() == [expected.get(value, value)] * 3


@pytest.mark.parametrize("dtype", ["float16", "uint8"])
def test_float16_and_8_bit_weights_need_a_float16_kernel(dtype: str) -> None:
    more: dict[str, Any] = {"weights_quantization_type": 2, "lookup_table_for_uint8_kernel": np.zeros(256, np.float32)}
    weights = np.ones(3, dtype)
    assert load(PlainSource(ONE_TO_ONE, weights, kernel_weights_data_type="float16", **more)).kernel_type == "float16"
    assert load(PlainSource(ONE_TO_ONE, weights, **more)).kernel_type == "float16"
    with pytest.raises(ValueError, match=f"returned 'float32'; with {dtype} weights it must be 'float16'"):
        load(PlainSource(ONE_TO_ONE, weights, kernel_weights_data_type="float32", **more))


def test_linear_8_bit_weights() -> None:
    descriptor = mps.MPSCNNConvolutionDescriptor(3, 1, 1, 2)
    ranges = np.array([[-1, 1], [2, 4]], np.float32)
    codes = np.array([0, 64, 255, 0, 51, 255], np.uint8)
    loaded = load(PlainSource(descriptor, codes, weights_quantization_type=1, ranges_for_uint8_kernel=ranges)).weights
    expected = np.array([-1, -0.4980392156862745, 1, 2, 2.4, 4]).astype(np.float16)
    np.testing.assert_array_equal(loaded.ravel(), expected)


@given(st.integers(0, 255), st.floats(-100, 100, width=32), st.floats(-100, 100, width=32))
def test_linear_is_the_documented_formula(code: int, low: float, high: float) -> None:
    source = PlainSource(
        ONE_TO_ONE, np.full(3, code, np.uint8), weights_quantization_type="linear",
        ranges_for_uint8_kernel=np.array([[low, high]], np.float32),
    )  # fmt: skip
    assert load(source).weights[0, 0, 0, 0] == np.float16(code / 255 * (high - low) + low)


def test_8_bit_weights_with_a_table() -> None:
    table = np.arange(256, dtype=np.float32) * 2
    codes = np.array([0, 7, 255], np.uint8)
    source = PlainSource(
        ONE_TO_ONE, codes, weights_quantization_type="lookuptable", lookup_table_for_uint8_kernel=table
    )
    assert load(source).weights.ravel().tolist() == [0, 14, 510]


def test_8_bit_depthwise_weights() -> None:
    descriptor = mps.MPSCNNDepthWiseConvolutionDescriptor(1, 1, 1, 2)
    ranges = np.array([[0, 255], [0, 510]], np.float32)
    source = PlainSource(
        descriptor, np.array([3, 4], np.uint8), weights_quantization_type=1, ranges_for_uint8_kernel=ranges
    )
    assert load(source).weights.ravel().tolist() == [3, 8]


RANGES, TABLE = "ranges_for_uint8_kernel", "lookup_table_for_uint8_kernel"
QUANTIZATION_FAILURES: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({}, ValueError, "uint8 weights and no quantization"),
    ({"weights_quantization_type": 0}, ValueError, "uint8 weights and no quantization"),
    ({"weights_quantization_type": 3}, ValueError, r"weights_quantization_type\(\) is 3"),
    ({"weights_quantization_type": 1}, ValueError, r"no ranges_for_uint8_kernel\(\); .* float32 of shape \(1, 2\)"),
    ({"weights_quantization_type": 1, RANGES: None}, ValueError, "no ranges_for_uint8_kernel"),
    ({"weights_quantization_type": 2, RANGES: np.zeros((1, 2), np.float32)}, ValueError, "no lookup_table"),
    ({"weights_quantization_type": 1, RANGES: np.zeros((2, 1), np.float32)}, ShapeError, r"shape \(2, 1\)"),
    ({"weights_quantization_type": 1, RANGES: np.zeros((1, 2))}, TypeError, "dtype float64"),
    ({"weights_quantization_type": 2, TABLE: np.zeros(255, np.float32)}, ShapeError, r"\(255,\)"),
]  # fmt: skip


@pytest.mark.parametrize(("extra", "error", "words"), QUANTIZATION_FAILURES)
def test_8_bit_weights_without_their_table(extra: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        load(PlainSource(ONE_TO_ONE, np.zeros(3, np.uint8), **extra))


def test_the_layout_is_ohwi() -> None:
    weights = np.zeros(3, np.float32)
    assert load(PlainSource(ONE_TO_ONE, weights, weights_layout=0)).weights.shape == (1, 1, 3, 1)
    with pytest.raises(ValueError, match=r"weights_layout\(\) is 1; it must be one of"):
        load(PlainSource(ONE_TO_ONE, weights, weights_layout=1))


def test_a_batch_normalization_is_folded_before_the_rounding() -> None:
    descriptor = mps.MPSCNNConvolutionDescriptor(3, 1, 1, 1)
    descriptor.set_batch_normalization_parameters_for_inference([3], [3.9999], [2], [1], 1e-4)
    loaded = load(mps.ArrayConvolutionDataSource(descriptor, [1, 2, 3], [0.5]))
    assert loaded.biases is not None
    assert (loaded.weights.ravel().tolist(), loaded.biases.tolist()) == ([1, 2, 3], [-1.5])
    descriptor.set_batch_normalization_parameters_for_inference(gamma=[3])
    folded = load(PlainSource(descriptor, np.full(3, 0.1, np.float32)))
    assert folded.weights[0, 0, 0, 0] == np.float16(np.float64(np.float32(0.1)) * 3) != 3 * np.float16(0.1)
    assert folded.biases is not None
    assert folded.biases.tolist() == [0.0]
    descriptor.set_batch_normalization_parameters_for_inference(gamma=[1 + 2**-11 + 2**-40], epsilon=0.0)
    once = load(PlainSource(descriptor, np.ones(3, np.float32)))
    assert once.weights[0, 0, 0, 0] == 1 + 2**-10, "a stop at float32 would make a tie, and 1 of it"


def test_the_neuron_comes_after_the_batch_normalization() -> None:
    descriptor = mps.MPSCNNConvolutionDescriptor(1, 1, 1, 1)
    descriptor.fused_neuron_descriptor = mps.MPSNNNeuronDescriptor(mps.MPSCNNNeuronType.ReLU, 0.5)
    descriptor.set_batch_normalization_parameters_for_inference(mean=[4], variance=[1], epsilon=0.0)
    y = mps.MPSCNNConvolution(mps.ArrayConvolutionDataSource(descriptor, [1])).encode(
        np.array([[[[2], [6]]]], np.float32)
    )
    assert y.ravel().tolist() == [-1, 2]


@pytest.mark.parametrize("bad", ["abc", [["a"]], None, [1j], [True], [[1], [1, 2]]])
def test_array_data_source_takes_numbers(bad: Any) -> None:
    with pytest.raises(TypeError, match=r"^weights "):
        mps.ArrayConvolutionDataSource(ONE_TO_ONE, bad)
    if bad is not None:
        with pytest.raises(TypeError, match=r"^biases "):
            mps.ArrayConvolutionDataSource(ONE_TO_ONE, [1, 2, 3], bad)


def test_array_data_source_holds_copies() -> None:
    weights, biases = np.arange(3.0), np.ones(1)
    source = mps.ArrayConvolutionDataSource(ONE_TO_ONE, weights, biases, label="first")
    weights[:], biases[:] = 9, 9
    assert (source.weights_array.ravel().tolist(), source.bias_terms(), source.label()) == ([0, 1, 2], [1], "first")
    assert source.weights_array.shape == (1, 1, 3, 1)
    assert source.weights_array.dtype == np.float32
    assert mps.ArrayConvolutionDataSource(ONE_TO_ONE, weights).bias_terms() is None
    with pytest.raises(TypeError, match="descriptor is of type ndarray"):
        mps.ArrayConvolutionDataSource(weights, weights)
