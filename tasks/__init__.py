"""What a job is, how it can fail, and what doing it means. Knows nothing of Redis, Triton or processes."""
