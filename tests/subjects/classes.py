"""A legal instance of each public class of ``mpsref.mps`` and ``mpsref.mps.graph``, and the arguments of it."""

from __future__ import annotations

import inspect
import itertools
import sys
from collections.abc import Callable
from enum import Enum
from types import CodeType
from typing import Any

import numpy as np

from mpsref import mps
from mpsref.mps import graph

X = np.arange(64, dtype=np.float32).reshape(2, 4, 4, 2) / 64
VECTOR = np.ones(2, np.float32)
WEIGHTS = np.ones((2, 3, 3, 2), np.float32)
DESCRIPTOR = mps.MPSCNNConvolutionDescriptor(3, 3, 2, 2)
LOSS = mps.MPSCNNLossDescriptor("meansquarederror", "sum")
YOLO = mps.MPSCNNYOLOLossDescriptor(1, 6, 3, 2, "sum", [[1, 2]])


def data_source(name: str) -> Any:
    """Return a data source for the class of this name."""
    if "BatchNorm" in name:
        return mps.BatchNormalizationDataSource(2)
    if "InstanceNorm" in name:
        return mps.InstanceNormalizationDataSource(2)
    if "GroupNorm" in name:
        return mps.GroupNormalizationDataSource(2)
    if name.startswith("MPSCNNFullyConnected"):
        descriptor = mps.MPSCNNConvolutionDescriptor(4, 4, 2, 2)
        return mps.ArrayConvolutionDataSource(descriptor, np.ones((2, 4, 4, 2), np.float32))
    return mps.ArrayConvolutionDataSource(DESCRIPTOR, WEIGHTS)


def image(name: str = "x") -> graph.MPSNNImageNode:
    return graph.MPSNNImageNode(name)


def mean(*images: mps.MPSImage) -> None:
    """The mean of two images, as a kernel of one's own."""
    left, right, result = images
    result.array[...] = (left.array + right.array) / 2


def gradient_of_mean(gradient: mps.MPSImage, *images: mps.MPSImage) -> None:
    images[-1].array[...] = gradient.array / 2


LEGAL: dict[str, Callable[[str], Any]] = {
    "a_data": lambda name: VECTOR,
    "array": lambda name: X,
    "beta": lambda name: VECTOR,
    "biases": lambda name: VECTOR,
    "channel_format": lambda name: "float32",
    "cnn_convolution_descriptor": lambda name: DESCRIPTOR,
    "convolution_gradient_state": lambda name: None,  # of transposed convolution; of gradients see `arguments`
    "data": lambda name: VECTOR,
    "data_source": data_source,
    "descriptor": lambda name: (
        DESCRIBED.get(name) or (mps.MPSNNNeuronDescriptor("relu") if "Neuron" in name else DESCRIPTOR)
    ),
    "first": lambda name: VECTOR,
    "gamma": lambda name: VECTOR,
    "gradient": lambda name: [gradient_of_mean] * 2,
    "image_descriptor": lambda name: mps.MPSImageDescriptor("float32", 4, 4, 2, 2),
    "input_feature_channels": lambda name: 2,
    "is_secondary_source_filter": lambda name: False,
    "kernel": lambda name: mean,
    "keep_probability": lambda name: 0.5,
    "labels": lambda name: image("labels") if name.endswith("Node") else X,
    "labels_descriptor": lambda name: X,
    "layout": lambda name: "heightxwidthxfeaturechannels",
    "learning_rate": lambda name: 0.5,
    "left": lambda name: image("left"),
    "left_source": lambda name: image("left"),
    "loss_descriptor": lambda name: YOLO if "YOLO" in name else LOSS,
    "anchor_boxes": lambda name: [[1, 2]],
    "loss_image_size": lambda name: (4, 4, 2),
    "loss_type": lambda name: "softmaxcrossentropy",
    "mask_stride_in_pixels": lambda name: (1, 1, 1),
    "mean": lambda name: VECTOR,
    "members": lambda name: [mps.MPSImage(X[:1]), mps.MPSImage(X[1:])],
    "neuron_descriptor": lambda name: mps.MPSNNNeuronDescriptor("relu"),
    "optimizer_descriptor": lambda name: mps.MPSNNOptimizerDescriptor(),
    "output_feature_channels": lambda name: 4 if "SubPixel" in name else 2,
    "padding_size_after": lambda name: (1, 1, 0),
    "padding_size_before": lambda name: (1, 1, 0),
    "primary_image": lambda name: X,
    "reduction_type": lambda name: "sum",
    "regions": lambda name: [((0, 0), (1, 1))],
    "result_images": lambda name: graph.MPSCNNSoftMaxNode(image()).result_image,
    "return_state": lambda name: True,
    "right": lambda name: image("right"),
    "right_source": lambda name: image("right"),
    "scale_transform": lambda name: None,
    "second": lambda name: VECTOR,
    "secondary_image": lambda name: X,
    "seed": lambda name: 1,
    "size": lambda name: (4, 4, 2) if name != "MPSCNNLossDataDescriptor" else (2, 1, 1),
    "source": lambda name: image(),
    "source_gradient": lambda name: X,
    "source_image": lambda name: X,
    "source_images": lambda name: [X, X],
    "sources": lambda name: [image("a"), image("b")],
    "variance": lambda name: VECTOR,
    "weights": lambda name: data_source(name) if name.endswith("Node") else WEIGHTS,
}
"""Values of arguments by name, for the class of a name; small integers take the place of all others."""

