"""Convolution, transposed convolution and fully connected layers: forward pass, data gradient, weight gradient."""
