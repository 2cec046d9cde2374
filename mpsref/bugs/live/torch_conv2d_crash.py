"""PyTorch (oneDNN on AVX-512): channels_last conv2d with a bias ends the process if windows lie in the padding."""

import torch

x, w, bias = torch.randn(2, 5, 2, 1), torch.randn(1, 5, 1, 1), torch.randn(1)
x, w = (t.contiguous(memory_format=torch.channels_last) for t in (x, w))
if torch.backends.cpu.get_cpu_capability() != "AVX512":
    print("not affected: only with AVX-512")
else:
    torch.nn.functional.conv2d(x, w, bias, stride=(1, 2), padding=(2, 5), dilation=(1, 2))
    print("fixed: the call returns")
