"""JAX on a CPU: the gradient of a strided convolution of 4 x 1 pixels ends the process when XLA compiles it."""

import jax
import jax.numpy as jnp

x, w = jnp.ones((1, 4, 1, 1)), jnp.ones((2, 3, 1, 1))
words = {"window_strides": (2, 1), "padding": ((1, 1), (1, 1)), "dimension_numbers": ("NHWC", "HWIO", "NHWC")}
found = jax.grad(lambda x: jax.lax.conv_general_dilated(x, w, **words).sum())(x).ravel().tolist()
print(f"{'fixed' if found == [1, 1, 1, 1] else 'wrong'}: the gradient is {found}; it is 1 in each pixel")
