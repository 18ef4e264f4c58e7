"""docs/tensor-jobs.md: its examples are right, and the tests that it names are there."""

import json
import re
from pathlib import Path

from settings.load import settings_from
from settings.tensors import TensorRules
from tasks.reading import ValidJob, read_job
from tasks.tensor_limits import TensorLimits
from worker.keys import Keys

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tensor-jobs.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", PAGE.partition("Dynamo's Triton")[2], re.MULTILINE)[1:]


def test_every_test_that_the_page_names_exists() -> None:
    """As a function of some test module; each row names one at least."""
    there = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^ *def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    assert [row[0] for row in ROWS] == [
        *("FP16 and BF16 tensors", "Classification", "Model version selection", "Shared memory")
    ]
    for feature, _, tests in ROWS:
        named = set(re.findall(r"`(test_\w+)`", tests))
        assert named, feature
        assert named - there == set()


def test_the_configuration_loads() -> None:
    """It has every rule, and the table says what each is."""
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    rules = settings_from(json.loads(example)).runtime_for("acme/embeddings").tensors
    assert rules.model_fields_set == set(TensorRules.model_fields)
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)[: len(TensorRules.model_fields)] == list(
        TensorRules.model_fields
    )


def test_what_the_shell_example_pushes_is_a_job() -> None:
    """Copied and pasted, it runs."""
    ((queue, raw),) = re.findall(r"redis-cli LPUSH (\S+) '(.+)'", PAGE)
    model = Keys("speedinfer").model_of(queue)
    read = read_job(raw.encode(), queue_model=model, limits=TensorLimits(1000), max_job_bytes=1000)
    assert isinstance(read, ValidJob)
