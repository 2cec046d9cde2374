"""Graphs: runs, variables, and automatic differentiation, against finite differences and PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mpsref.arguments.arrays import Array
from mpsref.errors import GraphError, MissingSourceError, NoGradientError, ShapeError, UnknownSourceError
from mpsref.mpsgraph import (
    Convolution2DOpDescriptor,
    DepthwiseConvolution2DOpDescriptor,
    Graph,
    GraphTensor,
    Pooling2DOpDescriptor,
)
from mpsref.mpsgraph.function import FUNCTIONS
from mpsref.mpsgraph.rules import RULES

random = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    random.bit_generator.state = np.random.default_rng(7).bit_generator.state


CONVOLUTION = Convolution2DOpDescriptor(
    stride_in_x=2, stride_in_y=1, dilation_rate_in_y=2, groups=2, padding_left=1, padding_bottom=2,
    data_layout="NCHW", weights_layout="OIHW",
)  # fmt: skip
TRANSPOSED = Convolution2DOpDescriptor(stride_in_x=2, stride_in_y=1, data_layout="NHWC", weights_layout="HWIO")
DEPTHWISE = DepthwiseConvolution2DOpDescriptor(padding_style="TF_SAME", data_layout="NHWC", weights_layout="HWIO")
POOLING = Pooling2DOpDescriptor(
    kernel_width=2, kernel_height=3, stride_in_x=2, stride_in_y=1, dilation_rate_in_y=2, padding_top=1, padding_left=1,
    data_layout="NHWC",
)  # fmt: skip
NUMBERED = replace(POOLING, return_indices_mode="local_flatten_2d")
IMAGE = (2, 5, 6, 4)
FLAGS = {"center_result": True, "align_corners": False, "layout": "NHWC"}

CALLS: dict[str, tuple[dict[str, tuple[int, ...]], dict[str, Any]]] = {
    "convolution_2d": ({"source": (2, 4, 5, 6), "weights": (6, 2, 3, 2)}, {"descriptor": CONVOLUTION}),
    "convolution_transpose_2d": (
        {"source": (2, 2, 3, 4), "weights": (2, 3, 2, 4)}, {"output_shape": (2, 3, 8, 2), "descriptor": TRANSPOSED}
    ),
    "depthwise_convolution_2d": ({"source": IMAGE, "weights": (2, 3, 4, 2)}, {"descriptor": DEPTHWISE}),
    "max_pooling_2d": ({"source": IMAGE}, {"descriptor": POOLING}),
    "avg_pooling_2d": ({"source": IMAGE}, {"descriptor": POOLING}),
    "mean_of_tensor": ({"tensor": IMAGE}, {"axes": [1, 3]}),
    "variance_of_tensor": ({"tensor": IMAGE, "mean": (1, 5, 6, 1)}, {"axes": [0, 3]}),
    "normalization": (
        {"tensor": IMAGE, "mean": (1, 1, 1, 4), "variance": (1, 1, 1, 4), "gamma": (6, 4), "beta": (1, 1, 6, 1)},
        {"epsilon": 0.5},
    ),
    "relu": ({"tensor": (3, 4)}, {}),
    "leaky_relu": ({"tensor": (3, 4)}, {"alpha": 2.0}),
    "sigmoid": ({"tensor": (3, 4)}, {}),
    "softmax": ({"tensor": (3, 4, 2)}, {"axis": 1}),
    "softmax_cross_entropy": (
        {"source": (3, 4, 2)}, {"labels": random.random((3, 4, 2)), "axis": 1, "reduction_type": 2}
    ),
    "addition": ({"primary": (3, 1, 2), "secondary": (4, 1)}, {}),
    "subtraction": ({"primary": (3, 1, 2), "secondary": (4, 1)}, {}),
    "multiplication": ({"primary": (3, 1, 2), "secondary": (4, 1)}, {}),
    "division": ({"primary": (3, 1, 2), "secondary": (4, 1)}, {}),
    "square_root": ({"tensor": (3, 4)}, {}),
    "reduction_sum": ({"tensor": (3, 4, 2)}, {"axes": [0, -1]}),
    "matrix_multiplication": ({"primary": (3, 4), "secondary": (4, 5)}, {}),
    "reshape": ({"tensor": (3, 4)}, {"shape": (2, -1)}),
    "transpose": ({"tensor": (3, 4, 2)}, {"dimension": 0, "with_dimension": 2}),
    "broadcast": ({"tensor": (3, 1)}, {"shape": (2, 3, 4)}),
    "max_pooling_2d_return_indices": ({"source": IMAGE}, {"descriptor": NUMBERED}),
    "resize": ({"images": IMAGE}, {"size": (3, 9), "mode": "bilinear", **FLAGS}),
    "resize_nearest": ({"images": IMAGE}, {"size": (3, 9), "nearest_rounding_mode": "floor", **FLAGS}),
    "resize_bilinear": ({"images": IMAGE}, {"size": (7, 3), **FLAGS}),
}  # fmt: skip
"""Of each function with a rule, the shapes of its tensors, and its other arguments."""


def difference(run: Callable[[Array], float], x: Array, step: float = 1e-6) -> Array:
    """Central differences of a function of one tensor."""
    found = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        there, back = x.copy(), x.copy()
        there[index] += step
        back[index] -= step
        found[index] = (run(there) - run(back)) / (2 * step)
    return found


@pytest.mark.parametrize("name", RULES)
def test_a_gradient_is_that_of_finite_differences(name: str) -> None:
    """Of a weighted sum of the result, and with respect to each tensor for which there is a rule."""
    shapes, others = CALLS[name]
    assert set(RULES[name]) == set(shapes)
    graph = Graph()
    tensors = {key: graph.placeholder(shape, "float64") for key, shape in shapes.items()}
    result = getattr(graph, name)(**tensors, **others)
    result = result[0] if isinstance(result, tuple) else result
    size = int(np.prod(result.shape))
    weighted = graph.multiplication(graph.reshape(result, (size,)), random.standard_normal(size))
    gradients = graph.gradient_for_primary_tensor(weighted, list(tensors.values()))
    feeds = {
        tensors[key]: random.permutation(np.linspace(0.5, 3, int(np.prod(shape)))).reshape(shape)
        for key, shape in shapes.items()
    }
    if name in ("relu", "leaky_relu"):
        feeds = {key: value - 1.7 for key, value in feeds.items()}
    found = graph.run(feeds, list(gradients.values()))
    for tensor, gradient in gradients.items():

        def total(x: Array, tensor: GraphTensor = tensor) -> float:
            return float(graph.run({**feeds, tensor: x}, [weighted])[weighted].sum())

        wanted = difference(total, feeds[tensor])
        np.testing.assert_allclose(found[gradient], wanted, rtol=1e-6, atol=1e-7)


def test_statistics_of_the_tensor_itself_are_part_of_the_gradient() -> None:
    """Normalization by the chain rule is the operation normalization_gradient."""
    graph = Graph()
    x, gamma = graph.placeholder((4, 2, 3), "float64"), graph.placeholder((3,), "float64")
    mean = graph.mean_of_tensor(x, [0, 1])
    variance = graph.variance_of_tensor(x, [0, 1])
    y = graph.normalization(x, mean, variance, gamma, None, 0.25)
    g = random.standard_normal((4, 2, 3))
    gradient = graph.gradient_for_primary_tensor(graph.multiplication(y, g), [x])[x]
    direct = graph.normalization_gradient(g, x, mean, variance, gamma, None, None, [0, 1], 0.25)
    found = graph.run({x: random.standard_normal((4, 2, 3)), gamma: np.array([1.0, -2, 3])}, [gradient, direct])
    np.testing.assert_allclose(found[gradient], found[direct], rtol=1e-9, atol=1e-12)


def network(graph: Graph, x: Any, labels: Any, weights: dict[str, Array]) -> tuple[Any, dict[str, Any]]:
    """Return the loss of a small CNN, with all that trains in a CNN, and its variables."""
    v = {name: graph.variable(value, dtype=value.dtype) for name, value in weights.items()}
    same: dict[str, Any] = {"padding_style": "TF_SAME", "data_layout": "NHWC", "weights_layout": "HWIO"}
    y = graph.convolution_2d(x, v["w1"], Convolution2DOpDescriptor(stride_in_x=1, stride_in_y=1, **same))
    axes = [0, 1, 2]
    mean, variance = graph.mean_of_tensor(y, axes), graph.variance_of_tensor(y, axes)
    y = graph.relu(graph.normalization(y, mean, variance, v["gamma"], v["beta"], 1e-3))
    y = graph.max_pooling_2d(
        y, Pooling2DOpDescriptor(kernel_width=3, kernel_height=3, stride_in_x=2, stride_in_y=2, padding_left=1,
                                 padding_right=1, padding_top=1, padding_bottom=1, data_layout="NHWC")
    )  # fmt: skip
    y = graph.depthwise_convolution_2d(y, v["w2"], DepthwiseConvolution2DOpDescriptor(**same))
    y = graph.sigmoid(graph.addition(y, v["b2"]))
    y = graph.avg_pooling_2d(
        y, Pooling2DOpDescriptor(kernel_width=2, kernel_height=2, stride_in_x=2, stride_in_y=2, data_layout="NHWC")
    )
    y = graph.reshape(y, (y.shape[0], -1))
    y = graph.addition(graph.matrix_multiplication(y, v["w3"]), v["b3"])
    return graph.softmax_cross_entropy(y, labels, 1, "mean"), v


def weights_of_network(dtype: Any) -> dict[str, Array]:
    shapes = {"w1": (3, 3, 2, 4), "gamma": (1, 1, 1, 4), "beta": (1, 1, 1, 4), "w2": (3, 3, 4, 2), "b2": (8,),
              "w3": (8 * 4, 3), "b3": (3,)}  # fmt: skip
    return {
        name: (random.standard_normal(shape) / 3 + (name == "gamma")).astype(dtype) for name, shape in shapes.items()
    }


@pytest.mark.parametrize(
    ("backend", "dtype"), [("reference", "float64"), ("cpu", "float32"), ("metal:clang", "float32")]
)
def test_a_cnn_is_trained_as_by_pytorch(backend: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    weights = weights_of_network(dtype)
    x, labels = random.standard_normal((6, 8, 8, 2)).astype(dtype), np.eye(3, dtype=dtype)[random.integers(0, 3, 6)]
    graph = Graph()
    image, target = graph.placeholder(x.shape, dtype), graph.placeholder(labels.shape, dtype)
    loss, variables = network(graph, image, target, weights)
    gradients = graph.gradient_for_primary_tensor(loss, list(variables.values()))
    steps = [graph.apply_stochastic_gradient_descent(0.2, v, gradients[v]) for v in variables.values()]
    of = {name: torch.tensor(value.astype(np.float64), requires_grad=True) for name, value in weights.items()}
    pixels = torch.tensor(x.astype(np.float64)).permute(0, 3, 1, 2)
    first = 0.0
    for _ in range(10):
        y = functional.conv2d(pixels, of["w1"].permute(3, 2, 0, 1), padding=1)
        y = functional.batch_norm(y, None, None, of["gamma"].ravel(), of["beta"].ravel(), training=True, eps=1e-3)
        y = functional.max_pool2d(functional.relu(y), 3, 2, 1)
        y = functional.conv2d(y, of["w2"].permute(2, 3, 0, 1).reshape(8, 1, 3, 3), of["b2"], padding=1, groups=4)
        y = functional.avg_pool2d(torch.sigmoid(y), 2).permute(0, 2, 3, 1).reshape(6, -1)
        expected = functional.cross_entropy(y @ of["w3"] + of["b3"], torch.tensor(labels.astype(np.float64)))
        of_weights = torch.autograd.grad(expected, list(of.values()))
        found = graph.run({image: x, target: labels}, [loss, *variables.values()], steps, backend=backend)
        assert abs(found[loss] - expected.item()) < 1e-6
        with torch.no_grad():
            for value, slope in zip(of.values(), of_weights, strict=True):
                value -= 0.2 * slope
        first = first or expected.item()
    assert expected.item() < 0.8 * first  # it has learned
    after = graph.run({}, list(variables.values()))
    for name, value in of.items():
        np.testing.assert_allclose(after[variables[name]], value.detach().numpy(), rtol=0, atol=1e-6)


def test_what_has_no_gradient_is_refused_by_its_name() -> None:
    graph = Graph()
    x, other = graph.placeholder((4,)), graph.placeholder((4,))
    dropped = graph.dropout(graph.multiplication(x, x), 0.5)
    with pytest.raises(
        NoGradientError, match=r"dropout has no gradient for tensor, .*not a predecessor of primaryTensor"
    ):
        graph.gradient_for_primary_tensor(dropped, [x])
    with pytest.raises(NoGradientError, match=r"reduction_arg_maximum has no gradient for tensor"):
        graph.gradient_for_primary_tensor(graph.reduction_arg_maximum(x, 0), [x])
    with pytest.raises(NoGradientError, match=r"relu_gradient has no gradient for source"):
        graph.gradient_for_primary_tensor(graph.gradient_for_primary_tensor(graph.relu(x), [x])[x], [x])
    with pytest.raises(
        NoGradientError, match=r"<placeholder: \(4,\), float32>: not a predecessor of primaryTensor, <relu"
    ):
        graph.gradient_for_primary_tensor(graph.relu(x), [other])
    logits = graph.placeholder((2, 3))
    loss = graph.softmax_cross_entropy(logits, logits, 1, "sum")
    with pytest.raises(NoGradientError, match="softmax_cross_entropy has no gradient for labels"):
        graph.gradient_for_primary_tensor(loss, [logits])


def test_reads_see_the_values_before_the_run() -> None:
    graph = Graph()
    a, b = graph.variable([1.0, 2]), graph.variable([10.0, 20])
    swap = [graph.assign_variable(a, graph.read_variable(b)), graph.assign_variable(b, a)]
    assert graph.run({}, [a], swap)[a].tolist() == [1, 2]
    found = graph.run({}, [a, b])
    assert (found[a].tolist(), found[b].tolist()) == ([10, 20], [1, 2])
    found[a][:] = 7  # results are copies
    assert graph.run({}, [a])[a].tolist() == [10, 20]
    with pytest.raises(GraphError, match="assign a variable twice"):
        graph.run({}, [], [swap[0], graph.assign_variable(a, a)])


def test_a_failed_run_changes_no_variable() -> None:
    graph = Graph()
    a = graph.variable([1.0])
    step = graph.assign_variable(a, graph.addition(a, a))
    later = graph.addition(a, graph.placeholder((1,)))
    with pytest.raises(MissingSourceError, match=r"feeds lacks <placeholder: \(1,\), float32> \(placeholder 1 of the"):
        graph.run({}, [later], [step])
    assert graph.run({}, [a])[a].tolist() == [1]


def test_several_results_are_a_tuple_of_tensors() -> None:
    graph = Graph()
    v = graph.variable([1.0])
    m, u, g = (graph.constant(value, (1,)) for value in (0.0, 0.0, 4.0))
    rate, b1, b2 = (graph.constant(value) for value in (0.5, 0.5, 0.75))
    values, momentum, velocity = graph.adam(rate, b1, b2, 0.0, b1, b2, v, m, u, None, g)
    found = graph.run({}, [values, momentum, velocity])
    assert [found[one].tolist() for one in (values, momentum, velocity)] == [[0.5], [2.0], [4.0]]


def test_errors_come_when_the_graph_is_built() -> None:
    graph, other = Graph(), Graph()
    x = graph.placeholder((1, 4, 4, 3))
    with pytest.raises(ShapeError, match="weights are O, H, W, I"):
        graph.convolution_2d(x, graph.placeholder((2, 2, 4, 5)), TRANSPOSED)
    with pytest.raises(
        AttributeError, match="MPSGraph has no operation 'convolution2D' here: did you mean convolution_2d"
    ):
        _ = graph.convolution2D
    with pytest.raises(TypeError, match="backend is given to relu; a graph is given it in run"):
        graph.relu(x, backend="cpu")
    with pytest.raises(TypeError, match=r"relu: tensor is <placeholder.*; it must be a tensor of this graph"):
        graph.relu(other.placeholder((1,)))
    with pytest.raises(ValueError, match=r"shape\[0\] is -1; it must be an integer >= 0"):
        graph.placeholder((-1, 2))
    with pytest.raises(TypeError, match="dtype is int64; it must be one of float16, float32, float64, int32"):
        graph.placeholder((1,), np.int64)
    with pytest.raises(
        ShapeError, match=r"data has 3 elements; with the shape \(2,\) it must have one, or all of them"
    ):
        graph.constant([1, 2, 3], (2,))
    with pytest.raises(TypeError, match=r"variable is <placeholder.*; it must be a result of variable"):
        graph.assign_variable(x, x)
    with pytest.raises(ShapeError, match="the variable has"):
        graph.assign_variable(graph.variable([1.0]), x)


def test_a_run_names_every_placeholder_without_values() -> None:
    graph = Graph()
    x, y, _ = graph.placeholder((2,), name="pixels"), graph.placeholder((2,)), graph.placeholder((2,), name="unused")
    total = graph.addition(graph.relu(x, name="a"), y, name="b")
    assert (repr(x), repr(total)) == ("<placeholder 'pixels': (2,), float32>", "<addition 'b': (2,), float32>")
    named = (
        r"feeds lacks <placeholder 'pixels': \(2,\), float32> \(placeholder 1 of the graph\), "
        r"<placeholder: \(2,\), float32> \(placeholder 2 of the graph\), which the targets need$"
    )
    with pytest.raises(MissingSourceError, match=named):
        graph.run({}, [total])
    values = {x: np.float32([1, -2]), y: np.float32([10, 20])}
    assert [*graph.run(values, [y, total, x])] == [y, total, x]
    weights = graph.variable([1.0], name="w"), graph.constant(1.0, name="one")
    assert [one.operation.label for one in weights] == ["w", "one"]
    for call in (graph.placeholder, graph.relu):
        with pytest.raises(TypeError, match="name is 3; it must be a string, or None"):
            call(x if call is graph.relu else (2,), name=3)


def test_errors_of_a_run_name_the_tensor() -> None:
    graph = Graph()
    x, c = graph.placeholder((2,)), graph.constant([1.0])
    with pytest.raises(UnknownSourceError, match="feeds has values of <constant"):
        graph.run({c: np.ones(1)}, [c])
    with pytest.raises(
        ShapeError, match=r"feeds has an array of shape \(3,\), float32, for <placeholder: \(2,\), float32>"
    ):
        graph.run({x: np.ones(3, np.float32)}, [x])
    with pytest.raises(ShapeError, match=r"float64, for <placeholder: \(2,\), float32>"):
        graph.run({x: np.ones(2)}, [x])
    with pytest.raises(TypeError, match="target_operations contains <placeholder"):
        graph.run({x: np.ones(2, np.float32)}, [], [x])  # type: ignore[list-item]


def test_every_function_is_a_method() -> None:
    assert set(FUNCTIONS) <= set(dir(Graph()))
    assert set(RULES) <= set(FUNCTIONS)
