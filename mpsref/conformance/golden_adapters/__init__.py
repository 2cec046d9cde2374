"""Golden adapters of the families that have not moved."""
