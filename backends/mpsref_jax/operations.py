"""The table of JAX: functions of images (N, H, W, C); :class:`mpsref.frameworks.Framework` makes operations of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import mpsref
from mpsref import ConvolutionTranspose, InstanceNormalization, Loss, Neuron, UpsamplingNearest, frameworks
from mpsref.frameworks.adapter import Function, Table, Tensor, refused
from mpsref.frameworks.words import CallArguments
from mpsref.kernels.group_normalization import ALL_VALUES
from mpsref.kernels.interpolation import Sampling
from mpsref.operations import Operation
from mpsref_jax.run import Jax

jax = Jax()

PIXELS = (0, 1, 2)
DIMENSIONS = ("NHWC", "HWIO", "NHWC")


# --- windows ----------------------------------------------------------------------------------------------------------


def reduce_window(x: Tensor, start: float, combine: Function, padding: Any, **pairs: Any) -> Tensor:
    """Return the reduction of all windows, whose arguments are those of rows and columns."""
    words = {name: (1, *pair, 1) for name, pair in pairs.items()}
    return jax.lax.reduce_window(x, start, combine, padding=((0, 0), *padding, (0, 0)), **words)


def max_pool(x: Tensor, **words: Any) -> Tensor:
    return reduce_window(x, -np.inf, jax.lax.max, **words)


def means(problem: Any) -> CallArguments:
    """Return the arguments of the sum of windows, and the reciprocals of N."""
    words = frameworks.jax(problem)
    factors = np.multiply.outer(*problem.reciprocals())[None, :, :, None].astype(np.float32)
    return words._replace(keywords=words.keywords | {"factors": factors})


def average_pool(x: Tensor, factors: Tensor, **words: Any) -> Tensor:
    return reduce_window(x, 0.0, jax.lax.add, **words) * factors


def l2norm_pool(x: Tensor, **words: Any) -> Tensor:
    total = reduce_window(x * x, 0.0, jax.lax.add, **words)
    root = jax.numpy.sqrt(jax.numpy.where(total == 0, 1, total))  # JAX differentiates the root at 0 as infinity
    return jax.numpy.where(total == 0, 0, root)


def convolution(x: Tensor, weights: Tensor, bias: Tensor, **words: Any) -> Tensor:
    return jax.lax.conv_general_dilated(x, weights, dimension_numbers=DIMENSIONS, **words) + bias


# --- normalization ----------------------------------------------------------------------------------------------------


def group_normalization(problem: Any) -> Function:
    def normalize(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        grouped = x.reshape(problem.grouped_shape)
        mean, variance = (moment(grouped, ALL_VALUES, keepdims=True) for moment in (jax.numpy.mean, jax.numpy.var))
        xhat = jax.nn.standardize(grouped, ALL_VALUES, mean, variance, problem.spec.epsilon)
        return xhat.reshape(x.shape) * gamma + beta

    return normalize


def batch_normalization(problem: Any) -> Function:
    def normalize(x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        return jax.nn.standardize(x, PIXELS, mean, variance, problem.spec.epsilon) * gamma + beta

    return normalize


def moments(x: Tensor) -> tuple[Tensor, Tensor]:
    return jax.numpy.mean(x, PIXELS), jax.numpy.var(x, PIXELS)


def cross_channel_normalization(problem: Any) -> Function:
    spec, before = problem.spec, problem.spec.window.center
    padding = ((0, 0), (0, 0), (0, 0), (before, spec.kernel_size - 1 - before))

    def normalize(x: Tensor) -> Tensor:
        kernel = 1, 1, 1, spec.kernel_size
        squares = jax.lax.reduce_window(x * x, 0.0, jax.lax.add, kernel, (1, 1, 1, 1), padding)
        return x * (spec.delta + spec.alpha / spec.kernel_size * squares) ** -spec.beta

    return normalize


def _image_and_centres(problem: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the image that the windows of a normalization read without padding, and the pixels at their centres."""
    windows, (height, width) = problem.spec.windows, problem.output_size
    edges = [
        (w.center - w.offset, w.offset + outputs + w.kernel - 1 - w.center - length, 0)
        for w, outputs, length in zip(windows, problem.output_size, problem.source_shape[1:3], strict=True)
    ]
    image, (top, left) = jax.lax.pad(x, 0.0, ((0, 0, 0), *edges, (0, 0, 0))), (w.center for w in windows)
    return image, image[:, top : top + height, left : left + width]


def spatial_normalization(problem: Any) -> Function:
    spec, kernel = problem.spec, [window.kernel for window in problem.spec.windows]

    def normalize(x: Tensor) -> Tensor:
        image, centres = _image_and_centres(problem, x)
        squares = jax.lax.reduce_window(image * image, 0.0, jax.lax.add, (1, *kernel, 1), (1, 1, 1, 1), "VALID")
        return centres * (spec.delta + spec.alpha / spec.taps * squares) ** -spec.beta

    return normalize


