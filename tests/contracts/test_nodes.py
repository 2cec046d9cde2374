"""What holds for every node of a graph with every padding policy: it computes what its class does, within its images.

Windows, strides and images are such that each policy has a placement of its own.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mpsref import ShapeError, UnsupportedError, mps, registry
from mpsref.arguments.arrays import Array
from mpsref.conformance.guards import GuardedArray
from mpsref.mps import MPSNNDefaultPadding, graph
from mpsref.mps import MPSNNPaddingMethod as M
from mpsref.mps.core.call import Call
from mpsref.mps.core.properties import properties_of
from mpsref.mps.core.whole_image import WholeImage
from mpsref.mps.graph.nodes import GradientKernelNode, MPSNNFilterNode, MPSNNGradientFilterNode
from tests import few
from tests.conftest import AVAILABLE
from tests.subjects.classes import MADE, X, arguments

NODES: list[Any] = [
    kind for kind in MADE if issubclass(kind, MPSNNFilterNode) and not issubclass(kind, MPSNNGradientFilterNode)
]
GRADIENTS = {kind for kind in MADE if issubclass(kind, MPSNNGradientFilterNode)}
FOLLOWING = [kind for kind in NODES if kind.custom_policy == "followed"]

# ---- policies -------------------------------------------------------------------------------------------------------

WAYS = [M.AlignCentered | remainder << 2 for remainder in range(4)] + [M.AlignTopLeft, M.AlignBottomRight]
POLICIES: dict[str, mps.MPSNNPadding] = {
    f"{style} {int(way)}": MPSNNDefaultPadding(getattr(M, style) | way)
    for style, way in itertools.product(("SizeSame", "SizeValidOnly", "SizeFull"), WAYS)
} | {
    "TensorFlow": MPSNNDefaultPadding.padding_for_tensorflow_average_pooling(),
    "TensorFlow valid": MPSNNDefaultPadding.padding_for_tensorflow_average_pooling_valid_only(),
}


class Custom(mps.MPSNNPadding):
    """Sets properties of the kernel, and changes the suggested descriptor."""

    padding_method = M.Custom | M.SizeSame

    def __init__(self, descriptor: Mapping[str, Any], **properties: Any) -> None:
        self.changes, self.properties = descriptor, properties

    def destination_image_descriptor_for_source_images(
        self, source_images: Any, source_states: Any, kernel: Any, descriptor: mps.MPSImageDescriptor
    ) -> mps.MPSImageDescriptor:
        for name, value in self.properties.items():
            setattr(kernel, name, value)
        n, height, width, channels = descriptor.shape
        given = {
            "channel_format": descriptor.channel_format,
            "width": width,
            "height": height,
            "feature_channels": channels,
            "number_of_images": n,
        }
        return mps.MPSImageDescriptor(**given | self.changes)


CUSTOM = {
    "offset": Custom({}, offset=(1, -1, 0)),
    "clip": Custom({}, clip_rect=((1, 0, 0), (1, 2, 2))),
    "clip far outside": Custom({}, clip_rect=((1, 1, 0), (99, 99, 1))),
    "second image": Custom({"number_of_images": 1}, offset=(0, 1, 1)),
    "channels read": Custom(
        {"feature_channels": 3}, source_feature_channel_offset=4, source_feature_channel_max_count=3
    ),
    "channels written": Custom({"feature_channels": 16}, destination_feature_channel_offset=4),
    "size": Custom({"width": 3, "height": 4}),
    "too few channels": Custom({"feature_channels": 1}),
    "more images": Custom({"number_of_images": 3}),
    "format": Custom({"channel_format": "float16"}),
    "all at once": Custom(
        {"channel_format": "float16", "width": 4, "feature_channels": 12},
        offset=(1, 0, 1),
        clip_rect=((1, 0, 1), (2, 3, 1)),
        destination_feature_channel_offset=4,
    ),
}

# ---- subjects -------------------------------------------------------------------------------------------------------

IMAGE = np.random.default_rng(0).uniform(0.5, 1.5, (2, 5, 6, 8)).astype(np.float32)
WINDOWS = [(4, 2, 3, 4), (3, 3, 4, 1), (4, 3, 1, 3)]
"""Width and height of a window, and strides in x and y: together they tell all policies apart, see below."""


def source_of_weights(name: str, width: int, height: int, x: int, y: int) -> mps.ArrayConvolutionDataSource:
    descriptor = mps.MPSCNNConvolutionDescriptor(width, height, 8, 4, stride_in_pixels_x=x, stride_in_pixels_y=y)
    weights = np.random.default_rng(1).standard_normal((4, height, width, 8)).astype(np.float32)
    return mps.ArrayConvolutionDataSource(descriptor, weights, np.float32([1, 2, 3, 4]))


def variants(kind: Any) -> list[dict[str, Any]]:
    """Return arguments of a node, with windows that no axis and no policy leaves as they are."""
    known = inspect.signature(kind).parameters
    if "filter_size" in known:
        names = "kernel_width", "kernel_height", "stride_in_pixels_x", "stride_in_pixels_y"
        dilated = {"dilation_rate_x": 1, "dilation_rate_y": 2} if "dilation_rate" in known else {}
        return [dict(zip(names, windows, strict=True)) | dilated for windows in WINDOWS]
    if issubclass(kind, graph.MPSCNNConvolutionNode) and kind in FOLLOWING:
        name = "weights"
        given = {"convolution_gradient_state": None} if "convolution_gradient_state" in known else {}
        return [given | {name: source_of_weights(kind.__name__, *windows)} for windows in WINDOWS]
    if kind in FOLLOWING:
        return [{"kernel_size": 2}, {"kernel_size": 3}]
    given = {key: value for key, value in arguments(kind).items() if not isinstance(value, graph.MPSNNImageNode)}
    return [given | ({"result_height": 4, "result_feature_channels": 4} if kind is graph.MPSNNReshapeNode else {})]


def node_of(kind: Any, given: Mapping[str, Any], policy: mps.MPSNNPadding | None = None) -> tuple[Any, Array]:
    """Return a new node, and the values of its sources."""
    images = {key: value for key, value in arguments(kind).items() if isinstance(value, graph.MPSNNImageNode)}
    node = kind(**images | given)
    if policy is not None:
        node.padding_policy = policy
    if kind is graph.MPSCNNBatchNormalizationNode:
        node.flags = "always"
    if hasattr(node, "training_style"):
        node.training_style = "none"  # its data source has no update
    if kind in FOLLOWING:
        return node, IMAGE
    x = X + np.float32(0.25)
    return node, np.concatenate([x] * 3, 3) if kind is graph.MPSCNNYOLOLossNode else x


def run(image: graph.MPSNNImageNode, values: Mapping[Any, Array], backend: str, **options: Any) -> Array:
    """Return an image of a graph; inputs without a value are labels."""
    compiled = graph.MPSNNGraph(image, backend=backend, **options)
    given = {source: values[source] for source in compiled.source_images}
    labels = {
        state: mps.MPSCNNLossLabels((1, 1, 1), labels_image=next(iter(given.values())) / 2)
        for state in compiled.source_states
    }
    result = compiled.run(given, labels, dropout_sequence=0).image
    assert result is not None
    return result


def forward(node: Any, x: Array, backend: str, **options: Any) -> Array:
    return run(node.result_image, inputs(node, x), backend, **options)


def inputs(node: Any, x: Array) -> dict[Any, Array]:
    """Return values for the sources of a node: different ones, if there are several."""
    return {source: x * x.dtype.type(1 + 0.5 * k) for k, source in enumerate(node.source_images)}


def by_hand(automatic: Any, **others: Any) -> Any:
    """Return a gradient node with the arguments that an application passes: those of the automatic one, and others."""
    known = inspect.signature(type(automatic)).parameters
    images = dict(zip(("source_gradient", "source_image", "labels"), automatic.source_images, strict=False))
    given = {}
    for name, one in known.items():
        if name.endswith("gradient_state"):
            given[name] = automatic.gradient_state
        elif name in images:
            given[name] = images[name]
        elif one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL) or name in ("weights", "padding_policy"):
            continue
        elif name == "kernel_size":
            given[name] = getattr(automatic, automatic.sizes[0])
        else:
            given[name] = getattr(automatic, name.replace("scale_factor", "integer_scale_factor"))
    node = type(automatic)(**given | others)
    for name, prop in properties_of(type(automatic)).items():
        if not (prop.read_only or others) and name not in ("label", "padding_policy", "backend"):
            setattr(node, name, getattr(automatic, name))
    return node


def gradients(node: Any) -> tuple[graph.MPSNNImageNode, list[dict[str, Any]]]:
    """Return the image of the source gradient, and gradient nodes of each source: automatic, by hand, by training."""
    g = graph.MPSNNImageNode("g")
    found = []
    trained = graph.training_graph(node, g)
    for k, automatic in zip(node.differentiable_sources, node.gradient_filters_with_source(g), strict=True):
        found.append(
            {
                "automatic": automatic.result_image,
                "by hand": by_hand(automatic).result_image,
                "training": trained.gradient_image(node.source_images[k]),
            }
        )
    return g, found


# ---- classes --------------------------------------------------------------------------------------------------------

WITHOUT_KERNEL = {
    "CustomKernelNode": "its kernel is an argument, see tests/mps/test_custom_kernels.py",
    "MPSCNNBatchNormalizationNode": "its class reads a state of its own, see tests/mps/test_batch_normalization.py",
    "MPSCNNDropoutNode": "its masks are those of a run, see tests/mps/test_dropout.py",
    "MPSCNNLossNode": "its result is the gradient, see tests/mps/test_loss.py",
    "MPSCNNYOLOLossNode": "its result is the gradient, see tests/mps/test_yolo_loss.py",
    "MPSNNConcatenationNode": "MPS has no class of it",
    "MPSNNForwardLossNode": "its class reads labels that are a state, see tests/mps/test_loss.py",
    "MPSNNReductionSpatialMeanNode": "MPS has no class of it",
    "MPSNNReshapeNode": "the size is an argument of the encode of its class",
}
NAMES = {
    "MPSNNAdditionNode": "MPSCNNAdd",
    "MPSNNSubtractionNode": "MPSCNNSubtract",
    "MPSNNMultiplicationNode": "MPSCNNMultiply",
    "MPSNNDivisionNode": "MPSCNNDivide",
    "MPSNNComparisonNode": "MPSNNCompare",
    "MPSCNNNeuronGeLUNode": "MPSCNNNeuron",
}
RENAMED = {"kernel_size": "kernel_size_in_feature_channels", "neuron_descriptor": "descriptor"}
"""Properties of kernels, and their names on nodes."""


def class_of(kind: Any) -> Any:
    name = NAMES.get(kind.__name__, kind.__name__.removesuffix("Node").replace("Reduction", "Reduce"))
    return getattr(mps, name)


def kernel_of(node: Any, kind: Any, **properties: Any) -> Any:
    """Return the kernel of a class with the properties of a node."""

    given = {"data": node.descriptor.data} if kind is mps.MPSCNNNeuronPReLU else {}
    for name in inspect.signature(kind).parameters:
        own = RENAMED.get(name, name)
        if hasattr(node, own) and name not in ("backend", "label"):
            given[name] = getattr(node, own)
    kernel = kind(**given, **properties)
    if issubclass(kind, mps.MPSCNNArithmeticGradient):
        return kernel  # its scales are those of the derivative
    for name, prop in properties_of(kind).items():
        if not prop.read_only and name not in ("backend", "label", "edge_mode") and hasattr(node, name):
            setattr(kernel, name, getattr(node, name))
    if "Pooling" in kind.__name__ and hasattr(kernel, "edge_mode"):
        kernel.edge_mode = "clamp"  # of nodes [doc]
    return kernel


def class_results(node: Any, x: Array, backend: str) -> Iterator[Any]:
    """Yield the result of the class of a node, then a function of a source gradient that returns the gradients."""
    kind = class_of(type(node))
    options = {"padding": node.padding_policy} if type(node) in FOLLOWING else {}
    kernel = kernel_of(node, kind, backend=backend, **options)
    images = list(inputs(node, x).values())
    if not node.differentiable_sources:
        yield kernel.encode(*images)
        return
    y, state = kernel.encode(*images, return_state=True)
    yield y

    def gradient(g: Array, state: Any = state) -> list[Array]:
        found = []
        for k in node.differentiable_sources:
            words = {"is_secondary_source_filter": k == 1} if len(images) > 1 else {}
            name = "MPSCNNNeuron" if "Neuron" in kind.__name__ else kind.__name__
            one = kernel_of(node, getattr(mps, f"{name}Gradient"), backend=backend, **words)
            second = y if "SoftMax" in name else images[1 - k if "Multiply" in name else k]
            found.append(one.encode(g, second, state))
        return found

    yield gradient


# ---- contracts ------------------------------------------------------------------------------------------------------

DIFFERENTIABLE = [kind for kind in NODES if kind.gradient_class is not None]
every_node = pytest.mark.parametrize("kind", NODES, ids=lambda kind: kind.__name__)


def policies_of(kind: Any) -> dict[str, Any]:
    """Return all policies for a node that has windows, and a few for one whose class does not depend on them."""
    if kind in FOLLOWING:
        return POLICIES | CUSTOM
    return {name: POLICIES[name] for name in ("SizeFull 2", "SizeValidOnly 1", "TensorFlow")}


def clamps(node: Any) -> bool:
    """Return whether it is a convolution at clamped pixels, for which Apple defines no gradient for the data."""
    return isinstance(node, graph.MPSCNNConvolutionNode) and getattr(node.padding_policy, "edge_mode", None) is not None


def check_class(kind: Any, given: Mapping[str, Any], policy: Any, backend: str = "cpu") -> bool:
    """Check that node and class agree, or both refuse the policy; return whether they agree."""
    node, x = node_of(kind, given, policy)
    expected = class_results(node, x, backend)
    try:
        y = next(expected)
    except (ValueError, UnsupportedError) as error:
        with pytest.raises((ValueError, UnsupportedError), match=re.escape(str(error)[:20])):
            forward(node, x, backend)
        return False
    np.testing.assert_allclose(forward(node, x, backend), y, 1e-6, 1e-6)
    if kind not in DIFFERENTIABLE or len(y) != len(x):  # all inputs of a graph have as many images
        return True
    right, (g, found) = next(expected), gradients(node)
    node.result_state.export_from_graph = True
    (exported,) = graph.MPSNNGraph(node.result_image, backend=backend).run(inputs(node, x)).result_states.values()
    values = np.random.default_rng(2).standard_normal(y.shape).astype(np.float32)
    images = inputs(node, x) | {g: values}
    if kind in FOLLOWING and clamps(node):
        with pytest.raises(UnsupportedError, match=r"Apple defines no gradient|the data gradient is defined"):
            right(values)
        for image in found[0].values():
            with pytest.raises(UnsupportedError, match="the data gradient is defined"):
                run(image, images, backend)
        return True
    for ways, due, other in zip(found, right(values), right(values, exported), strict=True):
        np.testing.assert_array_equal(other, due, "with the state that the graph exports")
        for way, image in ways.items():
            np.testing.assert_allclose(run(image, images, backend), due, 2e-6, 2e-6, err_msg=way)
    return True


def test_every_policy_has_a_placement_of_its_own() -> None:
    """Otherwise the tests of this module would see less than they say."""
    found = []
    for policy in POLICIES.values():
        kernels = [mps.MPSCNNPoolingMax(*windows, padding=policy) for windows in WINDOWS]
        found.append(str([(kernel.infer_padding(IMAGE.shape), kernel.offset, kernel.edge_mode) for kernel in kernels]))
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    "kind", [kind for kind in NODES if kind.__name__ not in WITHOUT_KERNEL], ids=lambda kind: kind.__name__
)
def test_a_node_computes_what_its_class_does(kind: Any) -> None:
    """Forward and gradient, for every policy; what the class refuses, the node refuses."""
    for given in variants(kind):
        agree = {name for name, policy in policies_of(kind).items() if check_class(kind, given, policy)}
        if kind in FOLLOWING:
            assert agree >= {name for name, policy in POLICIES.items() if policy.edge_mode is None}
            assert len(agree & set(CUSTOM)) >= 5
        else:
            assert agree | {"TensorFlow"} == set(policies_of(kind))


def test_nodes_without_a_class_are_listed() -> None:
    assert {kind.__name__ for kind in NODES} >= set(WITHOUT_KERNEL)
    assert {kind.gradient_class for kind in DIFFERENTIABLE} == GRADIENTS


@pytest.mark.parametrize("kind", DIFFERENTIABLE, ids=lambda kind: kind.__name__)
def test_gradients_of_nodes_are_derivatives(kind: Any) -> None:
    """By central differences in float64; those made by hand and by training graphs, too, unless a class has them."""
    compared: list[str] = []
    step, options = 1e-5, {"backend": "reference", "format": "float64"}
    for given, (name, policy) in itertools.product(variants(kind), policies_of(kind).items()):
        node, x = node_of(kind, given, policy)
        if "channel_format" in getattr(policy, "changes", ()) or (kind in FOLLOWING and clamps(node)):
            continue  # a rounded image has no differences, a clamped convolution no gradient
        rng, start = np.random.default_rng(3), inputs(node, x.astype(np.float64))
        try:
            y = run(node.result_image, start, **options)
        except ShapeError:
            continue  # refused, as by the class
        if len(y) != len(x):
            continue  # all inputs of a graph have as many images
        g, found = gradients(node)
        values = rng.standard_normal(y.shape)
        assert len(found) >= 1
        for source, ways in zip((node.source_images[k] for k in node.differentiable_sources), found, strict=True):
            direction = rng.standard_normal(start[source].shape)
            moved = (start | {source: start[source] + sign * step * direction} for sign in (1, -1))
            above, below = (run(node.result_image, images, **options) for images in moved)
            slope = np.sum(values * (above - below)) / (2 * step)
            for way in ways if kind.__name__ in WITHOUT_KERNEL else ["automatic"]:
                dx = run(ways[way], start | {g: values}, **options)
                assert dx.shape == start[source].shape
                assert np.sum(dx * direction) == pytest.approx(slope, rel=1e-5, abs=1e-6), (way, given, name)
        compared.append(name)
    expected = {name for name, policy in POLICIES.items() if policy.edge_mode is None} & policies_of(kind).keys()
    assert all(compared.count(name) == len(variants(kind)) for name in expected)


@pytest.mark.parametrize("kind", few(NODES[::2] + NODES[1::2], len(NODES) // 2), ids=lambda kind: kind.__name__)
def test_nothing_is_read_outside_of_the_images(kind: Any) -> None:
    """NaN around every input, forward and gradient, on every backend that has pointers."""
    for given, policy in itertools.product(variants(kind), FEW if kind in FOLLOWING else [None]):
        for backend in (name for name in AVAILABLE if name not in registry.BUILT_IN):
            check_memory(kind, given, policy, backend)


FEW: list[Any] = [
    *(POLICIES[name] for name in ("SizeSame 12", "SizeValidOnly 1", "SizeFull 2")),
    CUSTOM["clip"],
    CUSTOM["offset"],
]
"""Policies with larger and smaller results, at other places, and of a part of an image."""


def check_memory(kind: Any, given: Mapping[str, Any], policy: Any, backend: str) -> None:
    """Check that the results of a node and of its gradients are those of images alone in memory."""
    node, x = node_of(kind, given, policy)
    images = inputs(node, x)
    y = run(node.result_image, images, backend)
    results = [node.result_image]
    if kind in DIFFERENTIABLE:
        g, found = gradients(node)
        images[g] = np.cos(np.arange(y.size, dtype=np.float32)).reshape(y.shape)
        results += [ways["automatic"] for ways in found]
    for image in results:
        guarded = {source: GuardedArray(source.name, v.shape, v.dtype, v) for source, v in images.items()}
        result = run(image, {source: one.array for source, one in guarded.items()}, backend)
        assert np.isfinite(result).all()
        np.testing.assert_array_equal(result, run(image, images, backend))
        for one in guarded.values():
            one.check()


# ---- what is refused ------------------------------------------------------------------------------------------------

WINDOW = "kernel_width kernel_height kernel_size stride_in_pixels_x stride_in_pixels_y dilation_rate_x dilation_rate_y"
GEOMETRY = [*WINDOW.split(), "scale_factor_x", "scale_factor_y", "align_corners"]
WITH_GEOMETRY = [kind for kind in DIFFERENTIABLE if {*inspect.signature(kind.gradient_class).parameters} & {*GEOMETRY}]


@pytest.mark.parametrize("kind", WITH_GEOMETRY, ids=lambda kind: kind.__name__)
def test_a_gradient_by_hand_has_the_windows_of_its_forward_node(kind: Any) -> None:
    """Other windows, strides and factors are those of another layer: node and class refuse them."""
    given = variants(kind)[0]
    node, x = node_of(kind, given)
    g, ((ways),) = gradients(node)
    automatic = ways["automatic"].producer
    y, state = kernel_of(node, class_of(kind)).encode(x, return_state=True)
    for name in {*inspect.signature(type(automatic)).parameters} & {*GEOMETRY}:
        own = {"kernel_size": "kernel_size_in_feature_channels"}.get(name, name) if "Cross" in kind.__name__ else name
        own = "kernel_width" if (own, hasattr(automatic, "kernel_width")) == ("kernel_size", True) else own
        value = getattr(automatic, own)
        other = not value if isinstance(value, bool) else int(value) + 1
        changed = by_hand(automatic, **{name: other})
        with pytest.raises(ShapeError, match=r"make the gradient|both must be equal"):
            run(changed.result_image, inputs(node, x) | {g: y}, "cpu")
        if "LocalContrast" not in kind.__name__:  # whose class has square windows
            gradient = kernel_of(changed, getattr(mps, f"{class_of(kind).__name__}Gradient"))
            with pytest.raises(ValueError, match="make the gradient"):
                gradient.encode(y, x, state)


@every_node
def test_a_custom_policy_is_followed_or_refused(kind: Any) -> None:
    """It is ignored only where the class of the node ignores it."""
    node, x = node_of(kind, variants(kind)[0], CUSTOM["offset"])
    if kind.custom_policy == "refused":
        with pytest.raises(UnsupportedError, match=rf"{kind.__name__} .* has the padding_policy .*; in a graph"):
            forward(node, x, "cpu")
    elif kind.custom_policy == "ignored":
        assert kind.__name__ in WITHOUT_KERNEL or issubclass(class_of(kind), WholeImage)
        other = node_of(kind, variants(kind)[0])[0]
        np.testing.assert_array_equal(forward(node, x, "cpu"), forward(other, x, "cpu"))


def test_a_policy_that_leaves_nothing_to_compute_is_refused() -> None:
    """By nodes; a kernel writes zeros."""
    for kind in FOLLOWING:
        node, x = node_of(kind, variants(kind)[0], Custom({}, clip_rect=((0, 99, 0), (1, 1, 2))))
        with pytest.raises(ShapeError, match=r"clip_rect \(\(0, 99, 0\), \(1, 0, 2\)\), limited .* nothing to compute"):
            forward(node, x, "cpu")


# ---- planted mistakes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in FOLLOWING if issubclass(kind.gradient_class, GradientKernelNode)])
def test_a_binding_of_a_wrong_shape_is_found(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gradient node that binds the default size of a problem: by its shapes, numbers and the memory behind g."""
    right = GradientKernelNode._bind

    def wrong(self: Any, *given: Any) -> Call:
        call = right(self, *given)
        computation = call.computation
        size = [name for name in ("gradient_size", "output_size") if name in computation.problem.field_names]
        problem = replace(computation.problem, **dict.fromkeys(size))
        return call._replace(computation=computation._replace(problem=problem))

    monkeypatch.setattr(GradientKernelNode, "_bind", wrong)
    given, policy = variants(kind)[-1], POLICIES["SizeValidOnly 1"]
    with pytest.raises(ShapeError, match=r"g has shape .*; this problem of .*gradient reads g of shape"):
        check_class(kind, given, policy)
    if "Pooling" not in kind.__name__:  # whose kernels read no pixels beyond the source_size that the state has set
        monkeypatch.setattr(registry, "_sources", lambda problem, arrays, strided=False: list(arrays))
        with pytest.raises(AssertionError):
            check_class(kind, given, policy)
        with pytest.raises(AssertionError):
            check_memory(kind, given, policy, "cpu")


def test_a_policy_that_a_node_ignores_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forward node whose binding leaves out the parts of images, as it did."""
    computed = lambda _, step, *images: step.call.computation.computed(images, step.backend)  # noqa: E731
    monkeypatch.setattr(MPSNNFilterNode, "_compute", computed)
    with pytest.raises(ShapeError, match="x has shape"):
        check_class(graph.MPSCNNPoolingMaxNode, variants(graph.MPSCNNPoolingMaxNode)[0], CUSTOM["channels read"])
    with pytest.raises(ShapeError, match="returned shape"):
        check_class(graph.MPSCNNPoolingMaxNode, variants(graph.MPSCNNPoolingMaxNode)[0], CUSTOM["clip"])
