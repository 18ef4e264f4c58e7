"""Tests against a real Valkey and a real tritonserver."""
