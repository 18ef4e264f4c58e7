"""The same model in another version: what one does, the other does."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

_spec = spec_from_file_location("first_version", Path(__file__).parents[1] / "1" / "model.py")
_first = module_from_spec(_spec)
_spec.loader.exec_module(_first)
TritonPythonModel = _first.TritonPythonModel
