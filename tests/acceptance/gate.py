"""Inferences that last until a test lets them end: what is to happen while they run has happened by then, on any machine."""

from pathlib import Path

from tests.witness import Served


class Gate:
    """A folder that the models ``text_generation`` and ``tensor_echo`` look into before they answer what is held there."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder

    def prompt(self, text: str = "work") -> str:
        """A prompt whose answer is held."""
        return f"{self.fault} {text}"

    @property
    def fault(self) -> str:
        """What a tensor job has as its parameter ``fault`` for the same."""
        return f"held={self._folder}"

    def answer(self, *served: Served) -> None:
        """Let these be answered: no other inference of the same jobs."""
        for one in served:
            (self._folder / one.request_id.replace("/", ":")).touch()

    def open(self) -> None:
        """Let all be answered that are held, and all that come."""
        (self._folder / "all").touch()
