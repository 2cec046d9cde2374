"""PyTorch (oneDNN on AVX-512): channels_last conv2d to one column writes behind its memory if the stride is long."""

import torch

shape, weights, stride = (1, 1, 32770, 1), (1, 1, 3, 1), (4096, 1)
if torch.backends.cpu.get_cpu_capability() != "AVX512":
    print("not affected: only with AVX-512")
else:
    x, w = (torch.randn(one).to(memory_format=torch.channels_last) for one in (shape, weights))
    y = torch.nn.functional.conv2d(x, w, stride=stride)
    error = (y - torch.nn.functional.conv2d(x.double(), w.double(), stride=stride)).abs().max()
    print(f"wrong: by {error:.3g}" if error > 1e-4 else "fixed: the call returns")
