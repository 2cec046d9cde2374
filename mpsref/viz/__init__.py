"""Pictures and texts that show what a kernel computes."""
