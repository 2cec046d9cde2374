"""Concatenation, slices, padding and reshaping."""
