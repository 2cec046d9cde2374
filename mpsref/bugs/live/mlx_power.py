"""MLX: the gradient of power with the exponent 0, which is a constant, is NaN at 0."""

import mlx.core as mx

mx.set_default_device(mx.cpu)
slope = mx.grad(lambda x: mx.power(x, 0.0))(mx.array(0.0)).item()
print(f"{'fixed' if slope == 0 else 'wrong'}: the slope of x**0 at 0 is {slope}, it is 0")
