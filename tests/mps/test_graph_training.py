"""The nodes of training graphs: worked examples, handlers, pruning, nodes without gradient."""

from __future__ import annotations

import numpy as np
import pytest

from mpsref.errors import (
    CycleError,
    GraphError,
    MultipleGradientsError,
    NoGradientError,
    TrainingGraphWarning,
)
from mpsref.mps import graph
from mpsref.mps.graph import MPSNNImageNode, training_graph
from tests.mps.residual import network

CREATED = """\
fc.grad MPSCNNFullyConnectedGradientNode loss.out,cat.out fc cat.out
cat.grad[0] MPSNNConcatenationGradientNode fc.grad.out,pmax.out cat pmax.out
cat.grad[1] MPSNNConcatenationGradientNode fc.grad.out,pavg.out cat pavg.out
pavg.grad MPSCNNPoolingAverageGradientNode cat.grad[1].out,relu2.out pavg relu2.out
pmax.grad MPSCNNPoolingMaxGradientNode cat.grad[0].out,relu2.out pmax relu2.out
relu2.out.sum0 MPSNNAdditionNode pavg.grad.out,pmax.grad.out - relu2.out
relu2.grad MPSCNNNeuronGradientNode relu2.out.sum0.out,add.out relu2 add.out
add.grad[0] MPSNNAdditionGradientNode relu2.grad.out,bn2.out add bn2.out
add.grad[1] MPSNNAdditionGradientNode relu2.grad.out,relu1.out add relu1.out
bn2.grad MPSCNNBatchNormalizationGradientNode add.grad[0].out,conv2.out bn2 conv2.out
conv2.grad MPSCNNConvolutionGradientNode bn2.grad.out,relu1.out conv2 relu1.out
relu1.out.sum1 MPSNNAdditionNode add.grad[1].out,conv2.grad.out - relu1.out
relu1.grad MPSCNNNeuronGradientNode relu1.out.sum1.out,bn1.out relu1 bn1.out
bn1.grad MPSCNNBatchNormalizationGradientNode relu1.grad.out,conv1.out bn1 conv1.out
conv1.grad MPSCNNConvolutionGradientNode bn1.grad.out,x conv1 x"""


def keep_names(new, forward, image, gradient):
    """A handler without effect, so that images have the names of their nodes."""


def described(node, image):
    states = ",".join(state.producer.label for state in node.source_states) or "-"
    reads = ",".join(one.name for one in node.source_images)
    return f"{node.label} {type(node).__name__} {reads} {states} {image.name}"


def test_nodes_of_the_residual_network():
    net, calls = network(), []

    def handler(new, forward, image, gradient):
        calls.append((new, forward, image, gradient))

    made = training_graph(net.loss, node_handler=handler)
    assert [described(node, call[2]) for node, call in zip(made.nodes, calls, strict=True)] == CREATED.splitlines()
    assert [node.label for node in made.termini] == ["conv1.grad"]
    assert [call[0].label for call in calls if call[1] is None] == ["relu2.out.sum0", "relu1.out.sum1"]
    assert made.additions == [call[0] for call in calls if call[1] is None]
    assert made.gradient_image(net.relu1.result_image) is made.additions[1].result_image
    assert made.gradient_image(net.x) is made.nodes[-1].result_image
    assert made.table().splitlines()[-1].split() == ["conv1.grad", "MPSCNNConvolutionGradientNode", "conv1", "x"]


def test_three_readers_of_one_input():
    a = MPSNNImageNode("a")
    r1, r2, r3 = (graph.MPSCNNNeuronReLUNode(a, a=s, label=f"r{k}") for k, s in enumerate((0.1, 0.2, 0.3), start=1))
    s1 = graph.MPSNNAdditionNode(r1.result_image, r2.result_image, label="s1")
    s2 = graph.MPSNNAdditionNode(s1.result_image, r3.result_image, label="s2")
    made = training_graph(graph.MPSNNInitialGradientNode(s2.result_image), node_handler=keep_names)
    labels = "s2.grad[0] s2.grad[1] r3.grad s1.grad[0] s1.grad[1] r2.grad r1.grad a.sum0 a.sum1"
    assert [node.label for node in made.nodes] == labels.split()
    assert [node.label for node in made.termini] == ["a.sum1"]
    assert [image.name for image in made.nodes[-2].source_images] == ["r3.grad.out", "r2.grad.out"]
    assert [image.name for image in made.nodes[-1].source_images] == ["a.sum0.out", "r1.grad.out"]
    compiled = graph.MPSNNGraph([node.result_image for node in made.termini])
    values = np.array([2, -1, 0, -3], np.float32).reshape(1, 2, 2, 1)
    assert compiled.run([values]).image.ravel().tolist() == pytest.approx([3, 0.6, 3, 0.6])


