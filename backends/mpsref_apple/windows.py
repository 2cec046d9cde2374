"""Pooling, the normalizations with windows, and upsampling."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpsref import (
    CrossChannelNormalization,
    LocalContrastNormalization,
    PoolingAverage,
    PoolingL2Norm,
    PoolingMax,
    SpatialNormalization,
    UpsamplingBilinear,
    UpsamplingNearest,
)
from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import Pair
from mpsref.errors import UnsupportedError
from mpsref_apple.runtime import Images, Object, Runtime, Table

EDGE_MODES = {"zero": "MPSImageEdgeModeZero", "clamp": "MPSImageEdgeModeClamp"}


def offset_of(pair: Pair) -> tuple[int, int, int]:
    """Return a pair (y, x) as MPSOffset."""
    return pair[1], pair[0], 0


def forward_batch(run: Runtime, kernel: Object, x: Array, shape: Shape) -> Array:
    """Return the result of a forward kernel on a batch."""
    sources, results = run.upload(x), run.images(shape)
    with run.commands(results) as commands:
        kernel.encodeBatchToCommandBuffer_sourceImages_destinationImages_(commands, sources, results)
    return run.download(results)


def gradient_batch(run: Runtime, kernel: Object, forward: Object, g: Array, sources: Images, shape: Shape) -> Array:
    """Return the result of a gradient kernel that configures itself from the state of a forward kernel.

    Raise ``UnsupportedError`` if MPS makes no state and the gradient kernel needs offset or edge mode: it would run
    with the defaults.
    """
    gradients = run.upload(g)
    states = forward.resultStateBatchForSourceImage_sourceStates_destinationImage_(sources, None, run.images(g.shape))
    if not states:
        x, y, _ = forward.offset()
        if x or y or forward.edgeMode() != run.constant(EDGE_MODES["zero"]):
            raise UnsupportedError(
                f"the forward kernel of {kernel} made no state, so its gradient kernel has neither the offset nor the "
                "edge mode of the call; report the macOS version to the project"
            )
        return binary_batch(run, kernel, gradients, sources, shape)
    return run.download(encode_gradient(run, kernel, gradients, sources, states))


def encode_gradient(
    run: Runtime,
    kernel: Object,
    gradients: Images,
    sources: Images,
    states: Images,
    read: Images | None = None,
    then: Images | None = None,
) -> Images:
    """Encode a gradient kernel with states; return the images that it makes, and make the states ``read`` readable.

    With ``then`` it is encoded once more, with these gradients and the same states.
    """
    run.returns_images(kernel)
    results: Images = []
    with run.commands(results, read or []) as commands:
        for given in (gradients, *([] if then is None else [then])):
            encode = kernel.encodeBatchToCommandBuffer_sourceGradients_sourceImages_gradientStates_
            results[:] = encode(commands, given, sources, states) or []
    return results


def binary_batch(run: Runtime, kernel: Object, primary: Images, secondary: Images, shape: Shape) -> Array:
    """Return the result of a kernel with two sources and the properties that it has; 0 where it writes nothing."""
    results = run.upload(np.zeros(shape))
    with run.commands(results) as commands:
        encode = kernel.encodeBatchToCommandBuffer_primaryImages_secondaryImages_destinationImages_
        encode(commands, primary, secondary, results)
    return run.download(results)


# --- pooling ----------------------------------------------------------------------------------------------------------

POOLING = {PoolingAverage: "MPSCNNPoolingAverage", PoolingL2Norm: "MPSCNNPoolingL2Norm", PoolingMax: "MPSCNNPoolingMax"}


def pooling_kernel(run: Runtime, spec: Any, suffix: str = "") -> Object:
    """Return the kernel of a spec, without offset and edge mode."""
    (kh, kw), (sy, sx) = spec.kernel_size, spec.strides
    if spec.dilation != (1, 1):
        dy, dx = spec.dilation
        name = "initWithDevice_kernelWidth_kernelHeight_dilationRateX_dilationRateY_strideInPixelsX_strideInPixelsY_"
        return run.new(f"MPSCNNDilatedPoolingMax{suffix}", name, kw, kh, dx, dy, sx, sy)
    name = "initWithDevice_kernelWidth_kernelHeight_strideInPixelsX_strideInPixelsY_"
    kernel = run.new(POOLING[type(spec)] + suffix, name, kw, kh, sx, sy)
    if isinstance(spec, PoolingAverage):
        zy, zx = spec.zero_pad_size  # type: ignore[misc]  # a spec holds pairs
        kernel.setZeroPadSizeX_(zx)
        kernel.setZeroPadSizeY_(zy)
    return kernel


def forward_pooling(run: Runtime, spec: Any) -> Object:
    """Return the forward kernel of a spec."""
    kernel = pooling_kernel(run, spec)
    kernel.setOffset_(offset_of(spec.offset))
    kernel.setEdgeMode_(run.constant(EDGE_MODES[spec.edge_mode]))
    return kernel


def pooling_forward(run: Runtime, problem: Any, x: Array, out: Array) -> None:
    """Encode a pooling kernel."""
    out[...] = forward_batch(run, forward_pooling(run, problem.spec), x, out.shape)


def pooling_gradient(run: Runtime, problem: Any, g: Array, *source: Array, out: Array) -> None:
    """Encode a pooling gradient: configured by a state, or with all properties where a call names some."""
    spec, kernel = problem.spec, pooling_kernel(run, problem.spec, "Gradient")
    sources = run.upload(source[0]) if source else run.images(problem.source_shape)
    if (problem.primary_offset, problem.source_size, problem.kernel_offset, problem.clip) == ((0, 0), None, None, None):
        out[...] = gradient_batch(run, kernel, forward_pooling(run, spec), g, sources, out.shape)
        return
    configure_pooling(run, kernel, problem)
    out[...] = binary_batch(run, kernel, run.upload(g), sources, out.shape)


def configure_pooling(run: Runtime, kernel: Object, problem: Any) -> None:
    """Set all properties of a pooling gradient.

    The first pixel of the clip is the first pixel of the first window that lies inside the source, plus the kernel
    offset.
    """
    spec, size = problem.spec, problem.source_size
    kernel.setSecondaryOffset_(offset_of(spec.offset))
    kernel.setSecondaryEdgeMode_(run.constant(EDGE_MODES[spec.edge_mode]))
    kernel.setPrimaryOffset_(offset_of(problem.primary_offset))
    if size is not None:
        kernel.setSourceSize_((size[1], size[0], problem.source_shape[0]))
    origin, extent = problem.clip or ((0, 0), problem.source_shape[1:3])
    if problem.clip is not None:
        kernel.setClipRect_(((origin[1], origin[0], 0), (extent[1], extent[0], problem.source_shape[0])))
    wanted = []
    for axis, window in enumerate(spec.windows):
        ko = window.kernel_offset(origin[axis]) if problem.kernel_offset is None else problem.kernel_offset[axis]
        wanted.append(window.represented_pixel(0, ko) - max(0, window.offset - window.center))
    kernel.setKernelOffsetY_(wanted[0])
    kernel.setKernelOffsetX_(wanted[1])


# --- normalization with windows ---------------------------------------------------------------------------------------

WINDOWED = {
    SpatialNormalization: ("MPSCNNSpatialNormalization", ("alpha", "beta", "delta")),
    LocalContrastNormalization: (
        "MPSCNNLocalContrastNormalization",
        ("alpha", "beta", "delta", "p0", "pm", "ps"),
    ),
    CrossChannelNormalization: ("MPSCNNCrossChannelNormalization", ("alpha", "beta", "delta")),
}


def windowed(run: Runtime, spec: Any, suffix: str = "") -> Object:
    """Return the kernel of a spec."""
    name, parameters = WINDOWED[type(spec)]
    if isinstance(spec, CrossChannelNormalization):
        kernel = run.new(name + suffix, "initWithDevice_kernelSize_", spec.kernel_size)
    else:
        height, width = spec.kernel_size
        kernel = run.new(name + suffix, "initWithDevice_kernelWidth_kernelHeight_", width, height)
        if not suffix:
            kernel.setOffset_(offset_of(spec.offset))
    for parameter in parameters:
        getattr(kernel, f"set{parameter.capitalize()}_")(getattr(spec, parameter))
    return kernel


def windowed_forward(run: Runtime, problem: Any, x: Array, out: Array) -> None:
    """Encode a normalization with windows."""
    out[...] = forward_batch(run, windowed(run, problem.spec), x, out.shape)


def windowed_gradient(run: Runtime, problem: Any, g: Array, x: Array, out: Array) -> None:
    """Encode the gradient of a normalization with windows."""
    kernel, forward = windowed(run, problem.spec, "Gradient"), windowed(run, problem.spec)
    out[...] = gradient_batch(run, kernel, forward, g, run.upload(x), out.shape)


def _square(problem: Any) -> str | None:
    height, width = problem.spec.kernel_size
    if height != width:
        return f"kernel_size is {height, width}; MPS documents equal width and height of this kernel as required"
    return None


# --- upsampling -------------------------------------------------------------------------------------------------------

UPSAMPLING = {UpsamplingNearest: "MPSCNNUpsamplingNearest", UpsamplingBilinear: "MPSCNNUpsamplingBilinear"}


def _upsampling(run: Runtime, spec: Any, suffix: str = "") -> Object:
    sy, sx = spec.scale
    name, initializer = UPSAMPLING[type(spec)] + suffix, "initWithDevice_integerScaleFactorX_integerScaleFactorY_"
    if isinstance(spec, UpsamplingBilinear) and not suffix:
        kernel = run.new(name, f"{initializer}alignCorners_", sx, sy, spec.align_corners)
        kernel.setEdgeMode_(run.constant(EDGE_MODES[spec.edge_mode]))
        return kernel
    return run.new(name, initializer, sx, sy)


def upsampling_forward(run: Runtime, problem: Any, x: Array, out: Array) -> None:
    """Encode upsampling."""
    out[...] = forward_batch(run, _upsampling(run, problem.spec), x, out.shape)


def upsampling_gradient(run: Runtime, problem: Any, g: Array, out: Array) -> None:
    """Encode the gradient of upsampling, which depends on the size of the source only."""
    kernel, forward = _upsampling(run, problem.spec, "Gradient"), _upsampling(run, problem.spec)
    out[...] = gradient_batch(run, kernel, forward, g, run.upload(np.zeros(out.shape)), out.shape)


def _aligned(problem: Any) -> str | None:
    if problem.method == "gradient" and getattr(problem.spec, "align_corners", False):
        return "MPSCNNUpsamplingBilinearGradient has no alignCorners, so it is not the gradient of an aligned result"
    return None


IMPLEMENTATIONS: Table = {
    **{(kind, "forward"): pooling_forward for kind in POOLING},
    **{(kind, "gradient"): pooling_gradient for kind in POOLING},
    **{(kind, "forward"): windowed_forward for kind in WINDOWED},
    **{(kind, "gradient"): windowed_gradient for kind in WINDOWED},
    **{(kind, "forward"): upsampling_forward for kind in UPSAMPLING},
    **{(kind, "gradient"): upsampling_gradient for kind in UPSAMPLING},
}

REFUSALS = {SpatialNormalization: _square, LocalContrastNormalization: _square, UpsamplingBilinear: _aligned}
