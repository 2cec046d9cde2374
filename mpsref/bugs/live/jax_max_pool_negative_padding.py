"""JAX: the gradient of max pooling raises if a padding is negative, which the forward pass takes."""

import jax
import jax.numpy as jnp

x = jnp.array([[1.0], [2.0], [3.0]])
arguments = -jnp.inf, jax.lax.max, (2, 1), (1, 1), ((-1, 0), (0, 0))
try:
    found = jax.grad(lambda x: jax.lax.reduce_window(x, *arguments).sum())(x).ravel().tolist()
    print(f"{'fixed' if found == [0, 0, 1] else 'wrong'}: the gradient is {found}; it is [0, 0, 1]")
except TypeError as error:
    print(f"wrong: the forward pass is {jax.lax.reduce_window(x, *arguments).item()}, its gradient raises: {error}")
