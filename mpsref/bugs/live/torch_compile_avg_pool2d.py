"""PyTorch (torch.compile): the gradient of avg_pool2d with ceil_mode divides the last windows by K * K."""

import torch

torch.manual_seed(0)
pool = torch.nn.AvgPool2d(3, 2, 1, ceil_mode=True)
x = torch.randn(1, 1, 6, 6, requires_grad=True)
y = pool(x)
g = torch.randn_like(y)
(eager,) = torch.autograd.grad(y, x, g)
(compiled,) = torch.autograd.grad(torch.compile(pool)(x), x, g)
error, largest = (eager - compiled).abs().max().item(), eager.abs().max().item()
print(f"{'fixed' if error < 1e-5 else 'wrong'}: eager and compiled differ by {error:.3g} of {largest:.3g}")
