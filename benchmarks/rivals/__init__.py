"""Other queues doing the same work: each is run in a virtual environment of its own (benchmarks/environments.py).

Each module is what a user of that queue would write: the worker, and, run as a program with a job's JSON, what enqueues one job.
They read ``RIVAL_REDIS_URL``, ``RIVAL_TRITON`` and ``RIVAL_CONCURRENCY``, retry nothing and validate nothing.
"""
