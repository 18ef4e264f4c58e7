"""Hundreds of real models at the price of one: ensembles of a single step have no process of their own."""

import shutil
from pathlib import Path
from typing import Any, Final

from benchmarks.plan import ROOT

STEP: Final = "text_generation"
"""The model of ``tests/models`` that each of them runs."""

_TENSORS: Final = {
    "input": {"text_input": "TYPE_STRING", "max_tokens": "TYPE_INT32"},
    "output": {"text_output": "TYPE_STRING", "prompt_tokens": "TYPE_INT32", "completion_tokens": "TYPE_INT32"},
}


def name_of(number: int) -> str:
    """The name that Triton knows one by."""
    return f"ensemble_{number:03}"


def names(count: int) -> list[str]:
    """The names of so many."""
    return [name_of(number) for number in range(count)]


def repository(folder: Path, count: int) -> Path:
    """Return a model repository with so many ensembles, and the model that they run."""
    shutil.copytree(ROOT / "tests" / "models" / STEP, folder / STEP, ignore=shutil.ignore_patterns("__pycache__"))
    for name in names(count):
        (folder / name / "1").mkdir(parents=True)
        write(folder, name)
    return folder


def write(folder: Path, name: str, *, max_batch_size: int = 64, **renamed: str) -> None:
    """Write one's configuration, with outputs or inputs of its own under other names."""
    step = [
        f'{side}_map {{ key: "{tensor}" value: "{renamed.get(tensor, tensor)}" }}'
        for side, tensors in _TENSORS.items()
        for tensor in tensors
    ]
    config = [
        f'name: "{name}" platform: "ensemble" max_batch_size: {max_batch_size}',
        *(
            f'{side} {{ name: "{renamed.get(tensor, tensor)}" data_type: {datatype} dims: [ 1 ] }}'
            for side, tensors in _TENSORS.items()
            for tensor, datatype in tensors.items()
        ),
        f'ensemble_scheduling {{ step {{ model_name: "{STEP}" model_version: -1 {" ".join(step)} }} }}',
    ]
    (folder / name / "config.pbtxt").write_text("\n".join(config))


def behind(names_of_models: list[str]) -> dict[str, Any]:
    """Settings of a public name ``acme/NAME`` for each of these models."""
    return {
        "supported_models": [f"acme/{name}" for name in names_of_models],
        "models": {f"acme/{name}": {"model_name": name} for name in names_of_models},
    }
