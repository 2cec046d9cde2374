"""PyTorch: the compiled gradient of pad with negative padding reads behind the end of the source gradient."""

import ctypes
import mmap

import numpy as np
import torch

SHAPE, PAGE = (2, 3, 3, 3), mmap.PAGESIZE

held = mmap.mmap(-1, 2 * PAGE)  # two pages, of which the second cannot be read
memory = np.frombuffer(held, np.uint8)
ctypes.CDLL(None).mprotect(ctypes.c_void_p(memory.ctypes.data + PAGE), ctypes.c_size_t(PAGE), 0)
g = torch.from_numpy(memory[PAGE - 4 * int(np.prod(SHAPE)) : PAGE].view(np.float32).reshape(SHAPE))
g.copy_(torch.randn(SHAPE))  # ends where the first page ends
x = torch.randn(2, 3, 4, 4).requires_grad_()
y = torch.compile(lambda x: torch.nn.functional.pad(x, (-1, 0, -1, 0)))(x)
torch.autograd.grad(y, x, g)
print("fixed: nothing behind the end was read")