DESCRIBED = {"MPSMatrix": mps.MPSMatrixDescriptor(2, 3), "MPSVector": mps.MPSVectorDescriptor(3)}

GIVEN = {
    **dict.fromkeys(["MPSCNNConvolution", "MPSCNNConvolutionGradient"], ("data_source",)),
    **dict.fromkeys(["MPSCNNConvolutionTranspose", "MPSCNNConvolutionTransposeGradient"], ("data_source",)),
    **dict.fromkeys(["MPSCNNFullyConnected", "MPSCNNFullyConnectedGradient"], ("data_source",)),
    **dict.fromkeys(
        [f"MPSCNN{kind}ConvolutionDescriptor" for kind in ("", "DepthWise", "SubPixel")],
        ("input_feature_channels", "output_feature_channels"),
    ),
    **dict.fromkeys(
        [f"MPSNNOptimizer{kind}" for kind in ("Adam", "RMSProp", "StochasticGradientDescent")], ("learning_rate",)
    ),
    **dict.fromkeys(
        [f"MPSNN{kind}Node" for kind in ("Addition", "Subtraction", "Multiplication", "Division", "Comparison")],
        ("right_source",),
    ),
    **dict.fromkeys(
        [f"MPSCNN{kind}Node" for kind in ("PoolingMax", "PoolingAverage", "PoolingL2Norm", "DilatedPoolingMax")],
        ("filter_size",),
    ),
    "CustomKernelNode": ("gradient",),
    "MPSCNNConvolutionWeightsAndBiasesState": ("cnn_convolution_descriptor",),
    "MPSCNNLossLabels": ("loss_image_size", "labels_image"),
    "MPSNNForwardLossNode": ("labels", "loss_descriptor"),
    "MPSCNNConvolutionTransposeNode": ("convolution_gradient_state", "weights"),
    "MPSNNGraph": ("result_images",),
    **dict.fromkeys(["MPSMatrix", "MPSVector"], ("descriptor",)),
}
"""Optional arguments without which a constructor refuses."""

