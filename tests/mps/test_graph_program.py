"""The program of a compiled graph: order, pruning, inputs, results, and its text forms."""

from __future__ import annotations

import pytest

from mpsref.errors import GraphError, SharedDataSourceWarning
from mpsref.mps import BatchNormalizationDataSource, graph
from mpsref.mps.graph import MPSNNImageNode, training_graph
from tests.mps.residual import SHAPE, network

TABLE = """\
step  kind      class                                 label           reads                            reads state  result              shape
0     forward   MPSCNNConvolutionNode                 conv1           x                                             conv1.out           2x8x8x8
1     forward   MPSCNNBatchNormalizationNode          bn1             conv1.out                                     bn1.out             2x8x8x8
2     forward   MPSCNNNeuronReLUNode                  relu1           bn1.out                                       relu1.out           2x8x8x8
3     forward   MPSCNNConvolutionNode                 conv2           relu1.out                                     conv2.out           2x8x8x8
4     forward   MPSCNNBatchNormalizationNode          bn2             conv2.out                                     bn2.out             2x8x8x8
5     forward   MPSNNAdditionNode                     add             bn2.out, relu1.out                            add.out             2x8x8x8
6     forward   MPSCNNNeuronReLUNode                  relu2           add.out                                       relu2.out           2x8x8x8
7     forward   MPSCNNPoolingMaxNode                  pmax            relu2.out                                     pmax.out            2x4x4x8
8     forward   MPSCNNPoolingAverageNode              pavg            relu2.out                                     pavg.out            2x4x4x8
9     forward   MPSNNConcatenationNode                cat             pmax.out, pavg.out                            cat.out             2x4x4x16
10    forward   MPSCNNFullyConnectedNode              fc              cat.out                                       fc.out              2x1x1x5
11    forward   MPSCNNLossNode                        loss            fc.out                           loss.labels  loss.out            2x1x1x5
12    gradient  MPSCNNFullyConnectedGradientNode      fc.grad         loss.out, cat.out                fc.state     fc.grad.out         2x4x4x16
13    gradient  MPSNNConcatenationGradientNode        cat.grad[1]     fc.grad.out, pavg.out            cat.state    cat.grad[1].out     2x4x4x8
14    gradient  MPSCNNPoolingAverageGradientNode      pavg.grad       cat.grad[1].out, relu2.out       pavg.state   pavg.grad.out       2x8x8x8
15    gradient  MPSNNConcatenationGradientNode        cat.grad[0]     fc.grad.out, pmax.out            cat.state    cat.grad[0].out     2x4x4x8
16    gradient  MPSCNNPoolingMaxGradientNode          pmax.grad       cat.grad[0].out, relu2.out       pmax.state   pmax.grad.out       2x8x8x8
17    inserted  MPSNNAdditionNode                     relu2.out.sum0  pavg.grad.out, pmax.grad.out                  relu2.out.sum0.out  2x8x8x8
18    gradient  MPSCNNNeuronGradientNode              relu2.grad      relu2.out.sum0.out, add.out      relu2.state  relu2.grad.out      2x8x8x8
19    gradient  MPSNNAdditionGradientNode             add.grad[1]     relu2.grad.out, relu1.out        add.state    add.grad[1].out     2x8x8x8
20    gradient  MPSNNAdditionGradientNode             add.grad[0]     relu2.grad.out, bn2.out          add.state    add.grad[0].out     2x8x8x8
21    gradient  MPSCNNBatchNormalizationGradientNode  bn2.grad        add.grad[0].out, conv2.out       bn2.state    bn2.grad.out        2x8x8x8
22    gradient  MPSCNNConvolutionGradientNode         conv2.grad      bn2.grad.out, relu1.out          conv2.state  conv2.grad.out      2x8x8x8
23    inserted  MPSNNAdditionNode                     relu1.out.sum1  add.grad[1].out, conv2.grad.out               relu1.out.sum1.out  2x8x8x8
24    gradient  MPSCNNNeuronGradientNode              relu1.grad      relu1.out.sum1.out, bn1.out      relu1.state  relu1.grad.out      2x8x8x8
25    gradient  MPSCNNBatchNormalizationGradientNode  bn1.grad        relu1.grad.out, conv1.out        bn1.state    bn1.grad.out        2x8x8x8
26    gradient  MPSCNNConvolutionGradientNode         conv1.grad      bn1.grad.out, x                  conv1.state  conv1.grad.out      2x8x8x3"""  # noqa: E501

