"""JAX on a CPU: a convolution with one term for each of more than 32,768 result channels does not write its result."""

import jax
import numpy as np

words = {"window_strides": (1, 1), "padding": "VALID", "dimension_numbers": ("NHWC", "HWIO", "NHWC")}
x = np.full((1, 1, 1, 1), 2, np.float32)
for channels in (32768, 32769):
    w = np.arange(1, 1 + channels, dtype=np.float32).reshape(1, 1, 1, channels)
    y = np.asarray(jax.lax.conv_general_dilated(x, w, **words))
    wrong = np.count_nonzero(y != 2 * w)
print(f"{'wrong' if wrong else 'fixed'}: {wrong} of {channels} channels of a product of two numbers differ")
