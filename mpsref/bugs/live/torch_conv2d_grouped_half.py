"""PyTorch: the gradient of float16 grouped conv2d for the weight depends on the batch stride of one image."""

import torch
import torch.nn.functional as F

torch.manual_seed(0)
like = {"memory_format": torch.channels_last}
x, g = (torch.randint(-3, 4, (1, 4, 3, 5)).half().contiguous(**like) for _ in range(2))
odd = torch.empty_strided((1, 4, 3, 5), (59, 1, 20, 4), dtype=torch.half).copy_(x)  # the stride of one image


def dw(x: torch.Tensor) -> torch.Tensor:
    """Return the gradient for the weight."""
    w = torch.zeros(4, 2, 1, 1, dtype=torch.half).clone(**like).requires_grad_()
    return torch.autograd.grad(F.conv2d(x, w, groups=2), w, g)[0]


error = (dw(odd) - dw(x)).abs().max().item()
print(f"{'wrong' if error else 'fixed'}: the gradients of two layouts differ by {error:g} of {dw(x).abs().max():g}")
