"""What the project promises, as tests: unit (no process), integration (a real Valkey, a real Triton), acceptance (the commands)."""
