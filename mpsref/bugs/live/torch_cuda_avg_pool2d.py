"""PyTorch: on CUDA the gradient of avg_pool2d with padding is wrong for channels_last images."""

import torch
import torch.nn.functional as F

torch.manual_seed(0)


def dx(x: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the sum of the squares of the averages."""
    a = x.detach().requires_grad_()
    return torch.autograd.grad(F.avg_pool2d(a, 3, 1, 1).square().sum(), a)[0]


if torch.cuda.is_available():
    x = torch.rand(1, 2, 4, 4, device="cuda")
    planes = dx(x)
    error = (dx(x.contiguous(memory_format=torch.channels_last)) - planes).abs().max().item()
    largest = planes.abs().max().item()
    print(
        f"{'fixed' if error < 1e-5 else 'wrong'}: the gradients of two layouts differ by {error:.3g} of {largest:.3g}"
    )
else:
    print("not affected: there is no CUDA device")
