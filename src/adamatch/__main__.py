"""`python -m adamatch`."""

from adamatch.cli import main

main()
