"""The adapters of graph nodes and of images: sizes and properties, which no functional form has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from mpsref.conformance.golden_entries import Adapter, Comparison, Entry
from mpsref.registry import Backend

if TYPE_CHECKING:
    from mpsref.mps.graph import MPSNNFilterNode


def pooling_node(name: str) -> Adapter:
    """Return the adapter of a pooling node: the size of its result with its default padding policy."""

    def adapter(entry: Entry, backend: Backend) -> Iterator[Comparison]:
        from mpsref.mps import graph  # only these entries need it

        (kernel_height, kernel_width), (sy, sx) = entry.parameters["kernel_size"], entry.parameters["strides"]
        source = graph.MPSNNImageNode("source")
        yield _size(entry, getattr(graph, name)(source, kernel_width, kernel_height, sx, sy), backend)

    return adapter


def convolution_transpose_node(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Compare the size of the result of a transposed convolution with its default padding policy."""
    from mpsref import mps
    from mpsref.mps import graph

    (kernel_height, kernel_width), (sy, sx) = entry.parameters["kernel_size"], entry.parameters["strides"]
    descriptor = mps.MPSCNNConvolutionDescriptor(
        kernel_width, kernel_height, 1, 1, stride_in_pixels_x=sx, stride_in_pixels_y=sy
    )
    weights = mps.ArrayConvolutionDataSource(descriptor, np.zeros(descriptor.weights_shape, np.float32))
    source = graph.MPSNNImageNode("source")
    yield _size(entry, graph.MPSCNNConvolutionTransposeNode(source, None, weights), backend)


def _size(entry: Entry, node: MPSNNFilterNode, backend: Backend) -> Comparison:
    """Compare the size of the result of a node on one source."""
    from mpsref.mps import graph

    (source,) = node.source_images
    height, width = entry.inputs["source_size"].array.astype(int)
    shapes = graph.MPSNNGraph(node.result_image, backend=backend).infer_shapes({source: (1, height, width, 1)})
    size = np.array(shapes[node.result_image][1:3], np.float64)
    return Comparison(f"{type(node).__name__}: output size", size, entry.expected["output_size"])


def fresh_image(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Compare what an image holds before anything is written to it."""
    from mpsref import mps

    height, width = entry.parameters["size"]
    channel_format, channels = entry.parameters["channel_format"], entry.parameters["feature_channels"]
    image = mps.MPSImage(mps.MPSImageDescriptor(channel_format, width, height, channels))
    yield Comparison("pixels", image.array, entry.expected["y"])


ADAPTERS: dict[str, Adapter] = {
    "MPSCNNConvolutionTransposeNode": convolution_transpose_node,
    "MPSCNNPoolingAverageNode": pooling_node("MPSCNNPoolingAverageNode"),
    "MPSCNNPoolingMaxNode": pooling_node("MPSCNNPoolingMaxNode"),
    "MPSImage": fresh_image,
}
