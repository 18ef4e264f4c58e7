"""``python -m worker.cli``: the command, where its script is not on the path."""

from worker.cli import main

main()
