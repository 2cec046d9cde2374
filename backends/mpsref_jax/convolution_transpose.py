"""A convolution of the source with zeros between its pixels, ``lhs_dilation``."""

from mpsref_jax.convolution import IMPLEMENTATIONS

__all__ = ["IMPLEMENTATIONS"]
