"""Transposed convolutions: each pass is a pass of the equivalent convolution, in :mod:`mpsref_cpu.convolution`."""

from mpsref_cpu.convolution import IMPLEMENTATIONS

__all__ = ["IMPLEMENTATIONS"]
