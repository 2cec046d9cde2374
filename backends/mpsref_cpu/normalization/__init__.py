"""Batch, instance, group, spatial, local contrast and cross-channel normalization."""
