"""Published Metal kernels, of llama.cpp and MLX, launched as their hosts do and compared with NumPy."""
