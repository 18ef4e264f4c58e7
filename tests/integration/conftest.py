"""Integration tests use the servers of ``tests/conftest.py``; a missing embedded part fails them, it never skips them."""
