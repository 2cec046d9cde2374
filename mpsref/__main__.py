"""``python -m mpsref`` is the command ``mpsref``."""

from mpsref.cli import main

main()
