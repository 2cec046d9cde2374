"""Mutants of the families that have not moved."""
