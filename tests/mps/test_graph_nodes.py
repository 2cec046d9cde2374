"""Nodes: defaults, abstract classes, illegal arguments, and the operations that each node runs."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mpsref import mps, registry
from mpsref.errors import GraphError, ShapeError, UnsupportedError
from mpsref.mps.core.properties import properties_of
from mpsref.mps.graph import MPSNNFilterNode, MPSNNImageNode, training_graph
from tests.mps.graph_checks import Trained
from tests.mps.residual import X, labels, network
from tests.mps.test_graph_mutants import PLANS

STATES = [name for name in mps.graph.__all__ if name.endswith("StateNode") or name == "MPSNNLabelsNode"]


@pytest.mark.parametrize("name", STATES)
def test_states_come_from_filter_nodes(name: str) -> None:
    with pytest.raises(TypeError, match="result_state"):
        getattr(mps.graph, name)(MPSNNImageNode())


def test_defaults_of_an_image() -> None:
    x = MPSNNImageNode()
    assert (x.handle, x.image_allocator, x.export_from_graph) == (None, None, False)
    assert x.format is mps.MPSImageFeatureChannelFormat.NONE
    assert (x.synchronize_resource, x.stop_gradient, x.producer, x.name) == (False, False, None, "input")
    exported = MPSNNImageNode.exported_node_with_handle("kept")
    assert exported.export_from_graph
    assert exported.name == "kept"
    x.format = "float16"
    assert mps.graph.MPSCNNNeuronReLUNode(x, a=0).result_image.format is mps.MPSImageFeatureChannelFormat.Float16


def test_defaults_of_filters() -> None:
    x = MPSNNImageNode()
    lcn, lrn = mps.graph.MPSCNNLocalContrastNormalizationNode(x), mps.graph.MPSCNNCrossChannelNormalizationNode(x)
    assert (lcn.alpha, lcn.beta, lcn.delta, lcn.p0, lcn.pm, lcn.ps) == (1, 0.5, 1 / 1024, 1, 0, 1)
    assert (lcn.kernel_width, lcn.kernel_height, lrn.kernel_size_in_feature_channels) == (5, 5, 5)
    assert (lrn.alpha, lrn.beta, lrn.delta) == (1, 5, 1)
    by_hand = mps.graph.MPSCNNLocalContrastNormalizationGradientNode(x, x, lcn.result_state, 5, 5)
    assert by_hand.alpha == 0
    assert lcn.gradient_filter_with_source(x).alpha == 1
    dilated = mps.graph.MPSCNNDilatedPoolingMaxNode(x, filter_size=3)
    assert (dilated.stride_in_pixels_x, dilated.dilation_rate_y) == (3, 3)
    none = mps.graph.MPSCNNNeuronNode.node_with_source_descriptor(x, mps.MPSNNNeuronDescriptor("none"))
    assert type(none) is mps.graph.MPSCNNNeuronLinearNode
    assert (none.descriptor.a, none.descriptor.b) == (1, 0)
    conv = network("cpu").conv1
    assert conv.convolution_gradient_state is conv.result_state
    assert conv.gradient_filter_with_source(x).training_style is mps.graph.MPSNNTrainingStyle.CPU
    assert mps.graph.MPSCNNConvolutionNode(x, None).training_style is mps.graph.MPSNNTrainingStyle.GPU


def test_gradient_nodes_copy_what_the_forward_node_has() -> None:
    x, g = MPSNNImageNode(), MPSNNImageNode()
    pool = mps.graph.MPSCNNPoolingMaxNode(x, filter_size=2)
    copied = pool.gradient_filter_with_source(g)
    assert (copied.kernel_width, copied.stride_in_pixels_y) == (2, 2)
    assert copied.padding_policy == pool.padding_policy
    sub = mps.graph.MPSNNSubtractionNode(x, x, secondary_scale=2, primary_scale=3, secondary_stride_in_pixels_x=0)
    first, second = sub.gradient_filters_with_source(g)
    assert (first.primary_scale, second.primary_scale) == (3, -2)
    assert (first.secondary_stride_in_pixels_x, second.secondary_stride_in_pixels_x) == (1, 0)
    assert mps.graph.MPSNNSubtractionGradientNode(g, x, sub.result_state, True).primary_scale == -1
    assert first.bias == second.bias == 0


def test_a_gradient_node_belongs_to_its_forward_class() -> None:
    x, g = MPSNNImageNode(), MPSNNImageNode()
    relu, pool = mps.graph.MPSCNNNeuronReLUNode(x, a=0), mps.graph.MPSCNNPoolingMaxNode(x, filter_size=2)
    with pytest.raises(TypeError, match="needs a MPSCNNPoolingMaxGradientNode, not a MPSCNNNeuronGradientNode"):
        mps.graph.MPSCNNNeuronGradientNode(g, x, pool.result_state, relu.descriptor)
    with pytest.raises(TypeError, match="must be the result_state"):
        mps.graph.MPSCNNNeuronGradientNode(g, x, None, relu.descriptor)
    cat = mps.graph.MPSNNConcatenationNode([x, x])
    with pytest.raises(ValueError, match=r"source_index is 2.*\[0, 1\]"):
        mps.graph.MPSNNConcatenationGradientNode(g, x, cat.result_state, 2)
    with pytest.raises(TypeError, match=r"^source_index is "):
        mps.graph.MPSNNConcatenationGradientNode(g, x, cat.result_state, [[1]])
    plain = mps.ArrayConvolutionDataSource(mps.MPSCNNConvolutionDescriptor(1, 1, 1, 1), [1.0])
    with pytest.raises(TypeError, match="result_state of a convolution node"):
        mps.graph.MPSCNNConvolutionTransposeNode(x, relu.result_state, plain)
    fused = mps.MPSCNNConvolutionDescriptor(1, 1, 1, 1, fused_neuron_descriptor=mps.MPSNNNeuronDescriptor("relu"))
    conv = mps.graph.MPSCNNConvolutionNode(x, mps.ArrayConvolutionDataSource(fused, [1.0]))
    with pytest.raises(ValueError, match="fused_neuron_descriptor"):
        conv.gradient_filter_with_source(g)


def test_a_gradient_node_may_have_weights_of_its_own() -> None:
    x, g = MPSNNImageNode("x"), MPSNNImageNode("g")
    descriptor = mps.MPSCNNConvolutionDescriptor(1, 1, 1, 1)
    conv = mps.graph.MPSCNNConvolutionNode(x, mps.ArrayConvolutionDataSource(descriptor, [2.0]), training_style="none")

    def gradient(weights: Any) -> mps.graph.MPSNNGraph:
        node = mps.graph.MPSCNNConvolutionGradientNode(g, x, conv.result_state, weights)
        return mps.graph.MPSNNGraph(node.result_image)

    one = {"x": np.ones((1, 1, 1, 1)), "g": np.ones((1, 1, 1, 1))}
    assert gradient(None).run(one).image.item() == 2
    assert gradient(mps.ArrayConvolutionDataSource(descriptor, [7.0])).run(one).image.item() == 7
    with pytest.raises(ShapeError, match=r"\(1, 1, 1, 2\)"):
        gradient(mps.ArrayConvolutionDataSource(mps.MPSCNNConvolutionDescriptor(1, 1, 2, 1), [7.0, 7.0]))


def test_a_transposed_convolution_undoes_the_size_of_the_convolution_of_its_state() -> None:
    x = MPSNNImageNode("x")
    down = mps.MPSCNNConvolutionDescriptor(3, 3, 2, 4, stride_in_pixels_x=2, stride_in_pixels_y=2)
    up = mps.MPSCNNConvolutionDescriptor(3, 3, 4, 2, stride_in_pixels_x=2, stride_in_pixels_y=2)
    conv = mps.graph.MPSCNNConvolutionNode(x, mps.ArrayConvolutionDataSource(down, np.ones((4, 3, 3, 2))))
    source = mps.ArrayConvolutionDataSource(up, np.ones((2, 3, 3, 4)))
    node = mps.graph.MPSCNNConvolutionTransposeNode(conv.result_image, conv.result_state, source)
    compiled = mps.graph.MPSNNGraph(node.result_image)
    for size in (5, 6):
        assert compiled.infer_shapes({x: (1, size, size, 2)})[node.result_image] == (1, size, size, 2)
        assert compiled.run([np.ones((1, size, size, 2))]).image.shape == (1, size, size, 2)


def test_a_gradient_node_reads_an_image_of_the_right_shape() -> None:
    x, other, g = (MPSNNImageNode(name) for name in ("x", "other", "g"))
    relu = mps.graph.MPSCNNNeuronReLUNode(x, a=0, label="relu")
    gradient = mps.graph.MPSCNNNeuronGradientNode(g, other, relu.result_state, relu.descriptor)
    compiled = mps.graph.MPSNNGraph(gradient.result_image)
    shapes = {"x": (1, 2, 2, 1), "g": (1, 2, 2, 1)}
    assert compiled.infer_shapes({**shapes, "other": (1, 2, 2, 1)})[gradient.result_image] == (1, 2, 2, 1)
    with pytest.raises(ShapeError, match=r"source image 'other' has shape \(1, 2, 3, 1\)"):
        compiled.infer_shapes({**shapes, "other": (1, 2, 3, 1)})
    with pytest.raises(ShapeError, match=r"source gradient 'g' has shape \(1, 1, 2, 1\)"):
        compiled.infer_shapes({**shapes, "g": (1, 1, 2, 1), "other": (1, 2, 2, 1)})


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda x: mps.graph.MPSNNPadNode(x, (1, 2), (0, 0, 0)), ValueError, "padding_size_before"),
        (lambda x: mps.graph.MPSCNNDropoutNode(x, 0.5, 1, (1, 2, 1)), ValueError, "mask_stride_in_pixels"),
        (lambda x: mps.graph.MPSNNConcatenationNode([]), ValueError, "at least one"),
        (lambda x: mps.graph.MPSCNNLossNode(x, "softmax"), TypeError, "MPSCNNLossDescriptor"),
        (
            lambda x: mps.graph.MPSNNForwardLossNode(x, None, mps.MPSCNNLossDescriptor("hinge", "sum")),
            ValueError,
            "2 or 3",
        ),
        (lambda x: mps.graph.MPSNNGraph(mps.graph.MPSCNNSoftMaxNode(x)), TypeError, "take its result_image"),
        (lambda x: mps.graph.MPSNNGraph(3), TypeError, "result_images is of type int"),
        (lambda x: training_graph(x), TypeError, "last is of type MPSNNImageNode"),
        (lambda x: training_graph(mps.graph.MPSNNInitialGradientNode(x), node_handler=3), TypeError, "node_handler"),
        (lambda x: setattr(x, "image_allocator", 3), TypeError, "image_allocator"),
        (lambda x: setattr(x, "format", "int8"), ValueError, "format"),
        (lambda x: MPSNNImageNode([]), TypeError, "hashable"),
    ],
)
def test_bad_arguments(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make(MPSNNImageNode())


@pytest.mark.parametrize(
    ("memory", "error"),
    [
        (np.zeros((2, 1, 1, 2), np.float32), ShapeError),
        (np.zeros((1, 1, 1, 2)), TypeError),
        (3, TypeError),
        (np.broadcast_to(np.float32(0), (1, 1, 1, 2)), TypeError),
    ],
)
def test_an_allocator_must_return_what_was_asked_for(memory: Any, error: type[Exception]) -> None:
    relu = mps.graph.MPSCNNNeuronReLUNode(MPSNNImageNode("x"), a=0)
    compiled = mps.graph.MPSNNGraph(relu.result_image, destination_image_allocator=lambda shape, dtype: memory)
    with pytest.raises(error, match="allocator"):
        compiled.run([np.ones((1, 1, 1, 2))])


def test_an_image_that_is_no_needed_result_is_not_handed_out() -> None:
    x = MPSNNImageNode("x")
    first = mps.graph.MPSCNNNeuronReLUNode(x, a=0)
    last = mps.graph.MPSCNNNeuronReLUNode(first.result_image, a=0)
    result = mps.graph.MPSNNGraph([last.result_image, first.result_image], [True, False]).run([np.ones((1, 2, 2, 1))])
    assert result.images[1] is None
    assert result.intermediate_images == {first.result_image: None}


def test_what_is_set_after_compiling_is_for_later_graphs() -> None:
    x = MPSNNImageNode("x")
    add = mps.graph.MPSNNAdditionNode(x, x)
    before = mps.graph.MPSNNGraph(add.result_image)
    add.bias, add.result_image.format = 5.0, "float16"
    after = mps.graph.MPSNNGraph(add.result_image)
    for size in (1, 2):
        one = np.ones((1, size, 1, 1))
        assert (before.run([one]).image.ravel()[0], before.run([one]).image.dtype) == (2, np.float32)
        assert (after.run([one]).image.ravel()[0], after.run([one]).image.dtype) == (7, np.float16)


# --- operations ---------------------------------------------------------------------------------------------------


def spying() -> tuple[registry.Backend, set[Any]]:
    """A backend that runs the reference and records the operations."""
    used: set[Any] = set()
    reference = registry.get_backend("reference")

    def noting(key: Any) -> Any:
        def run(problem: Any, *inputs: Any, out: Any) -> None:
            used.add(key)
            reference.implementations[key](problem, *inputs, out=out)

        return run

    return registry.Backend("spy", {key: noting(key) for key in registry.operations()}, dtypes=reference.dtypes), used


def windowed() -> tuple[mps.graph.MPSNNGraph, list[Any], list[Any]]:
    """Return a chain of the forward nodes of one image that are not in the plans."""
    x = image = MPSNNImageNode("x")
    for node in (
        lambda i: mps.graph.MPSCNNSpatialNormalizationNode(i, 3, beta=0.5),
        lambda i: mps.graph.MPSCNNLocalContrastNormalizationNode(i, 3, delta=1.0),
        lambda i: mps.graph.MPSCNNCrossChannelNormalizationNode(i, 3, beta=0.5),
        lambda i: mps.graph.MPSCNNPoolingL2NormNode(i, filter_size=2, stride=1),
        lambda i: mps.graph.MPSCNNDilatedPoolingMaxNode(i, 2, 2, 1, 1, 2, 1),
        lambda i: mps.graph.MPSNNReshapeNode(i, 8, 2, 4),
        lambda i: mps.graph.MPSNNAdditionNode(i, i, maximum_value=3.0, bias=0.5),
    ):
        image = node(image).result_image
    spy, used = spying()
    made = training_graph(mps.graph.MPSNNInitialGradientNode(image))
    image = np.random.default_rng(1).normal(size=(1, 4, 4, 4))
    return mps.graph.MPSNNGraph(made.gradient_image(x), backend=spy), [image], [used]


def residual() -> tuple[mps.graph.MPSNNGraph, list[Any], list[Any]]:
    net = network()
    spy, used = spying()
    for node in (net.conv1, net.bn1, net.conv2, net.bn2, net.fc):
        node.result_state.export_from_graph = True
    return mps.graph.MPSNNGraph(training_graph(net.loss).gradient_image(net.x), backend=spy), [X, labels()], [used]


def declared(compiled: mps.graph.MPSNNGraph) -> set[Any]:
    return {operation for step in compiled.program.steps for operation in step.compiled._operations(step)}


@pytest.mark.parametrize("make", [windowed, residual])
def test_each_operation_that_runs_was_declared(make: Any) -> None:
    compiled, (image, *states), (used,) = make()
    compiled.run([image], states)
    assert used == declared(compiled)


@pytest.mark.parametrize("plan", PLANS)
def test_each_operation_of_a_plan_was_declared(plan: Any) -> None:
    spy, used = spying()
    trained = Trained(plan, backend=spy)
    trained.run()
    assert used == declared(trained.compiled)


@pytest.mark.parametrize("make", [windowed, residual])
def test_a_backend_that_lacks_an_operation_is_refused_before_anything_runs(make: Any) -> None:
    compiled, _, _ = make()
    whole = compiled.backend
    for missing in declared(compiled):
        poor = registry.Backend("poor", {key: one for key, one in whole.implementations.items() if key != missing})
        with pytest.raises(UnsupportedError, match=f"'poor' does not implement {missing}"):
            mps.graph.MPSNNGraph(compiled.program.result_images, backend=poor)
    assert issubclass(GraphError, ValueError)


def check_training(backend: str, format: str) -> None:
    net = network()
    net.fc.result_state.export_from_graph = True
    compiled = mps.graph.MPSNNGraph(training_graph(net.loss).gradient_image(net.x), backend=backend, format=format)
    result = compiled.run([X], [labels()])
    assert result.image.dtype == format
    assert result.result_states[net.fc.result_state].gradient_for_weights.dtype == np.float32
    assert float(result.loss["loss"].sum()) == pytest.approx(3.2279555, rel=1e-2 if format == "float16" else 1e-5)


def test_float32_trains_on_every_backend(backend: str) -> None:
    check_training(backend, "float32")


def test_float16_trains() -> None:
    check_training("reference", "float16")


def test_an_empty_batch() -> None:
    x = MPSNNImageNode("x")
    pool = mps.graph.MPSCNNPoolingMaxNode(mps.graph.MPSCNNNeuronReLUNode(x, a=0.5).result_image, filter_size=2)
    made = training_graph(mps.graph.MPSNNInitialGradientNode(pool.result_image))
    compiled = mps.graph.MPSNNGraph([pool.result_image, made.gradient_image(x)])
    assert [image.shape for image in compiled.run([np.ones((0, 4, 4, 1))]).images] == [(0, 2, 2, 1), (0, 4, 4, 1)]


def _families() -> list[ModuleType]:
    """Return the modules of ``mpsref.mps`` with both kernels and nodes."""
    names = (info.name for info in pkgutil.iter_modules(mps.__path__) if not info.ispkg)
    return [importlib.import_module(f"mpsref.mps.{name}") for name in names]


@pytest.mark.parametrize("family", _families(), ids=lambda family: family.__name__)
def test_a_node_takes_a_property_from_the_declaration_of_its_kernel(family: ModuleType) -> None:
    kinds = [kind for kind in vars(family).values() if isinstance(kind, type)]
    kernels = [properties_of(kind) for kind in kinds if issubclass(kind, mps.MPSKernel)]
    for kind in kinds:
        if not issubclass(kind, MPSNNFilterNode):
            continue
        for name in properties_of(kind).keys() - properties_of(MPSNNFilterNode).keys():
            declared = [properties[name] for properties in kernels if name in properties]
            own = properties_of(kind)[name]
            same = [own.check is one.check and own.__doc__ == one.__doc__ for one in declared]
            assert any(same) or not declared, f"{kind.__name__}.{name} is declared again"
