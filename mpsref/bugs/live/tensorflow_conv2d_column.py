"""TensorFlow (oneDNN on AVX-512): conv2d to one column writes behind its memory if the stride is long."""

from pathlib import Path

import numpy as np
import tensorflow as tf

cpu = Path("/proc/cpuinfo")
numbers = np.random.default_rng(0)
x, w = numbers.standard_normal((1, 32770, 1, 1)), numbers.standard_normal((3, 1, 1, 1))
if not cpu.exists() or "avx512f" not in cpu.read_text():
    print("not affected: only with AVX-512")
else:
    y, z = (tf.nn.conv2d(x.astype(t), w.astype(t), (4096, 1), "VALID") for t in ("f4", "f8"))
    error = abs(y.numpy() - z.numpy()).max()
    print(f"wrong: by {error:.3g}" if error > 1e-4 else "fixed: the call returns")
