"""The adapters of graph nodes and of images: sizes and properties, which no functional form has."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mpsref.conformance.golden_entries import Adapter, Comparison, Entry, node_output_size
from mpsref.registry import Backend


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
    yield node_output_size(entry, graph.MPSCNNConvolutionTransposeNode(source, None, weights), backend)


def fresh_image(entry: Entry, backend: Backend) -> Iterator[Comparison]:
    """Compare what an image holds before anything is written to it."""
    from mpsref import mps

    height, width = entry.parameters["size"]
    channel_format, channels = entry.parameters["channel_format"], entry.parameters["feature_channels"]
    image = mps.MPSImage(mps.MPSImageDescriptor(channel_format, width, height, channels))
    yield Comparison("pixels", image.array, entry.expected["y"])


ADAPTERS: dict[str, Adapter] = {
    "MPSCNNConvolutionTransposeNode": convolution_transpose_node,
    "MPSImage": fresh_image,
}
