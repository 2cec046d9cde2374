"""Base classes of the kernels, images, states, padding policies, command buffers, archives."""
