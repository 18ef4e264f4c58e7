"""A real Triton, a real Valkey and a small real model, embedded: for the demo and for the tests (extra ``demo``)."""
