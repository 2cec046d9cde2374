"""What all kernels build on: base classes, images, states, padding policies, command buffers, archives."""
