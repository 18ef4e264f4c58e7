"""How jobs are run: Redis, Triton, processes, time and commands. docs/architecture.md is the map of this package."""
