"""Figures and text that show the windows of a kernel and the steps of a graph."""
