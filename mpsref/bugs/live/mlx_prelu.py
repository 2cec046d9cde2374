"""MLX: the slope of nn.prelu at 0 is that of both sides added."""

import mlx.core as mx
import mlx.nn as nn

mx.set_default_device(mx.cpu)
slope = mx.grad(lambda x: nn.prelu(x, mx.array(0.25)))(mx.array(0.0)).item()
print(f"{'fixed' if 0.25 <= slope <= 1 else 'wrong'}: the slope at 0 is {slope}; it is 0.25 below and 1 above")
