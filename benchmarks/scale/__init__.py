"""How the worker grows: with queues, models, workers and time: ``python -m benchmarks.scale``."""
