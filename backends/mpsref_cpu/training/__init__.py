"""Losses, optimizers and dropout."""
