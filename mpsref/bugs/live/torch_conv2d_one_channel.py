"""PyTorch (oneDNN on AVX-512): conv2d of one channel puts results in wrong places if they are one pixel wide."""

import torch

torch.manual_seed(0)
x = torch.randn(1, 9, 4, 1).permute(0, 3, 1, 2)  # one channel: NHWC strides
w = torch.randn(1, 1, 5, 5)
y, z = (torch.nn.functional.conv2d(x.to(kind), w.to(kind), None, (1, 4), 1) for kind in (torch.float, torch.double))
error, largest = (y - z).abs().max().item(), z.abs().max().item()
if torch.backends.cpu.get_cpu_capability() != "AVX512":
    print("not affected: only with AVX-512")
else:
    print(f"{'fixed' if error < 1e-3 else 'wrong'}: float32 and float64 differ by {error:.3g} of {largest:.3g}")
