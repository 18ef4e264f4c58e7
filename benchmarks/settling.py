"""How every side but ours settles a job: one script, of which the first call wins. Shared by stock Celery and the other queues."""

import json
from pathlib import Path
from typing import Any, Final

SCRIPT: Final = (Path(__file__).parent / "settle.lua").read_text()
SETTLEMENTS: Final = "settlements"
_RESULT_SECONDS: Final = 86_400
_MARKER_SECONDS: Final = 604_800


def settle(script: Any, job_id: str, model: str, result: dict[str, Any]) -> Any:
    """Call redis-py's ``script`` (of SCRIPT) for one job; of a client for asyncio, what it returns is to be awaited."""
    body = json.dumps({"job_id": job_id, "model": model, "status": "succeeded", **result})
    keys = [f"settled:{job_id}", SETTLEMENTS, f"result:{job_id}"]
    return script(keys=keys, args=[job_id, body, _MARKER_SECONDS, _RESULT_SECONDS])
