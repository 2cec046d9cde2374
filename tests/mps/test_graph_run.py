"""Runs of compiled graphs: golden values on every backend, memory, exports, formats, threads, errors."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from mpsref import mps, registry
from mpsref.errors import (
    DuplicateHandleError,
    GraphError,
    MissingSourceError,
    ShapeError,
    UnknownSourceError,
)
from mpsref.kernels import FullyConnected, SoftMax
from mpsref.mps import MPSCNNLossLabels, MPSNNDefaultPadding, MPSNNPadding, graph
from mpsref.mps.graph import MPSNNImageNode, training_graph
from tests.mps.residual import SHAPE, X, labels, network

LOGITS = [
    [0.790406, -0.743321, 0.588373, -0.714429, 0.479186],
    [-2.061797, 2.282758, -2.561127, 2.505974, -2.758424],
]
GOLDEN = {
    "conv1 weights": (3.398073, 3863.778726, 6.606647),
    "bn1 gamma": (-0.750946, 3.365779, -0.715120),
    "bn1 beta": (5.485933, 12.665272, -0.009477),
    "conv2 weights": (17.613734, 2455.529856, -4.650942),
    "bn2 gamma": (1.741392, 9.808502, 1.091431),
    "bn2 beta": (-0.560378, 10.429927, 1.284089),
    "fc weights": (0, 209.341366, 0.322605),
    "fc biases": (0, 0.634904, 0.340437),
    "x": (-49.429928, 1044.767588, 2.022355),
}


def gradient_graph(net, **words):
    """Return a graph for the gradient of x that exports logits and states."""
    made = training_graph(net.loss)
    net.fc.result_image.export_from_graph = True
    for node in (net.conv1, net.bn1, net.conv2, net.bn2, net.fc):
        node.result_state.export_from_graph = True
    return graph.MPSNNGraph(made.gradient_image(net.x), **words)


def gradients(net, result):
    found = {"x": result.image}
    for state, value in result.result_states.items():
        label = state.producer.label
        if label.startswith("bn"):
            found[f"{label} gamma"], found[f"{label} beta"] = value.gradient_for_gamma, value.gradient_for_beta
        else:
            found[f"{label} weights"], found[f"{label} biases"] = value.gradient_for_weights, value.gradient_for_biases
    return found


@pytest.mark.parametrize(
    ("backend", "format", "relative"),
    [
        ("reference", "float64", 1e-6),
        ("reference", "float32", 1e-5),
        ("cpu", "float32", 1e-5),
        ("metal:clang", "float32", 1e-4),
    ],
)
def test_golden_values(backend, format, relative):
    reason = registry.get_backend(backend).unavailable()
    if reason:
        pytest.skip(reason)
    net = network()
    result = gradient_graph(net, backend=backend, format=format).run([X], [labels()])
    assert float(result.loss["loss"].sum()) == pytest.approx(3.2279555474, rel=relative / 10)
    logits = result.intermediate_images[net.fc.result_image]
    np.testing.assert_allclose(logits[:, 0, 0], LOGITS, atol=max(1e-6, relative))
    found = gradients(net, result)
    for name, (total, squares, first) in GOLDEN.items():
        array = found[name].astype(np.float64)
        assert np.sum(array**2) == pytest.approx(squares, rel=relative + 1e-7), name
        assert array.ravel()[0] == pytest.approx(first, rel=100 * relative, abs=1e-5), name
        assert array.sum() == pytest.approx(total, rel=100 * relative, abs=1e-6 + 50 * relative), name
    for name in ("conv1 biases", "conv2 biases"):  # a batch normalization follows
        np.testing.assert_allclose(found[name], 0, atol=1e-9 if format == "float64" else 1e-4)


def test_images_go_when_nobody_needs_them():
    net = network()
    made = training_graph(net.loss)
    compiled = graph.MPSNNGraph(made.gradient_image(net.x), backend="cpu")
    kept = compiled.run([X], [labels()], keep_all=True)
    run = compiled.run([X], [labels()])
    assert set(kept.all_images) >= {node.result_image for node in made.nodes}
    assert not run.all_images
    total = sum(image.nbytes for image in kept.all_images.values())
    assert run.peak_bytes < 0.6 * total
    assert kept.peak_bytes == total
    assert np.array_equal(run.image, kept.image)


def test_a_chain_keeps_two_images():
    image = x = MPSNNImageNode("x")
    for _ in range(10):
        image = graph.MPSCNNNeuronReLUNode(image, a=0.5).result_image
    result = graph.MPSNNGraph(image).run([np.ones((1, 8, 8, 4), np.float32)])
    assert result.peak_bytes == 2 * 4 * 8 * 8 * 4
    assert x.producer is None


def test_an_image_whose_size_alone_is_read_goes_at_once():
    x = MPSNNImageNode("x")
    relu = graph.MPSCNNNeuronReLUNode(x, a=0)
    pool = graph.MPSCNNPoolingAverageNode(relu.result_image, filter_size=2)
    start = graph.MPSNNInitialGradientNode(pool.result_image)
    compiled = graph.MPSNNGraph(training_graph(start).gradient_image(x))
    (step,) = (step for step in compiled.program.steps if step.node is pool)
    assert relu.result_image in step.released
    g, small = MPSNNImageNode("g"), graph.MPSCNNPoolingAverageNode(x, filter_size=2)
    by_hand = graph.MPSCNNPoolingAverageGradientNode(g, relu.result_image, small.result_state, 2, 2, 2, 2, None)
    compiled = graph.MPSNNGraph(by_hand.result_image)
    (step,) = (step for step in compiled.program.steps if step.node is relu)
    assert step.released == (relu.result_image,)


def test_results_states_and_exports():
    x = MPSNNImageNode("x")
    drop = graph.MPSCNNDropoutNode(x, 0.5, seed=3)
    drop.result_state.export_from_graph = True
    relu = graph.MPSCNNNeuronReLUNode(drop.result_image, a=0)
    relu.result_image.export_from_graph = True
    last = graph.MPSCNNNeuronReLUNode(relu.result_image, a=0)
    compiled = graph.MPSNNGraph([last.result_image, relu.result_image], [False, True])
    image = np.ones((1, 4, 4, 4), np.float32)
    result = compiled.run([image])
    assert result.image is None
    assert result.images[1] is result.intermediate_images[relu.result_image]
    state = result.result_states[drop.result_state]
    assert np.array_equal(result.images[1], 2 * state.mask_data)
    assert np.array_equal(mps.MPSCNNDropoutGradient(0.5, 3, (1, 1, 1)).encode(image, image, state), result.images[1])


def test_each_run_draws_another_mask():
    x = MPSNNImageNode("x")
    compiled = graph.MPSNNGraph(graph.MPSCNNDropoutNode(x, 0.5, seed=3).result_image)
    image = np.ones((1, 8, 8, 4), np.float32)
    first, second = compiled.run([image]).image, compiled.run([image]).image
    assert not np.array_equal(first, second)
    assert np.array_equal(compiled.run([image], dropout_sequence=0).image, first)
    assert np.array_equal(compiled.run([image], dropout_sequence=1).image, second)
    assert not np.array_equal(compiled.run([image]).image, second), "the counter went on: this is run 2"


def test_inputs_by_position_node_handle_and_label():
    left, right = MPSNNImageNode("left"), MPSNNImageNode(("any", "handle"))
    compiled = graph.MPSNNGraph(graph.MPSNNSubtractionNode(left, right).result_image)
    one, two = np.full((1, 1, 1, 1), 1.0), np.full((1, 1, 1, 1), 2.0)
    for given in ([one, two], {left: one, right: two}, {"left": one, ("any", "handle"): two}):
        assert compiled.run(given).image.item() == -1
    with pytest.raises(MissingSourceError, match="'left'"):
        compiled.run({right: two})
    with pytest.raises(MissingSourceError, match="lacks"):
        compiled.run([one])
    with pytest.raises(UnknownSourceError, match="'other'"):
        compiled.run({"left": one, right: two, "other": one})
    with pytest.raises(UnknownSourceError, match="twice"):
        compiled.run({"left": one, left: one, right: two})
    with pytest.raises(UnknownSourceError, match="3 items"):
        compiled.run([one, two, two])
    with pytest.raises(TypeError, match="must be a list"):
        compiled.run(one)


def test_two_inputs_with_one_handle():
    first, second = MPSNNImageNode("x"), MPSNNImageNode("x")
    compiled = graph.MPSNNGraph(graph.MPSNNAdditionNode(first, second).result_image)
    with pytest.raises(DuplicateHandleError, match="2 inputs"):
        compiled.run({"x": np.ones((1, 1, 1, 1))})
    assert compiled.run({first: np.ones((1, 1, 1, 1)), second: np.ones((1, 1, 1, 1))}).image.item() == 2


def test_labels_must_come_and_fit():
    net = network()
    compiled = graph.MPSNNGraph(training_graph(net.loss).gradient_image(net.x))
    with pytest.raises(MissingSourceError, match=r"loss\.labels"):
        compiled.run([X])
    with pytest.raises(TypeError, match="MPSCNNLossLabels"):
        compiled.run([X], [np.ones((2, 1, 1, 5))])
    few = MPSCNNLossLabels((1, 1, 1), np.ones((1, 1, 1, 5), np.float32))
    with pytest.raises(ShapeError, match="'loss'"):
        compiled.run([X], [few])
    assert compiled.run([X], {"loss.labels": labels()}).loss["loss"].shape == (2, 1, 1, 1)


def test_shapes_are_checked_before_anything_runs():
    net = network()
    compiled = graph.MPSNNGraph(net.fc.result_image)
    with pytest.raises(ShapeError, match=r"step 0, MPSCNNConvolutionNode 'conv1' on x \(2, 8, 8, 4\)"):
        compiled.run([np.ones((2, 8, 8, 4), np.float32)])
    with pytest.raises(ShapeError, match=r"'fc' on cat.out \(2, 3, 3, 16\)"):
        compiled.infer_shapes({"x": (2, 6, 6, 3)})
    left, right = MPSNNImageNode("a"), MPSNNImageNode("b")
    add = graph.MPSNNGraph(graph.MPSNNAdditionNode(left, right, label="add").result_image)
    with pytest.raises(ShapeError, match=r"'a' \(1, 2, 2, 1\), 'b' \(2, 2, 2, 1\)"):
        add.run([np.ones((1, 2, 2, 1)), np.ones((2, 2, 2, 1))])
    with pytest.raises(ShapeError, match=r"MPSNNAdditionNode 'add' on a \(1, 2, 2, 1\), b \(1, 2, 3, 1\)"):
        add.run([np.ones((1, 2, 2, 1)), np.ones((1, 2, 3, 1))])


def test_each_run_is_placed_for_all_of_its_shapes():
    x, y = MPSNNImageNode("x"), MPSNNImageNode("y")
    sum_ = graph.MPSNNAdditionNode(x, y, secondary_stride_in_pixels_x=0, secondary_stride_in_pixels_y=0)
    pooled = graph.MPSCNNPoolingMaxNode(sum_.result_image, filter_size=2)
    compiled = graph.MPSNNGraph([sum_.result_image, pooled.result_image])
    random = np.random.default_rng(0)
    for n, height, width, of in ((2, 4, 6, 1), (2, 4, 6, 8), (3, 4, 6, 8), (3, 6, 4, 8), (1, 6, 4, 1), (2, 4, 6, 1)):
        a, b = random.random((n, height, width, 4), np.float32), random.random((n, of, of, 4), np.float32)
        total, largest = compiled.run([a, b]).images
        np.testing.assert_array_equal(total, a + b[:, :1, :1])
        expected = total.reshape(n, height // 2, 2, width // 2, 2, 4).max((2, 4))
        np.testing.assert_array_equal(largest, expected)


def test_inferred_shapes():
    net = network()
    shapes = graph.MPSNNGraph(net.fc.result_image).infer_shapes({net.x: SHAPE})
    assert shapes[net.pmax.result_image] == (2, 4, 4, 8)
    assert shapes[net.fc.result_image] == (2, 1, 1, 5)


def test_formats():
    x = MPSNNImageNode("x")
    half = graph.MPSCNNNeuronLinearNode(x, 1.0, 0.1)
    half.result_image.format = "float16"
    last = graph.MPSNNAdditionNode(half.result_image, x)
    last.result_image.format = "float32"
    result = graph.MPSNNGraph([last.result_image, half.result_image]).run([np.full((1, 1, 1, 1), 1 / 3)])
    assert [image.dtype.name for image in result.images] == ["float32", "float16"]
    assert result.images[1].item() == np.float16(np.float32(1 / 3) + np.float32(0.1))
    assert result.image.item() == np.float32(result.images[1].item()) + np.float32(1 / 3)
    with pytest.raises(TypeError, match=r"float64.*reference"):
        graph.MPSNNGraph(last.result_image, backend="cpu", format="float64")


def test_a_node_may_have_a_backend_of_its_own():
    calls = []

    def forward(problem, x, out):
        calls.append(problem)
        out[...] = 7

    spy = registry.Backend("spy", {(SoftMax, "forward"): forward})
    x = MPSNNImageNode("x")
    soft = graph.MPSCNNSoftMaxNode(x, backend=spy)
    relu = graph.MPSCNNNeuronReLUNode(soft.result_image, a=0)
    assert graph.MPSNNGraph(relu.result_image).run([np.ones((1, 1, 1, 2))]).image.tolist() == [[[[7, 7]]]]
    assert len(calls) == 1


def test_allocators():
    x = MPSNNImageNode("x")
    relu = graph.MPSCNNNeuronReLUNode(x, a=0)
    given = np.full((1, 1, 1, 2), np.nan, np.float32)
    compiled = graph.MPSNNGraph(relu.result_image, destination_image_allocator=lambda shape, dtype: given)
    assert compiled.run([np.ones((1, 1, 1, 2))]).image is given
    assert given.tolist() == [[[[1, 1]]]]


def test_padding_policies():
    x = MPSNNImageNode("x")
    policy = MPSNNDefaultPadding.padding_for_tensorflow_average_pooling_valid_only()
    pool = graph.MPSCNNPoolingMaxNode(x, 2, 2, 2, 2, padding_policy=policy)
    compiled = graph.MPSNNGraph(pool.result_image)
    assert compiled.run([np.arange(25.0).reshape(1, 5, 5, 1)]).image.ravel().tolist() == [6, 8, 16, 18]

    class Shifted(MPSNNPadding):
        def destination_image_descriptor_for_source_images(self, images, states, kernel, descriptor):
            kernel.offset = (kernel.offset.x + 1, kernel.offset.y + 1, 0)
            return descriptor

    pool.padding_policy = Shifted()
    moved = graph.MPSNNGraph(pool.result_image)
    for _ in range(2):  # the policy receives unchanged properties each time
        assert moved.run([np.arange(25.0).reshape(1, 5, 5, 1)]).image.ravel().tolist() == [12, 14, 22, 24]


def test_two_graphs_at_once():
    nets = [network(), network()]
    graphs = [gradient_graph(net, backend="cpu") for net in nets]
    expected = graphs[0].run([X], [labels()]).image.tobytes()
    results = []

    def work(compiled):
        results.extend(compiled.run([X], [labels()]).image.tobytes() for _ in range(10))

    threads = [threading.Thread(target=work, args=(compiled,)) for compiled in graphs * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 40


def test_compare_step_by_step():
    net = network()
    compiled = gradient_graph(net)
    rows = compiled.compare(["cpu"], [X], [labels()])
    assert [row.label for row in rows] == [compiled.program.labels[step.node] for step in compiled.program.steps]
    assert max(row.relative for row in rows) < 1e-5


def test_compare_sees_the_gradients_of_weights():
    reference = registry.get_backend("reference")

    def wrong(problem, *inputs, out):
        reference.implementations[FullyConnected, "gradient_weights"](problem, *inputs, out=out)
        out[0][...] *= 1.01

    almost = registry.Backend("almost", {**reference.implementations, (FullyConnected, "gradient_weights"): wrong})
    compiled = gradient_graph(network())
    rows = compiled.compare([almost], [X], [labels()])
    assert [row.label for row in rows if row.absolute > 0] == ["fc.grad"]


def test_parameters_of():
    net = network()
    compiled = graph.MPSNNGraph(net.fc.result_image)
    assert compiled.parameters_of(net.conv1)["weights"].shape == (8, 3, 3, 3)
    with pytest.raises(GraphError, match="'add' has no parameters"):
        compiled.parameters_of(net.add)


def test_labels_of_any_float_dtype():
    net = network()
    compiled = graph.MPSNNGraph(training_graph(net.loss).gradient_image(net.x))
    expected = compiled.run([X], [labels()])
    for dtype in ("float16", "float64"):
        image = labels().device_read()[0].astype(dtype)
        assert np.array_equal(compiled.run([X], [MPSCNNLossLabels((1, 1, 1), image)]).image, expected.image)


def test_words_of_a_run_are_checked() -> None:
    x = graph.MPSNNImageNode("x")
    compiled = graph.MPSNNGraph(graph.MPSCNNNeuronReLUNode(x, a=0).result_image, backend="reference")
    image = np.ones((1, 2, 2, 1), np.float32)
    with pytest.raises(TypeError, match="keep_all is 'no'"):
        compiled.run([image], keep_all="no")
    with pytest.raises(TypeError, match="dropout_sequence is 'a'"):
        compiled.run([image], dropout_sequence="a")
    with pytest.raises(ValueError, match="dropout_sequence is -1"):
        compiled.run([image], dropout_sequence=-1)
    result = compiled.run([image])
    assert result == result
    assert result != compiled.run([image])
