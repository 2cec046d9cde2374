"""Reductions of images along axes."""
