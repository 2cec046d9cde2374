"""Upsampling and bilinear resizing."""
