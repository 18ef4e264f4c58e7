"""Log lines: structlog events, with Celery's and kombu's own lines in the same form."""

import logging
import sys
from collections.abc import Mapping
from typing import Any, TextIO

import structlog

from settings.schema import Settings

# Their lines about single messages would show a job's content, and say less than ours.
_QUIETER = {"celery": logging.WARNING, "kombu": logging.WARNING, "celery.worker.strategy": logging.ERROR}


def configure_logs(settings: Settings, stream: TextIO = sys.stderr) -> None:
    """Send all log lines of this process to ``stream``, each with the worker's id."""
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    as_json = settings.log_format == "json" or (settings.log_format == "auto" and not stream.isatty())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _with_worker_id(settings.worker_id),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _renderer(as_json=as_json, stream=stream),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        # Text and line end in one write: lines of processes that share a stream must not mix.
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(handlers=[_ToStructlog()], level=level, force=True)
    for name, quieter in _QUIETER.items():
        logging.getLogger(name).setLevel(max(level, quieter))


def _with_worker_id(worker_id: str) -> structlog.types.Processor:
    def add(_logger: Any, _method: str, event: structlog.types.EventDict) -> Mapping[str, Any]:
        return {"worker_id": worker_id, **event}

    return add


def _renderer(*, as_json: bool, stream: TextIO) -> structlog.types.Processor:
    return structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=stream.isatty())


class _ToStructlog(logging.Handler):
    """Hands the lines of the standard library's loggers on. What an exception says may hold a job's content: its type stays."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        log = structlog.get_logger().bind(logger=record.name)
        fault = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else None
        log.log(record.levelno, "library.reported", message=record.getMessage()[:300], exception=fault)