def local_contrast_normalization(problem: Any) -> Function:
    spec, kernel = problem.spec, [window.kernel for window in problem.spec.windows]

    def normalize(x: Tensor) -> Tensor:
        image, centres = _image_and_centres(problem, x)
        taps = jax.lax.conv_general_dilated_patches(image, kernel, (1, 1), "VALID", dimension_numbers=DIMENSIONS)
        taps = taps.reshape(*taps.shape[:3], x.shape[3], -1)
        base = spec.delta + spec.alpha * taps.var(axis=-1)
        return spec.pm + spec.ps * (centres - spec.p0 * taps.mean(axis=-1)) * base**-spec.beta

    return normalize


# --- elements ---------------------------------------------------------------------------------------------------------


def _rectified(a: float) -> Function:
    return lambda x: jax.nn.relu(x) if a == 0 else jax.nn.leaky_relu(x, a)


def _relun(n: Neuron) -> Function:
    relu6 = (n.a, n.b) == (0, 6)
    return lambda x: jax.nn.relu6(x) if relu6 else jax.numpy.minimum(_rectified(n.a)(x), n.b)


NEURONS: Mapping[str, Callable[[Neuron], Function]] = {
    "none": lambda n: lambda x: x,
    "relu": lambda n: _rectified(n.a),
    "linear": lambda n: lambda x: n.a * x + n.b,
    "sigmoid": lambda n: jax.nn.sigmoid,
    "hardsigmoid": lambda n: lambda x: jax.numpy.clip(n.a * x + n.b, 0, 1),
    "tanh": lambda n: lambda x: n.a * jax.numpy.tanh(n.b * x),
    "absolute": lambda n: jax.numpy.abs,
    "softplus": lambda n: lambda x: n.a * jax.nn.softplus(n.b * x),
    "softsign": lambda n: jax.nn.soft_sign,
    "elu": lambda n: lambda x: jax.nn.elu(x, n.a),
    "relun": _relun,
    "power": lambda n: lambda x: jax.numpy.power(n.a * x + n.b, n.c),
    "exponential": lambda n: lambda x: jax.numpy.exp((n.a * x + n.b) * n.log_base),
    "logarithm": lambda n: lambda x: jax.numpy.log(n.a * x + n.b) / n.log_base,
    "gelu": lambda n: lambda x: jax.nn.gelu(x, approximate=False),
    "prelu": lambda n: lambda x, slopes: jax.numpy.where(x >= 0, x, slopes * x),
}


neuron = jax.of_type(NEURONS)


def _xlogy(t: Tensor, y: Tensor) -> Tensor:
    return jax.scipy.special.xlogy(t, y)


def _huber(loss: Loss) -> Function:
    def huber(y: Tensor, t: Tensor) -> Tensor:
        size = jax.numpy.abs(y - t)
        return jax.numpy.where(size <= loss.delta, 0.5 * size * size, loss.delta * (size - 0.5 * loss.delta))

    return huber


def _without(y: Tensor) -> Tensor:
    """Return 1 - y; XLA would add what is added to it to the 1, and round that."""
    return jax.lax.optimization_barrier(1 - y)


LOSSES: Mapping[str, Callable[[Loss], Function]] = {
    "meanabsoluteerror": lambda loss: lambda y, t: jax.numpy.abs(y - t),
    "meansquarederror": lambda loss: lambda y, t: jax.numpy.square(y - t),
    "softmaxcrossentropy": lambda loss: lambda y, t: -t * jax.nn.log_softmax(y),
    "sigmoidcrossentropy": lambda loss: lambda y, t: jax.nn.softplus(y) - t * y,
    "categoricalcrossentropy": lambda loss: lambda y, t: -_xlogy(t, y),
    "hinge": lambda loss: lambda y, t: jax.nn.relu(1 - (2 * t - 1) * y),
    "huber": _huber,
    "cosinedistance": lambda loss: lambda y, t: -y * t,
    "log": lambda loss: lambda y, t: -_xlogy(t, y + loss.epsilon) - _xlogy(1 - t, _without(y) + loss.epsilon),
    "kullbackleiblerdivergence": lambda loss: lambda y, t: _xlogy(t, t) - t * y,
}


loss = jax.of_type(LOSSES)


def cross_entropy(y: Tensor, t: Tensor) -> Tensor:
    return jax.nn.logsumexp(y, axis=3, keepdims=True) - (t * y).sum(axis=3, keepdims=True)


def dropout(problem: Any) -> Function:
    return lambda x, mask: jax.numpy.where(mask, x * problem.spec.scale, 0)


def dropout_gradient(problem: Any) -> Function:
    layer = dropout(problem)
    return lambda g, mask: jax.vjp(lambda x: layer(x, mask), g)[1](g)[0]


# --- movement ---------------------------------------------------------------------------------------------------------


def sampled(axes: tuple[Sampling, Sampling]) -> Function:
    """Return the interpolation of an image; a position outside of a bounded axis gives 0."""
    rows, columns = (
        [(axis.start + i * axis.numerator) / axis.denominator for i in range(axis.outputs)] for axis in axes
    )
    positions = np.meshgrid(np.array(rows, np.float32), np.array(columns, np.float32), indexing="ij")
    outside = np.logical_or.outer(*([not axis.reads(i) for i in range(axis.outputs)] for axis in axes))
    mode = "nearest" if axes[0].edge_mode == "clamp" else "constant"

    def plane(x: Tensor) -> Tensor:
        found = jax.scipy.ndimage.map_coordinates(x, positions, order=1, mode=mode)
        return jax.numpy.where(outside, 0, found)

    return lambda x: jax.vmap(jax.vmap(plane, in_axes=2, out_axes=2))(x)


