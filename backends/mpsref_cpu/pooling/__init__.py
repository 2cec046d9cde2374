"""Average, max and L2-norm pooling: forward pass and gradient."""
