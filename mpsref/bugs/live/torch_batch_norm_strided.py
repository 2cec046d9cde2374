"""PyTorch: the gradient of batch_norm in evaluation mode reads statistics with strides as if they were contiguous."""

import torch

torch.manual_seed(0)
x = torch.randn(2, 4, 3, 3).contiguous(memory_format=torch.channels_last)
g = torch.randn_like(x)
mean, var = (torch.rand(2, 8) + 0.5)[:, ::2]


def dx(mean: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
    """Return the gradient for x."""
    a = x.clone().requires_grad_()
    torch.nn.functional.batch_norm(a, mean, var).backward(g)
    return a.grad


expected = dx(mean.contiguous(), var.contiguous())
error = (dx(mean, var) - expected).abs().max().item()
print(f"{'fixed' if error < 1e-4 else 'wrong'}: strides change dx by {error:.3g} of {expected.abs().max().item():.3g}")