def test_softmax_times_weights():
    x, w = MPSNNImageNode("x"), MPSNNImageNode("w")
    sm = graph.MPSCNNSoftMaxNode(x, label="sm")
    mul = graph.MPSNNMultiplicationNode(sm.result_image, w, label="mul")
    one = graph.MPSNNInitialGradientNode(mul.result_image, label="one")
    made = training_graph(one, node_handler=keep_names)
    assert [node.label for node in made.nodes] == ["mul.grad[0]", "mul.grad[1]", "sm.grad"]
    assert [node.label for node in made.termini] == ["mul.grad[1]", "sm.grad"]
    reads = [[image.name for image in node.source_images] for node in made.nodes]
    assert reads == [["one.out", "w"], ["one.out", "sm.out"], ["mul.grad[0].out", "sm.out"]]
    compiled = graph.MPSNNGraph([node.result_image for node in made.termini])
    assert [image.name for image in compiled.source_images] == ["x", "w"]


def test_stop_gradient():
    net = network("gpu")
    net.relu1.result_image.stop_gradient = True
    made = training_graph(net.loss, node_handler=keep_names)
    assert [node.label for node in made.nodes] == [line.split()[0] for line in CREATED.splitlines()[:11]]
    assert [node.label for node in made.termini] == ["add.grad[1]", "conv2.grad"]


def test_one_image_twice():
    x = MPSNNImageNode("x")
    sq = graph.MPSNNMultiplicationNode(x, x, label="sq")
    made = training_graph(graph.MPSNNInitialGradientNode(sq.result_image))
    assert [node.label for node in made.nodes] == ["sq.grad[0]", "sq.grad[1]", "x.sum0"]
    values = np.array([[[[1.5, -2.0, 3.0]]]], np.float32)
    compiled = graph.MPSNNGraph(made.gradient_image(x))
    assert np.array_equal(compiled.run([values]).image, 2 * values)


def test_a_result_as_its_own_gradient_warns():
    x = MPSNNImageNode("x")
    relu = graph.MPSCNNNeuronReLUNode(x, a=0.5)
    with pytest.warns(TrainingGraphWarning, match="MPSNNInitialGradientNode"):
        made = training_graph(relu)
    result = graph.MPSNNGraph(made.gradient_image(x)).run([np.array([[[[-2, 3]]]], np.float32)]).image
    assert result.ravel().tolist() == [-0.5, 3]


def test_default_handler_hands_on_handles():
    x = MPSNNImageNode("x")
    sq = graph.MPSNNMultiplicationNode(x, x, label="sq")
    made = training_graph(graph.MPSNNInitialGradientNode(sq.result_image))
    assert [node.result_image.handle for node in made.nodes] == [None, None, "x"]


def test_custom_handler_replaces_the_default_one():
    x = MPSNNImageNode("x")
    relu = graph.MPSCNNNeuronReLUNode(x, a=0)
    made = training_graph(graph.MPSNNInitialGradientNode(relu.result_image), node_handler=keep_names)
    assert made.nodes[0].result_image.handle is None


@pytest.mark.parametrize("how", ["return", "gradient", "source"])
def test_handler_prunes(how):
    x = MPSNNImageNode("x")
    first = graph.MPSCNNNeuronReLUNode(x, a=0, label="first")
    second = graph.MPSCNNNeuronReLUNode(first.result_image, a=0, label="second")

    def handler(new, forward, image, gradient):
        assert forward is second
        if how == "return":
            return False
        (new.result_image if how == "gradient" else image).stop_gradient = True
        return None

    made = training_graph(graph.MPSNNInitialGradientNode(second.result_image), node_handler=handler)
    assert [node.label for node in made.nodes] == ["second.grad"]


