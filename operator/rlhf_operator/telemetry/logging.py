"""One line per thing done, for people or as JSON, with the job it is about."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from rlhf_api.formats import format_time

_LOGGER = logging.getLogger("rlhf_operator")
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def log(message: str, *, level: str = "info", exception: BaseException | None = None, **fields: Any) -> None:
    """Write one line.

    Args:
        message: What was done, without names and numbers.
        level: debug, info, warning or error.
        exception: Its traceback is added.
        **fields: Names and numbers; `job` is `NAMESPACE/NAME`.
    """
    said = {key: value for key, value in fields.items() if value is not None}
    _LOGGER.log(_LEVELS[level], message, extra={"fields": said}, exc_info=exception)


class TextFormatter(logging.Formatter):
    """`12:30:01 INFO  default/ppo applied kind=RayCluster`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and a traceback where there is one."""
        fields = dict(getattr(record, "fields", {}))
        job = fields.pop("job", None)
        parts = [format_time(_time(record)), f"{record.levelname:7}"]
        parts += [str(job)] if job else []
        parts.append(record.getMessage())
        parts += [f"{key}={_quoted(value)}" for key, value in fields.items()]
        return _with_traceback(self, " ".join(parts), record)


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        fields = dict(getattr(record, "fields", {}))
        line = {
            "time": _time(record).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **{
                key: value if isinstance(value, str | int | float | bool) else str(value)
                for key, value in fields.items()
            },
        }
        if not fields:
            line["logger"] = record.name
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def configure(*, form: str, level: str) -> None:
    """Send all logs of this process to its standard output, in this form (`text` or `json`)."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    _LOGGER.setLevel(_LEVELS[level])
    logging.captureWarnings(True)
    # It says that signals are ignored in its thread, which is what we want.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, tz=UTC)


def _quoted(value: Any) -> str:
    text = str(value)
    return json.dumps(text) if not text or any(character.isspace() or character in '"=' for character in text) else text


def _with_traceback(formatter: logging.Formatter, line: str, record: logging.LogRecord) -> str:
    return f"{line}\n{formatter.formatException(record.exc_info)}" if record.exc_info else line
