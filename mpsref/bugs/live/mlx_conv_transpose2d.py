"""MLX: the gradient of conv_transpose2d with output_padding has not the shape of its input."""

import mlx.core as mx

x, w = mx.ones((1, 3, 3, 1)), mx.ones((1, 2, 2, 1))


def layer(x: mx.array) -> mx.array:
    """Return a transposed convolution with more rows and columns at the end."""
    return mx.conv_transpose2d(x, w, stride=3, output_padding=2)


try:
    shape = mx.vjp(layer, [x], [mx.ones_like(layer(x))])[1][0].shape
    print(f"{'fixed' if shape == x.shape else 'wrong'}: the gradient of an input of shape {x.shape} has shape {shape}")
except ValueError as error:
    print(f"wrong: {error}")