def test_node_without_gradient_on_the_way():
    x = MPSNNImageNode("x")
    first = graph.MPSCNNNeuronReLUNode(x, a=0, label="first")
    ratio = graph.MPSNNDivisionNode(first.result_image, first.result_image, label="ratio")
    last = graph.MPSCNNNeuronReLUNode(ratio.result_image, a=0, label="last")
    one = graph.MPSNNInitialGradientNode(last.result_image, label="one")
    with pytest.raises(NoGradientError, match=r"'ratio' has no gradient.*one <- last <- ratio.*stop_gradient"):
        training_graph(one)


def test_gradients_by_hand():
    x, g = MPSNNImageNode("x"), MPSNNImageNode("g")
    relu = graph.MPSCNNNeuronReLUNode(x, a=0.5, label="relu")
    add = graph.MPSNNAdditionNode(x, x, label="add")
    assert relu.gradient_filter_with_source(g).forward is relu
    assert relu.gradient_filter_with_sources([g]).source_gradient is g
    assert [node.source_index for node in add.gradient_filters_with_source(g)] == [0, 1]
    assert [node.derived_label for node in add.gradient_filters_with_sources([g])] == ["add.grad[0]", "add.grad[1]"]
    with pytest.raises(MultipleGradientsError, match="gradient_filters_with_source"):
        add.gradient_filter_with_source(g)
    with pytest.raises(MultipleGradientsError):
        graph.MPSNNConcatenationNode([x]).gradient_filter_with_source(g)
    with pytest.raises(ValueError, match="must have 1"):
        relu.gradient_filter_with_sources([g, g])
    with pytest.raises(TypeError, match="take its result_image"):
        relu.gradient_filter_with_source(add)


def test_no_second_derivatives():
    relu = graph.MPSCNNNeuronReLUNode(MPSNNImageNode(), a=0)
    gradient = relu.gradient_filter_with_source(MPSNNImageNode())
    for call in ("gradient_filter_with_source", "gradient_filters_with_source"):
        with pytest.raises(NoGradientError, match="second derivatives"):
            getattr(gradient, call)(MPSNNImageNode())
        with pytest.raises(NoGradientError, match="second derivatives"):
            getattr(gradient, f"{call}s")([MPSNNImageNode()])
    with pytest.raises(NoGradientError, match="second derivatives"):
        gradient.training_graph_with_source_gradient()
    with pytest.raises(NoGradientError, match="second derivatives"):
        training_graph(gradient)


def test_a_loss_is_its_own_gradient():
    net = network()
    for node in (net.loss, graph.MPSNNInitialGradientNode(net.x)):
        with pytest.raises(NoGradientError, match="result image"):
            node.gradient_filters_with_source(MPSNNImageNode())


def test_cycle():
    x = MPSNNImageNode("x")
    first = graph.MPSCNNNeuronReLUNode(x, a=0, label="first")
    second = graph.MPSCNNNeuronReLUNode(first.result_image, a=0, label="second")
    first._source_images = (second.result_image,)
    with pytest.raises(CycleError, match="second <- first <- second"):
        graph.MPSNNGraph(second.result_image)


def test_sources_must_be_images():
    with pytest.raises(TypeError, match=r"source_images\[0\] is of type ndarray"):
        graph.MPSCNNNeuronReLUNode(np.ones(3), a=0)
    with pytest.raises(ValueError, match="it must have 2"):
        graph.MPSNNAdditionNode([MPSNNImageNode()])


def test_labels_are_made_up_once():
    x = MPSNNImageNode("x")
    first = graph.MPSCNNNeuronReLUNode(x, a=0)
    named = graph.MPSCNNNeuronReLUNode(first.result_image, a=0, label="relu1")
    last = graph.MPSCNNNeuronReLUNode(named.result_image, a=0)
    graph.MPSNNGraph(last.result_image)
    assert [first.label, named.label, last.label] == ["relu2", "relu1", "relu3"]
    assert first.result_image.name == "relu2.out"


def test_gradient_image_of_a_stranger():
    net = network()
    with pytest.raises(NoGradientError, match="'other'"):
        training_graph(net.loss).gradient_image(MPSNNImageNode("other"))
    assert issubclass(NoGradientError, GraphError)
