"""Strategies and properties of the families that have not moved."""
