"""PyTorch: the compiled gradient of scale and shift, chunks of a parameter, is wrong for 5 million elements (CUDA)."""

from collections.abc import Callable

import torch

torch.manual_seed(0)


def f(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Return tokens plus the sums of their positive channels, times (1 + scale), plus shift."""
    scale, shift = table.chunk(2, 1)
    return (x + x.relu().sum(2, keepdim=True)) * (1 + scale) + shift


def integers(*shape: int) -> torch.Tensor:
    """Return integers from -3 to 3, of which no sum here is rounded."""
    return torch.randint(-3, 4, shape, device="cuda").float()


def dtable(f: Callable[..., torch.Tensor]) -> torch.Tensor:
    """Return the gradient for the parameter."""
    a, b = x.clone().requires_grad_(), table.clone().requires_grad_()
    return torch.autograd.grad(f(a, b), (a, b), g)[1]


if torch.cuda.is_available():
    x, g, table = integers(1, 32768, 160), integers(1, 32768, 160), integers(1, 2, 160)
    eager = dtable(f)
    error = (dtable(torch.compile(f)) - eager).abs().max().item()
    print(f"{'wrong' if error else 'fixed'}: the gradients differ by {error:g} of {eager.abs().max().item():g}")
else:
    print("not affected: there is no CUDA device")
