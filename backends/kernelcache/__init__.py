"""What the packages of this repository share below all others: compiled code on disk, and first use under fork."""
