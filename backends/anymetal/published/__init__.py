"""Published Metal kernels, launched as their hosts do and compared with NumPy, and published faults of such kernels."""
