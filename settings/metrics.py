"""Where a worker's metrics are served, and where Triton's own are."""

import re
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, ValidationInfo
from pydantic_core import PydanticCustomError

from settings import addresses
from settings.fields import Shown

_LISTEN = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")
_HIGHEST_PORT = 65_535
_TRITON_PORT = 8002


def _listen_address(text: str) -> str:
    found = _LISTEN.fullmatch(text)
    if found is None or int(found[1]) > _HIGHEST_PORT:
        raise PydanticCustomError("refused", "must be host:port, such as 0.0.0.0:9464 or [::]:9464")
    return text


def _has_a_use(wanted: bool, info: ValidationInfo) -> bool:  # noqa: FBT001 - pydantic hands over the value
    if wanted and info.data.get("metrics_address", "") is None:
        raise PydanticCustomError("refused", "has no use without metrics_address")
    return wanted


def triton_metrics_url(data: Mapping[str, Any]) -> str:
    """The address at which a Triton at `runtime_endpoint` shows its metrics unless it is told otherwise."""
    host = urlsplit(data.get("runtime_endpoint", "http://localhost")).hostname or ""
    return f"http://{f'[{host}]' if ':' in host else host}:{_TRITON_PORT}/metrics"


MetricsAddress = Annotated[str, AfterValidator(_listen_address)]
PassThrough = Annotated[bool, AfterValidator(_has_a_use)]
TritonMetricsUrl = Annotated[
    str,
    AfterValidator(addresses.http_endpoint),
    Shown(kind="http(s) URL", default=f"`http://`, the host of `runtime_endpoint`, `:{_TRITON_PORT}/metrics`"),
]
