"""TensorFlow (oneDNN on AVX-512): conv2d of one channel puts results in wrong places if they are one pixel wide."""

from pathlib import Path

import numpy as np
import tensorflow as tf

cpu = Path("/proc/cpuinfo")
numbers = np.random.default_rng(0)
x, w = numbers.standard_normal((2, 9, 4, 1)), numbers.standard_normal((5, 5, 1, 1))
y, z = (tf.nn.conv2d(x.astype(t), w.astype(t), (1, 4), ((0, 0), (1, 1), (1, 1), (0, 0))) for t in ("f4", "f8"))
error, largest = abs(y.numpy() - z.numpy()).max(), abs(z.numpy()).max()
if not cpu.exists() or "avx512f" not in cpu.read_text():
    print("not affected: only with AVX-512")
else:
    print(f"{'fixed' if error < 1e-3 else 'wrong'}: float32 and float64 differ by {error:.3g} of {largest:.3g}")
