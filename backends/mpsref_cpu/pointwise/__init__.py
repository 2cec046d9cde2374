"""Arithmetic and comparison of two images."""
