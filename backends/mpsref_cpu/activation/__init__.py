"""Activation functions, softmax and log-softmax."""
