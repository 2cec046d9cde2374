"""PyTorch: the gradient of InstanceNorm2d depends on the memory layout of the source gradient if the batch is 1."""

import torch

torch.manual_seed(0)
x = torch.randn(1, 4, 6, 2, dtype=torch.double)
g = torch.randn_like(x)
norm = torch.nn.InstanceNorm2d(4).double()


def dx(g: torch.Tensor) -> torch.Tensor:
    """Return the gradient for x."""
    a = x.clone().requires_grad_()
    norm(a).backward(g)
    return a.grad


error = (dx(g) - dx(g.contiguous(memory_format=torch.channels_last))).abs().max().item()
print(f"{'fixed' if error < 1e-9 else 'wrong'}: both layouts differ by {error:.3g} of {dx(g).abs().max().item():.3g}")
