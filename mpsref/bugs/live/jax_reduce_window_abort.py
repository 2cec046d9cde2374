"""JAX on a CPU: reduce_window of single elements with a negative padding ends the process when XLA compiles it."""

import jax
import jax.numpy as jnp

x = jnp.array([[1.0], [2.0], [3.0]])
found = jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 1), (1, 1), ((-1, 0), (0, 0))).ravel().tolist()
print(f"{'fixed' if found == [2, 3] else 'wrong'}: the sums are {found}; they are [2.0, 3.0]")
