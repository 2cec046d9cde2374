"""PyTorch: the compiled gradient of where(mask, conv, max_pool2d(conv, 3, 1, 1)) is wrong for two channels and more."""

from collections.abc import Callable

import torch
import torch.nn.functional as F

torch.manual_seed(0)
x, w, g = torch.randn(1, 2, 4, 5), torch.randn(2, 2, 3, 3), torch.randn(1, 2, 4, 5)
mask = torch.rand(1, 2, 4, 5) > 0.5


def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Return the convolution where the mask is true, else its pooled values."""
    conv = F.conv2d(x, w, padding=1)
    return torch.where(mask, conv, F.max_pool2d(conv, 3, 1, 1))


def dx(f: Callable[..., torch.Tensor]) -> torch.Tensor:
    """Return the gradient for x."""
    a = x.clone().requires_grad_()
    return torch.autograd.grad(f(a, w), a, g)[0]


eager = dx(f)
error = (dx(torch.compile(f)) - eager).abs().max().item()
print(f"{'fixed' if error < 1e-5 else 'wrong'}: the gradients differ by {error:.3g} of {eager.abs().max().item():.3g}")
