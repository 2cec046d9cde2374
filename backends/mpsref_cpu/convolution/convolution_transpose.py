"""Transposed convolution: its problems exchange source and result, and run on the kernels of convolution."""

from mpsref_cpu.convolution.convolution import IMPLEMENTATIONS as IMPLEMENTATIONS
