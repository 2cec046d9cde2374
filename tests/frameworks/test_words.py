"""Problems in the arguments of frameworks: what these say, and what they leave to other images and sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hypothesis
import numpy as np
import pytest

import mpsref
from mpsref import frameworks, padding
from mpsref.conformance import data, families
from mpsref.conformance.runner import references
from mpsref.errors import UnsupportedError
from mpsref.frameworks import CallArguments, Selection
from mpsref.registry import Operation, Problem

POOLING = (mpsref.PoolingAverage, mpsref.PoolingMax, mpsref.PoolingL2Norm)
FORWARD = [Operation(kind, "forward") for kind in (*POOLING, mpsref.Convolution, mpsref.ConvolutionTranspose)]
NUMBER = 30


def drawn(operation: Operation, number: int = NUMBER) -> list[Problem]:
    """Random problems of an operation, without a neuron."""
    found: list[Problem] = []
    strategy = families.kernel_tests(operation.spec_type).problems(operation.method)

    @hypothesis.settings(max_examples=number, database=None, deadline=None, derandomize=True)
    @hypothesis.given(strategy)
    def collect(problem: Any) -> None:
        if getattr(problem.spec, "neuron", None) is not None:
            problem = replace(problem, spec=replace(problem.spec, neuron=None))
        found.append(problem)

    collect()
    return found


def worded(problem: Any) -> list[Problem]:
    """The problem, and the same with windows where frameworks can place them."""
    spec = problem.spec
    if isinstance(spec, mpsref.ConvolutionTranspose):
        return [problem, replace(problem, spec=replace(spec, offset=0, kernel_offset=tuple(k // 2 for k in spec.size)))]
    if spec.edge_mode == "clamp" and isinstance(spec, mpsref.Convolution):
        return [problem]
    near = replace(spec, offset=tuple(w.center - w.center % 2 for w in spec.windows))
    size = tuple(
        max(1, (length - w.extent) // w.stride + 1 + w.even)
        for w, length in zip(spec.windows, problem.source_shape[1:3], strict=True)
    )
    return [problem, replace(problem, spec=near, output_size=size)]


def onnx_result(problem: Any, words: CallArguments, inputs: tuple[Any, ...]) -> Any:
    """What ONNX Runtime computes with these attributes, in float32."""
    import onnx
    import onnxruntime

    spec = problem.spec
    kinds = {
        mpsref.PoolingAverage: "AveragePool",
        mpsref.PoolingMax: "MaxPool",
    }
    arrays = {"x": np.ascontiguousarray(inputs[0].transpose(0, 3, 1, 2), np.float32)}
    attributes = {
        key: list(map(int, v)) if isinstance(v, tuple) else v if isinstance(v, str) else int(v)
        for key, v in words.keywords.items()
    }
    node = onnx.helper.make_node(kinds[type(spec)], list(arrays), ["y"], **attributes)
    floats = [onnx.helper.make_tensor_value_info(k, onnx.TensorProto.FLOAT, a.shape) for k, a in arrays.items()]
    result = [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)]
    graph = onnx.helper.make_graph([node], "g", floats, result)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 19)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, arrays)[0].transpose(0, 2, 3, 1)


@pytest.mark.parametrize("style", ["auto_pad", "ceil_mode"])
@pytest.mark.parametrize("operation", FORWARD[:2], ids=str)
def test_onnx_in_another_style_agrees(style: Any, operation: Operation) -> None:
    """The backends compute with the arguments of the other frameworks, and with the first style of ONNX."""
    pytest.importorskip("onnxruntime")
    number = chosen = 0
    for problem in (p for one in drawn(operation, NUMBER // 3) for p in worded(one)):
        try:
            words = frameworks.onnx(problem, style)
        except UnsupportedError:
            continue
        number += 1
        chosen += bool(words.keywords.get(style))
        inputs = data.inputs(problem, "float32", "exact", number)
        (expected,) = references(problem, *inputs)
        result = words.crop(onnx_result(problem, words, inputs))
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-4, err_msg=f"{problem} with {words}")
    assert number >= 10
    assert chosen >= 5


def tensorflow_windows(length: int, kernel: int, stride: int, dilation: int, padding: str) -> list[int]:
    """First taps of the windows, by the formulas of TensorFlow's documentation."""
    extent = (kernel - 1) * dilation + 1
    if padding == "VALID":
        return list(range(0, length - extent + 1, stride))
    outputs = -(-length // stride)
    total = max(extent - stride, 0) if length % stride == 0 else max(extent - length % stride, 0)
    return [i * stride - total // 2 for i in range(outputs)]


@pytest.mark.parametrize("operation", FORWARD[:4], ids=str)
def test_tensorflow_has_these_windows(operation: Operation) -> None:
    number = 0
    for problem in (p for one in drawn(operation) for p in worded(one)):
        try:
            words = frameworks.tensorflow(problem)
        except UnsupportedError:
            continue
        number += 1
        for window, length, outputs in zip(
            problem.spec.windows, problem.source_shape[1:3], problem.output_size, strict=True
        ):
            found = tensorflow_windows(length, window.kernel, window.stride, window.dilation, words.keywords["padding"])
            assert [window.start(i) for i in range(outputs)] == found[:outputs]
            inside = [window.divisor(i, length, "clamp") for i in range(outputs)]
            if isinstance(problem.spec, mpsref.PoolingAverage):
                ring = problem.spec.zero_pad[problem.spec.windows.index(window)]
                assert [window.divisor(i, length, problem.spec.edge_mode, ring) for i in range(outputs)] == inside
    assert number >= 10 or operation.spec_type is mpsref.PoolingL2Norm


def test_tensorflow_transposed_is_the_gradient_of_its_convolution() -> None:
    spec = mpsref.ConvolutionTranspose(3, 2, kernel_offset=(-1, -1))
    problem: Any = spec.problems["forward"](spec, (1, 4, 4, 2), 3, (8, 8))
    assert padding.tensorflow((8, 8), 3, 2).offset == problem.convolution.spec.offset
    words = frameworks.tensorflow(problem)
    assert words.keywords["padding"] == "SAME"
    assert words.keywords["output_shape"] == (1, 8, 8, 3)


@pytest.mark.parametrize("kind", POOLING)
def test_canonical_gradient(kind: Any) -> None:
    moved = 0
    for problem in drawn(Operation(kind, "gradient")):
        g, *x = data.inputs(problem, "float64", "exact", 5)
        (expected,) = references(problem, g, *x)
        simple = frameworks.canonical(problem)
        if simple is None:
            assert not expected.any()
            continue
        moved += simple != problem
        (full,) = references(simple, frameworks.counted(problem, g), *x)
        np.testing.assert_allclose(problem.place(full), expected, atol=1e-9)
    assert moved > NUMBER // 5  # windows by the arguments of frameworks are not moved


@pytest.mark.parametrize("operation", FORWARD[:4], ids=str)
def test_grown_image_serves_any_geometry(operation: Operation) -> None:
    """On the grown image the windows begin at 0 and end with it: the reference computes the same there."""
    copies = 0
    for problem in drawn(operation):
        x, *others = data.inputs(problem, "float64", "exact", 3)
        image = frameworks.with_explicit_padding(problem)
        grown = image.copy(x)
        copies += grown is not x
        inside = frameworks.without_padding(problem)
        assert inside.source_shape == grown.shape
        assert frameworks.pytorch(inside).crop(np.empty((1, *problem.output_size, 1))).shape[1:3] == problem.output_size
        (result,) = references(inside, grown, *others)
        if isinstance(problem.spec, mpsref.PoolingAverage):
            result = frameworks.divided(problem, result * np.prod(problem.spec.kernel_size))
        np.testing.assert_allclose(result, references(problem, x, *others)[0], atol=1e-9)
        g = np.random.default_rng(0).standard_normal(grown.shape)
        assert np.vdot(g, grown) == pytest.approx(np.vdot(image.adjoint(g), x))
    assert copies > NUMBER // 4


def test_copy_keeps_the_order_in_memory() -> None:
    x = np.arange(120.0).reshape(2, 3, 4, 5).transpose(0, 2, 3, 1)
    assert np.array_equal(Selection(np.arange(4), np.arange(5), (4, 5)).copy(x), x)
    grown = Selection(np.array([-1, 0, 3]), np.array([1, 1]), (4, 5)).copy(x, fill=np.array([7.0, 8, 9]))
    assert grown.transpose(0, 3, 1, 2).flags.c_contiguous
    assert grown[0, 0, 0].tolist() == [7, 8, 9]
    assert np.array_equal(grown[:, 1:], x[:, [0, 3]][:, :, [1, 1]])


def test_transposed_result_is_a_part_of_the_whole() -> None:
    for problem in drawn(FORWARD[4]):
        spec = problem.spec
        whole = replace(
            problem,
            spec=replace(spec, offset=0, kernel_offset=tuple(k // 2 - k + 1 for k in spec.size)),
            output_size=frameworks.unpadded(problem).lengths,
        )
        inputs = data.inputs(problem, "float64", "exact", 2)
        fill = inputs[2] if problem.biased else 0
        (everything,) = references(whole, *inputs)
        np.testing.assert_allclose(
            frameworks.unpadded(problem).copy(everything, fill), references(problem, *inputs)[0], atol=1e-9
        )


@pytest.mark.parametrize(
    ("spec", "size", "says"),
    [
        (mpsref.PoolingAverage(3, 1, offset=(2, 1)), (2, 2), "begins at pixel"),
        (mpsref.PoolingAverage(3, 1, offset=(-1, 1)), (2, 2), "at most half"),
        (mpsref.PoolingAverage(3, 3, edge_mode="clamp", zero_pad_size=(1, 0)), (2, 2), "zero_pad_size"),
        (mpsref.PoolingMax(3, 1), (4, 4), "minus infinity"),
        (mpsref.PoolingMax(2, 1, edge_mode="clamp", dilations=2), (1, 1), "only by taps outside"),
        (mpsref.PoolingL2Norm(3, 1), (4, 4), "no padding for L2-norm"),
        (mpsref.Convolution(3, 1, edge_mode="clamp"), (4, 4), '"clamp"; PyTorch reads 0'),
        (mpsref.Convolution(3, 1), (7, 7), "windows; the problem begins"),
    ],
)
def test_pytorch_states_why_not(spec: Any, size: Any, says: str) -> None:
    extra = (2,) if isinstance(spec, mpsref.Convolution) else ()
    problem = spec.problems["forward"](spec, (1, 4, 4, 2), *extra, size)
    with pytest.raises(UnsupportedError, match=says):
        frameworks.pytorch(problem)


def test_divisor_override_counts_all_taps() -> None:
    spec = mpsref.PoolingAverage(2, 2, offset=(1, 1))
    words = frameworks.pytorch(spec.problems["forward"](spec, (1, 5, 5, 1), (3, 3)))
    assert words.keywords["divisor_override"] == 4
    assert words.keywords["ceil_mode"]


@pytest.mark.parametrize("layout", frameworks.WEIGHT_LAYOUTS)
@pytest.mark.parametrize("transposed", [False, True])
def test_weights_go_and_come_back(layout: str, transposed: bool) -> None:
    shape = (6, 3, 2, 1) if layout == "HWCM" and not transposed else (6, 3, 2, 4)
    groups = {"HWCM": 3 if not transposed else 6}.get(layout, 2)
    if layout == "HWCM" and transposed:
        shape = (6, 3, 2, 2)
    weights = np.random.default_rng(1).standard_normal(shape)
    there = frameworks.weights_to(weights, layout, groups, transposed)
    assert np.array_equal(frameworks.weights_from(there, layout, groups, transposed), weights)


def test_training_batch_normalization_is_that_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    generator = np.random.default_rng(2)
    x, g = generator.standard_normal((2, 3, 4, 5, 3)) + 2
    gamma, beta = generator.standard_normal((2, 3))
    ours = frameworks.training_batch_normalization(mpsref.BatchNormalization(1e-3), x, g, gamma, beta)
    leaves = [torch.tensor(a).requires_grad_() for a in (x.transpose(0, 3, 1, 2), gamma, beta)]
    image, scale, shift = leaves
    y = torch.nn.functional.batch_norm(image, None, None, scale, shift, training=True, eps=1e-3)
    theirs = [y.detach(), *torch.autograd.grad(y, leaves, torch.tensor(g.transpose(0, 3, 1, 2)))]
    for mine, other in zip(ours, theirs, strict=True):
        other = other.permute(0, 2, 3, 1) if other.dim() == 4 else other
        wide = np.float64 if mine.dtype == np.float64 else np.float32
        np.testing.assert_allclose(mine, other.numpy(), rtol=1e-6 if wide is np.float64 else 1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [mpsref.SoftMax, mpsref.LogSoftMax])
def test_softmax_gradient_from_its_source(kind: Any) -> None:
    x = np.random.default_rng(3).standard_normal((1, 2, 2, 5))
    y = kind().forward(x)
    again = kind().forward(frameworks.logits(y, kind is mpsref.LogSoftMax))
    np.testing.assert_allclose(again, y, rtol=1e-12)


def test_gradients_of_each_image() -> None:
    g, x = np.random.default_rng(4).standard_normal((2, 3, 2, 2, 4))
    norm = mpsref.InstanceNormalization()
    _, dgamma, dbeta = norm.gradient(g, x)
    rows = frameworks.per_image(lambda g, x: tuple(v.sum(axis=0) for v in norm.gradient(g, x)[1:]), g, x)
    assert np.array_equal(rows[0], dgamma)
    assert np.array_equal(rows[1], dbeta)