MATRIX = mps.MPSMatrix(np.arange(6, dtype=np.float32).reshape(2, 3) - 2)
COLUMNS = mps.MPSVector(np.float32([1, 2, 3]))
LEGAL |= dict.fromkeys(("input_matrix", "gradient_matrix", "forward_output_matrix"), lambda name: MATRIX)
LEGAL["weight_matrix"] = lambda name: mps.MPSMatrix(np.ones((3, 3), np.float32))
LEGAL["source_matrices"] = lambda name: [MATRIX, MATRIX]
LEGAL |= dict.fromkeys(("mean_vector", "variance_vector"), lambda name: COLUMNS)
LEGAL["a"] = lambda name: VECTOR if "Matrix" in name else 2
LEGAL["labels_image"] = LEGAL["labels"]

ABSTRACT = frozenset(
    """MPSCNNArithmetic MPSCNNArithmeticGradient MPSCNNBinaryKernel MPSCNNGradientKernel MPSCNNKernel
    MPSCNNMultiaryKernel MPSCNNPooling MPSCNNPoolingGradient MPSCNNUpsampling MPSCNNUpsamplingGradient MPSKernel
    MPSNNOptimizer MPSNNReduceBinary MPSNNReduceUnary MPSCNNNeuronNode MPSCNNNormalizationNode MPSCNNPoolingNode
    MPSCNNPoolingGradientNode MPSNNArithmeticGradientNode MPSNNBinaryArithmeticNode MPSNNFilterNode
    MPSNNBinaryGradientStateNode MPSNNGradientFilterNode MPSNNMultiaryGradientStateNode MPSNNStateNode
    MPSNNTrainableNode MPSNNUnaryReductionNode MPSMatrixBinaryKernel MPSMatrixUnaryKernel""".split()  # noqa: SIM905
)
"""Base classes: a call raises an error that names what to make."""

PROTOCOLS = frozenset(
    """MPSCNNBatchNormalizationDataSource MPSCNNConvolutionDataSource MPSCNNGroupNormalizationDataSource
    MPSCNNInstanceNormalizationDataSource""".split()  # noqa: SIM905
)
"""Protocols, which the data sources of an application follow."""

NOT_BUILT = frozenset(
    """MPSCNNBinaryConvolution MPSCNNBinaryConvolutionNode MPSCNNBinaryFullyConnected MPSCNNBinaryFullyConnectedNode
    MPSNNBilinearScaleNode MPSNNGridSample
    MPSNNLanczosScaleNode MPSNNLocalCorrelation MPSNNScaleNode""".split()  # noqa: SIM905
)
"""Classes of Apple's that mpsref names and does not have."""


def legal_arguments(call: Any, name: str) -> dict[str, Any]:
    """Return values for the required arguments of a call of the class ``name``; raise TypeError for positional ones."""
    found = {}
    for key, one in inspect.signature(call).parameters.items():
        if one.kind is one.POSITIONAL_ONLY:
            raise TypeError(f"{key} of {name} is positional")
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            continue
        is_given = inspect.isclass(call) and key in GIVEN.get(name, ())
        if one.default is one.empty or key == "return_state" or is_given:
            found[key] = LEGAL[key](name) if key in LEGAL else 2
    return found


def arguments(kind: type[Any]) -> dict[str, Any]:
    """Return legal arguments of the constructor of a class."""
    name = kind.__name__
    if not name.endswith("GradientNode") or name == "MPSNNInitialGradientNode":
        return legal_arguments(kind, name)
    forward = made(getattr(graph, FORWARD.get(name, name.replace("GradientNode", "Node"))))
    found = legal_arguments(kind, name) | {"source_gradient": image("g"), "source_image": image()}
    state = next((key for key in found if key.endswith("gradient_state")), "gradient_state")
    found[state] = forward.result_state
    if name == "MPSNNLossGradientNode":
        found |= {"labels": image("labels"), "loss_descriptor": LOSS}
    return found


FORWARD = {"MPSNNLossGradientNode": "MPSNNForwardLossNode", "MPSCNNNeuronGradientNode": "MPSCNNNeuronReLUNode"}
"""Forward nodes of gradient nodes with another name."""