MERMAID = """\
flowchart TD
  i0(["x"])
  i1(["w"])
  n0["sm<br/>MPSCNNSoftMaxNode"]
  n1["mul<br/>MPSNNMultiplicationNode"]
  n2["one<br/>MPSNNInitialGradientNode"]
  n3[["mul.grad[0]<br/>MPSNNMultiplicationGradientNode"]]
  n4[["sm.grad<br/>MPSCNNSoftMaxGradientNode"]]
  i0 --> n0
  n0 --> n1
  i1 --> n1
  n1 --> n2
  n2 --> n3
  i1 --> n3
  n1 -.->|state| n3
  n3 --> n4
  n0 --> n4
  n0 -.->|state| n4
  n4 ==> r0(["result 0"])"""


def keep_names(new, forward, image, gradient):
    """A handler without effect, so that images have the names of their nodes."""


def compiled(net, needed=True, **words):
    made = training_graph(net.loss, node_handler=keep_names)
    results = [node.result_image for node in made.termini]
    return graph.MPSNNGraph(results, [needed] * len(results), **words)


def weighted_softmax():
    x, w = MPSNNImageNode("x"), MPSNNImageNode("w")
    sm = graph.MPSCNNSoftMaxNode(x, label="sm")
    mul = graph.MPSNNMultiplicationNode(sm.result_image, w, label="mul")
    one = graph.MPSNNInitialGradientNode(mul.result_image, label="one")
    return graph.MPSNNGraph(training_graph(one, node_handler=keep_names).gradient_image(x))


def test_table_of_the_residual_network():
    built = compiled(network())
    lines = built.table({"x": SHAPE}).splitlines()
    assert "\n".join(lines[:28]) == TABLE
    assert lines[28:] == ["inputs: x", "input states: loss.labels", "results: conv1.grad.out", "exports: -"]
    assert str(built) == built.debug_description == built.table()
    assert "?" in str(built)
    assert [image.name for image in built.source_images] == ["x"]
    assert [state.name for state in built.source_states] == ["loss.labels"]
    assert built.read_count_for_source_image_at_index(0) == 2
    assert built.read_count_for_source_state_at_index(0) == 1


def test_order_of_construction_does_not_matter():
    first = compiled(network()).table()
    net = network()
    net.pavg, net.pmax = (graph.MPSCNNPoolingAverageNode, graph.MPSCNNPoolingMaxNode)
    relu2 = net.relu2.result_image
    average, largest = net.pavg(relu2, filter_size=2, label="pavg"), net.pmax(relu2, filter_size=2, label="pmax")
    cat = graph.MPSNNConcatenationNode([largest.result_image, average.result_image], label="cat")
    fc = graph.MPSCNNFullyConnectedNode(cat.result_image, net.w3, label="fc", training_style="none")
    net.loss = graph.MPSCNNLossNode(fc.result_image, net.descriptor, label="loss")
    assert compiled(net).table() == first


def test_unneeded_result_of_a_step_that_trains():
    net = network("cpu")
    for source in (net.w1, net.w2, net.w3):
        source.update_cpu = lambda gradient, parameters: True
    built = compiled(net, needed=False)
    last = built.program.steps[-1]
    assert (len(built.program.steps), last.result_is_needed) == (27, False)
    assert built.table().splitlines()[27].split()[-2:] == ["-", "?"]


def test_inference_is_a_part_of_the_same_nodes():
    net = network()
    inference = graph.MPSNNGraph(net.fc.result_image)
    assert [step.node.label for step in inference.program.steps][-1] == "fc"
    assert len(inference.program.steps) == 11
    assert not any(step.state_is_read for step in inference.program.steps)


def test_stop_gradient_prunes():
    net = network("gpu")
    for source in (net.w1, net.w2, net.w3):
        source.update = lambda gradient, parameters, command_buffer=None: None
    net.relu1.result_image.stop_gradient = True
    built = compiled(net, needed=False)
    labels = [step.node.label for step in built.program.steps]
    assert len(labels) == 22
    assert "add.grad[1]" not in labels
    assert "conv2.grad" in labels
    by_label = {step.node.label: step for step in built.program.steps}
    assert not by_label["bn1"].state_is_read
    assert by_label["bn2"].state_is_read


