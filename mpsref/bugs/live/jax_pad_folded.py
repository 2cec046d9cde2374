"""JAX (XLA): a negative padding is added to that of the windows after it, if the first one also dilates."""

import jax
import numpy as np

x = np.array([[669.0, -763.0]], dtype=np.float32)


def sums(x: jax.Array) -> jax.Array:
    """Return sums of two neighbours after the first column is removed."""
    cropped = jax.lax.pad(x, 0.0, [(0, 0, 1), (-1, 0, 0)])  # [[-763]]
    return jax.lax.reduce_window(cropped, 0.0, jax.lax.add, (1, 2), (1, 1), ((0, 0), (1, 0)))  # of [0, -763]


compiled, eager = (np.asarray(f(x)).item() for f in (jax.jit(sums), sums))
print(f"{'fixed' if compiled == eager else 'wrong'}: compiled {compiled:g}, not compiled {eager:g}")
