r"""The broker's log: one line each on standard error, for people or as JSON.

A control character inside a message or a traceback is written as its escape, as in `\n`: client ids
and topic names come from the network, and must not be able to forge a line or control a terminal.
What a caller passes as `extra=` becomes further members of the JSON object.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import IO, Final

from echoless.broker.config.names import LogFormat, LogLevel

_TEXT_FORMAT: Final = "%(asctime)s.%(msecs)03dZ %(levelname)-7s %(name)s: %(message)s"
_TIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%S"
_STANDARD_ATTRIBUTES: Final = frozenset(
    {*vars(logging.makeLogRecord({})), "message", "asctime", "color_message"}
)
_CONTROL_CHARACTERS: Final = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
_ESCAPES: Final = {code: ascii(chr(code))[1:-1] for code in _CONTROL_CHARACTERS}


class TextFormatter(logging.Formatter):
    """`2026-11-21T00:50:12.345Z INFO    echoless.broker.network.server: message`, in UTC."""

    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__(_TEXT_FORMAT, _TIME_FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).translate(_ESCAPES)


class JsonFormatter(logging.Formatter):
    """One object per line: time, level, logger, message, the `extra=` members, and the traceback."""

    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__(datefmt=_TIME_FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": f"{self.formatTime(record, _TIME_FORMAT)}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {k: v for k, v in vars(record).items() if k not in _STANDARD_ATTRIBUTES}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure_logs(log_format: LogFormat, level: LogLevel, stream: IO[str] | None = None) -> None:
    """Sends every logger's lines of `level` and above to `stream` (standard error).

    Replaces any earlier setup, so a second call wins.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format is LogFormat.JSON else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    set_level(level)


def set_level(level: LogLevel) -> None:
    """Logs lines of `level` and above from now on."""
    logging.getLogger().setLevel(level.upper())