def _recorded(kernel: Any, *images: Any) -> Any:
    """Return the state of a forward kernel."""
    return kernel.encode(*images, return_state=True)[1]


def _training() -> Any:
    pooled = graph.MPSCNNPoolingMaxNode(image(), filter_size=2)
    return graph.training_graph(graph.MPSNNInitialGradientNode(pooled.result_image))


def _forward(name: str) -> Any:
    return made(getattr(mps, name, None) or getattr(graph, name))


OTHERWISE: dict[str, Callable[[], Any]] = {
    "MPSCNNArithmeticGradientState": lambda: _recorded(mps.MPSCNNAdd(), X, X),
    "MPSCNNBatchNormalizationState": lambda: _forward("MPSCNNBatchNormalization").result_state_for_source_image(X),
    "MPSCNNConvolutionGradientState": lambda: _recorded(_forward("MPSCNNConvolution"), X),
    "MPSCNNConvolutionTransposeGradientState": lambda: _recorded(_forward("MPSCNNConvolutionTranspose"), X),
    "MPSCNNDropoutGradientState": lambda: _recorded(_forward("MPSCNNDropout"), X),
    "MPSCNNGroupNormalizationGradientState": lambda: _recorded(_forward("MPSCNNGroupNormalization"), X),
    "MPSCNNInstanceNormalizationGradientState": lambda: _recorded(_forward("MPSCNNInstanceNormalization"), X),
    "MPSImageSizeEncodingState": lambda: mps.MPSImageSizeEncodingState(_recorded(mps.MPSCNNSoftMax(), X).record),
    "MPSNNBinaryGradientState": lambda: mps.MPSNNBinaryGradientState(_recorded(mps.MPSCNNAdd(), X, X).record),
    "MPSNNGradientState": lambda: _recorded(mps.MPSCNNPoolingMax(2, 2), X),
    "MPSNNMultiaryGradientState": lambda: mps.MPSNNMultiaryGradientState(_recorded(mps.MPSCNNAdd(), X, X).record),
    "MPSCNNConvolutionGradientStateNode": lambda: _forward("MPSCNNConvolutionNode").result_state,
    "MPSCNNConvolutionTransposeGradientStateNode": lambda: _forward("MPSCNNConvolutionTransposeNode").result_state,
    "MPSNNArithmeticGradientStateNode": lambda: _forward("MPSNNAdditionNode").result_state,
    "MPSNNGradientStateNode": lambda: _forward("MPSCNNSoftMaxNode").result_state,
    "MPSNNLabelsNode": lambda: _forward("MPSCNNLossNode").input_labels,
    "TrainingGraph": _training,
    "RunResult": lambda: _forward("MPSNNGraph").run([X]),
}
"""Classes that an application does not make, and where it gets their objects."""


def made(kind: type[Any]) -> Any:
    """Return a legal instance of a class; each call makes one."""
    if kind.__name__ in OTHERWISE:
        return OTHERWISE[kind.__name__]()
    return kind(**arguments(kind))


def classes(module: Any) -> list[type[Any]]:
    found = [getattr(module, name) for name in module.__all__]
    return [one for one in found if isinstance(one, type) and not issubclass(one, (Enum, Exception))]


CLASSES = [*classes(mps), *classes(graph)]
"""The public classes."""

MADE = [one for one in CLASSES if one.__name__ not in ABSTRACT | PROTOCOLS | NOT_BUILT]
"""Those that have instances."""


def calls_of(function: Any, *before: Any) -> list[CodeType]:
    """Return the functions of mpsref that a call calls, in order; those before the first one of ``before``."""
    codes: list[CodeType] = []

    def record(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_globals.get("__name__", "").startswith("mpsref"):
            codes.append(frame.f_code)

    sys.setprofile(record)
    try:
        function()
    finally:
        sys.setprofile(None)
    ends = {one.__code__ for one in before}
    return [*itertools.takewhile(lambda code: code not in ends, codes)]
