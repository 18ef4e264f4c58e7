"""Never answers. What it was asked stays in flight, so this model cannot be unloaded, and is one of its own."""

# ruff: noqa: ANN001, ANN201 - Triton hands over objects that have no types outside its own process


class TritonPythonModel:
    """Says of every request that its answer comes later."""

    def execute(self, requests):
        """Keep every request waiting."""
        return [None] * len(requests)