def test_a_cut_graph_recomputes_the_forward_part():
    net = network()
    start = MPSNNImageNode("grad_in")
    made = training_graph(net.fc, start, keep_names)
    assert len(made.nodes) == 15
    built = graph.MPSNNGraph([node.result_image for node in made.termini])
    assert [image.name for image in built.source_images] == ["x", "grad_in"]
    assert len(built.program.steps) == 26


def test_mermaid():
    assert weighted_softmax().to_mermaid() == MERMAID
    with_shapes = weighted_softmax().to_mermaid({"x": (1, 2, 3, 4), "w": (1, 2, 3, 4)})
    assert "  i0 -->|1x2x3x4| n0" in with_shapes


@pytest.mark.parametrize("drawing", ["to_mermaid", "to_dot"])
def test_a_node_a_step_and_an_edge_an_argument(drawing):
    built = compiled(network())
    lines = getattr(built, drawing)().splitlines()
    dot = drawing == "to_dot"
    steps = built.program.steps
    arguments = sum(len(step.node.source_images) + len(step.node.source_states) for step in steps)
    arrows = [line for line in lines if ("->" in line if dot else "-->" in line or "-.->" in line)]
    assert len(arrows) == arguments + (1 if dot else 0)
    nodes = [line for line in lines if line.strip().startswith("n") and line not in arrows and "==>" not in line]
    assert len(nodes) == len(steps)


def test_names_in_drawings_are_quoted():
    x = MPSNNImageNode('a "name"')
    built = graph.MPSNNGraph(graph.MPSCNNNeuronReLUNode(x, a=0, label='"r"').result_image)
    assert 'i0(["a #quot;name#quot;"])' in built.to_mermaid()
    assert 'label="a \\"name\\""' in built.to_dot()


def test_handles_and_exports():
    x = MPSNNImageNode("x")
    first = graph.MPSCNNNeuronReLUNode(x, a=0, label="first")
    first.result_image.handle, first.result_image.export_from_graph = "kept", True
    first.result_state.export_from_graph = True
    second = graph.MPSCNNNeuronReLUNode(first.result_image, a=0, label="second")
    third = graph.MPSCNNNeuronReLUNode(first.result_image, a=0.5, label="third")
    built = graph.MPSNNGraph([second.result_image, third.result_image])
    assert built.source_image_handles == ("x",)
    assert built.intermediate_image_handles == ("kept", None)
    assert [image.name for image in built.intermediate_images] == ["kept", "third.out"]
    assert built.result_states == (first.result_state,)
    assert built.result_state_handles == (None,)
    assert (built.result_handle, built.result_image_is_needed) == (None, True)
    assert built.source_state_handles == ()
    assert built.table().splitlines()[-1] == "exports: kept, first.state"


def test_equal_labels_are_told_apart_in_tables():
    x = MPSNNImageNode("x")
    first = graph.MPSCNNNeuronReLUNode(x, a=0, label="same")
    second = graph.MPSCNNNeuronReLUNode(first.result_image, a=0, label="same")
    lines = graph.MPSNNGraph(second.result_image).table().splitlines()
    assert [line.split()[3] for line in lines[1:3]] == ["same", "same#2"]


def test_inputs_without_a_handle_get_numbers():
    built = graph.MPSNNGraph(graph.MPSNNAdditionNode(MPSNNImageNode(), MPSNNImageNode()).result_image)
    assert [image.name for image in built.source_images] == ["input1", "input2"]


def test_nothing_to_compute():
    x = MPSNNImageNode("x")
    relu = graph.MPSCNNNeuronReLUNode(x, a=0)
    with pytest.raises(GraphError, match=r"'x'.*made by no filter"):
        graph.MPSNNGraph(x)
    with pytest.raises(GraphError, match="nothing is left"):
        graph.MPSNNGraph(relu.result_image, False)
    with pytest.raises(GraphError, match="2 values; there are 1"):
        graph.MPSNNGraph(relu.result_image, [True, False])
    with pytest.raises(GraphError, match="empty"):
        graph.MPSNNGraph([])


def test_a_shared_data_source_warns():
    source = BatchNormalizationDataSource(3, mean=[0.0] * 3, variance=[1.0] * 3)
    x = MPSNNImageNode("x")
    first = graph.MPSCNNBatchNormalizationNode(x, source, label="first")
    second = graph.MPSCNNBatchNormalizationNode(first.result_image, source, label="second")
    with pytest.warns(SharedDataSourceWarning, match="first, second"):
        graph.MPSNNGraph(second.result_image)
