"""How fast the worker is, beside the limit and beside what one would write instead: ``python -m benchmarks``."""
