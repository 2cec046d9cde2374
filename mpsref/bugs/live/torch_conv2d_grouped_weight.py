"""PyTorch: grouped conv2d on channels_last images reads weights with an odd stride of an axis of length 1 wrongly."""

import torch

torch.manual_seed(0)
x = torch.randn(2, 4, 5, 3).to(memory_format=torch.channels_last)
w = torch.randn(6, 3, 2).permute(0, 2, 1).unsqueeze(3)  # (6, 2, 3, 1), of which the last stride is 1, not 2
y = torch.nn.functional.conv2d(x, w, groups=2)
error = (y - torch.nn.functional.conv2d(x, w.clone(memory_format=torch.contiguous_format), groups=2)).abs().max()
print(f"wrong: by {error:.3g}" if error > 1e-5 else "fixed: the strides of the weights do not change the result")
