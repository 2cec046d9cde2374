"""JAX on a CPU: a convolution with negative padding before and zeros behind a row reads the next row there."""

import numpy as np
from jax import lax

x = np.arange(1, 61, dtype=np.float32).reshape(1, 2, 2, 15)
w = np.ones((1, 1, 15, 1), np.float32)
y = lax.conv_general_dilated(x, w, (1, 1), ((0, 0), (-1, 1)), dimension_numbers=("NHWC", "HWIO", "NHWC"))
behind = float(y[0, 0, -1, 0])
print(f"{'fixed' if behind == 0 else 'wrong'}: the sum of the zeros behind the first row is {behind:g}")
