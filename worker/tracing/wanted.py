"""Where spans are to be sent, by OpenTelemetry's own environment variables. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


@dataclass(frozen=True, slots=True)
class TracesWanted:
    """The exporters that are configured, by name: none is no tracing. ``protocol`` is the one that otlp is to speak."""

    exporters: tuple[str, ...] = ()
    protocol: str = "http/protobuf"


NO_TRACES = TracesWanted()


def traces_wanted(environ: Mapping[str, str]) -> TracesWanted:
    """Return what the environment asks for: an exporter by name, or an endpoint, which is otlp's."""
    named = [name.strip() for name in environ.get("OTEL_TRACES_EXPORTER", "").split(",") if name.strip()]
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or "none" in named:
        return NO_TRACES
    if not named and not any(environ.get(name) for name in _ENDPOINTS):
        return NO_TRACES
    protocol = next((environ[name] for name in _PROTOCOLS if environ.get(name)), NO_TRACES.protocol)
    return TracesWanted(tuple(named) or ("otlp",), protocol)
