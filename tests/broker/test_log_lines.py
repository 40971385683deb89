"""One event is one line, for people and for machines."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from echoless.broker.config.names import LogFormat, LogLevel
from echoless.broker.log_lines import TextFormatter, configure_logs


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_text_line_says_when_how_important_who_and_what(stream: io.StringIO) -> None:
    """A line for people has a UTC time, the level, the logger and the message."""
    configure_logs(LogFormat.TEXT, LogLevel.INFO, stream)
    logging.getLogger("echoless.broker.network.server").info("listening on %s", "[::1]:9092")
    assert stream.getvalue()[10:].endswith(
        "Z INFO    echoless.broker.network.server: listening on [::1]:9092\n"
    )


@pytest.mark.parametrize("log_format", list(LogFormat))
def test_message_cannot_forge_a_line(stream: io.StringIO, log_format: LogFormat) -> None:
    """A line break from the network, or a traceback, stays within its line."""
    configure_logs(log_format, LogLevel.INFO, stream)
    error = RuntimeError("broken")
    logging.getLogger("x").error("client %s", "a\r\n2026 ERROR forged", exc_info=error)
    assert stream.getvalue().count("\n") == 1
    assert "\r" not in stream.getvalue()
    assert "RuntimeError: broken" in stream.getvalue()


def test_json_line_holds_the_extra_fields(stream: io.StringIO) -> None:
    """Each JSON line is one object with the message's own fields beside the standard ones."""
    configure_logs(LogFormat.JSON, LogLevel.INFO, stream)
    logging.getLogger("x").warning("gap", extra={"producer_id": 7})
    line = json.loads(stream.getvalue())
    assert (line["level"], line["logger"], line["message"]) == ("warning", "x", "gap")
    assert line["producer_id"] == 7
    assert line["time"].endswith("Z")
    assert "exception" not in line


def test_lines_below_the_level_are_left_out(stream: io.StringIO) -> None:
    """The level is a floor for every logger."""
    configure_logs(LogFormat.TEXT, LogLevel.WARNING, stream)
    logging.getLogger("x").info("quiet")
    assert not stream.getvalue()


@pytest.mark.parametrize("character", ["\n", "\r", "\x0b", "\x0c", "\x1b", "\x85", "\u2028"])
def test_no_character_of_a_client_breaks_or_colours_a_line(character):
    """Whatever `splitlines` or a terminal would obey is written as its escape."""
    record = logging.makeLogRecord({"msg": "client %s", "args": (f"a{character}b",)})
    line = TextFormatter().format(record)
    assert len(line.splitlines()) == 1
    assert line.isprintable()