def resize(problem: Any) -> Function:
    spec = problem.spec
    centered = isinstance(spec, mpsref.GraphResizeBilinear) and spec.center_result and spec.scale_offset is None
    if centered and not spec.align_corners:
        return lambda x: jax.image.resize(x, problem.large_shape, "linear", antialias=False)
    return sampled(problem.axes)


def upsampling(problem: Any) -> Function:
    """Return ``jax.image`` where its positions agree; it shifts those of unaligned corners by half a pixel."""
    spec, shape = problem.spec, problem.large_shape
    if isinstance(spec, UpsamplingNearest):
        return lambda x: jax.image.resize(x, shape, "nearest")
    if not spec.align_corners or any(axis.length == 1 for axis in problem.axes):
        return sampled(problem.axes)
    scale = np.array([axis.denominator / max(axis.numerator, 1) for axis in problem.axes], np.float32)
    shift = 0.5 - 0.5 * scale
    return lambda x: jax.image.scale_and_translate(x, shape, (1, 2), scale, shift, "linear", antialias=False)


PAD_MODES = {"clamp": "edge", "mirror": "reflect", "mirrorwithedge": "symmetric"}


def pad(problem: Any) -> Function:
    spec, jnp = problem.spec, jax.numpy
    widths = ((0, 0), *zip(spec.before, spec.after, strict=True))
    if spec.edge_mode in PAD_MODES:
        return lambda x: jnp.pad(x, widths, mode=PAD_MODES[spec.edge_mode])
    fills = spec.fills(problem.padded_shape[3]).astype(np.float32)
    if spec.fill_values is None:
        return lambda x: jnp.pad(x, widths, constant_values=fills[0])
    return lambda x: jnp.where(jnp.pad(jnp.ones(x.shape, bool), widths), jnp.pad(x, widths), fills)


def reduce(x: Tensor, operation: str, axes: Any) -> Tensor:
    function = getattr(jax.numpy, operation.replace("argument", "arg"))
    return function(x, axes, keepdims=True).astype(x.dtype)


CONVOLUTION = jax.convolution(frameworks.jax, convolution, neuron, "HWIO")

IMPLEMENTATIONS: Table = jax.keeping(
    {
        **jax.pooling(mpsref.PoolingMax, frameworks.jax, max_pool),
        **jax.pooling(mpsref.PoolingAverage, means, average_pool),
        **jax.pooling(mpsref.PoolingL2Norm, frameworks.jax, l2norm_pool),
        **CONVOLUTION,
        **{Operation(ConvolutionTranspose, method): run for (_, method), run in CONVOLUTION.items()},  # of gaps
        **jax.fully_connected(lambda x, weights, bias: x @ weights.T + bias, neuron),
        **jax.group_normalization(InstanceNormalization, group_normalization, broadcasts=True),
        **jax.group_normalization(mpsref.GroupNormalization, group_normalization, broadcasts=True),
        **jax.batch_normalization(moments, batch_normalization, neuron),
        **jax.layer(mpsref.CrossChannelNormalization, cross_channel_normalization),
        **jax.layer(mpsref.SpatialNormalization, spatial_normalization),
        **jax.layer(mpsref.LocalContrastNormalization, local_contrast_normalization),
        **jax.neurons(neuron),
        **jax.softmax(lambda x: jax.nn.softmax(x), lambda x: jax.nn.log_softmax(x)),
        **jax.losses(loss, at_logits=cross_entropy),
        **refused(
            "jax.random has other generators than that of the masks, Philox4x32-10", Operation(mpsref.Dropout, "mask")
        ),
        **jax.calls(mpsref.Dropout, forward=dropout, gradient=dropout_gradient),
        **jax.layer((UpsamplingNearest, mpsref.UpsamplingBilinear), upsampling),
        **jax.layer((mpsref.ResizeBilinear, mpsref.CropAndResizeBilinear, mpsref.GraphResizeBilinear), resize),
        **jax.layer(mpsref.Pad, pad),
        **jax.reductions(reduce),
        **jax.slices(lambda x, pairs: jax.numpy.pad(x, pairs)),
        **jax.reshape(lambda x, shape: x.reshape(shape), lambda x, axes: x.transpose(axes)),
        **jax.concatenation(
            lambda images, axis: jax.numpy.concatenate(images, axis), lambda x, pairs: jax.numpy.pad(x, pairs)
        ),
        **jax.arithmetic(lambda x, low, high: jax.numpy.clip(x, low, high)),
        **jax.compare(lambda x: jax.numpy.abs(x), lambda mask: mask.astype("float32")),
        **refused(
            "JAX has no optimizers; those of Optax are another package",
            *(Operation(kind, "step") for kind in (mpsref.Adam, mpsref.RMSProp, mpsref.StochasticGradientDescent)),
        ),
    }
)
