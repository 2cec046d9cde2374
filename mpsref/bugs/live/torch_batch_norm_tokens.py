"""PyTorch: BatchNorm2d of a batch of 1 that is read as tokens, by a LayerNorm over channels, has wrong gradients."""

import torch

torch.manual_seed(0)
x, w = torch.randn(1, 4, 2, 3), torch.randn(1, 6, 4)
norm, gradients = torch.nn.BatchNorm2d(4), []
y = norm(x)
y.register_hook(gradients.append)
(torch.nn.LayerNorm(4)(y.flatten(2).transpose(1, 2)) * w).sum().backward()
expected = gradients[0].sum((0, 2, 3))  # the gradient for the bias
error, most = (norm.bias.grad - expected).abs().max().item(), expected.abs().max().item()
print(f"{'fixed' if error < 1e-4 else 'wrong'}: the gradient for the bias is {error:.3g} off, of {most:.3g} at most")
