"""PyTorch: the gradient of batch_norm for a channels_last image reads a weight with strides as contiguous."""

import torch

torch.manual_seed(0)
x = torch.randn(2, 4, 3, 3).contiguous(memory_format=torch.channels_last)
g = torch.randn_like(x)
weight = torch.randn(4, 2)[:, 0]


def dx(weight: torch.Tensor) -> torch.Tensor:
    """Return the gradient for x."""
    a = x.clone().requires_grad_()
    torch.nn.functional.batch_norm(a, None, None, weight, training=True).backward(g)
    return a.grad


expected = dx(weight.contiguous())
error = (dx(weight) - expected).abs().max().item()
print(f"{'fixed' if error < 1e-4 else 'wrong'}: strides change dx by {error:.3g} of {expected.abs().max().item():.3g}")
