"""Lines that other machines provoke: bounded in number and in memory, and never lost uncounted."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from echoless.broker import limited_log
from echoless.broker.limited_log import (
    ADDRESSES_MAX,
    ARGUMENT_LENGTH_MAX,
    BURST,
    OTHERS,
    LimitedLog,
)
from tests.support.in_process import Running, in_process
from tests.support.raw_client import RawConnection, create_topic

MESSAGE = "a bad frame from %s"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which the test moves."""
    now = [0.0]
    monkeypatch.setattr(limited_log.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def limited() -> LimitedLog:
    return LimitedLog(logging.getLogger("limited"))


def warn(limited: LimitedLog, host: str, count: int, message: str = MESSAGE) -> None:
    for _ in range(count):
        limited.log(logging.WARNING, host, message, host)


async def test_an_address_has_a_burst_and_then_a_line_a_second(clock, limited, caplog):
    """Others, and lines of other kinds, are not affected."""
    warn(limited, "10.0.0.1", 10 * BURST)
    assert len(caplog.records) == BURST
    warn(limited, "10.0.0.2", 3)
    warn(limited, "10.0.0.1", 3, "an unknown API from %s")
    assert len(caplog.records) == BURST + 6
    for second in range(1, 11):
        clock[0] = float(second)
        warn(limited, "10.0.0.1", 50)
    assert len(caplog.records) == BURST + 6 + 10


@pytest.mark.parametrize("kind", [str, ValueError, list])
async def test_a_line_is_short_whatever_it_is_about(limited, caplog, kind):
    """It may have what a client has sent; the line says how much was left out."""
    limited.log(
        logging.WARNING, "10.0.0.1", "%d bytes from %s: %s", 5, "10.0.0.1", kind("x" * 60_000)
    )
    (line,) = caplog.messages
    assert line.startswith("5 bytes from 10.0.0.1: ")
    assert len(line) <= ARGUMENT_LENGTH_MAX + 100
    assert "... (" in line


async def test_what_is_left_out_is_counted(clock, limited, caplog):
    """The lines and the summaries together say how often it happened."""
    warn(limited, "10.0.0.1", BURST + 77)
    caplog.clear()
    limited.summarise()
    (line,) = caplog.messages
    assert line == f"77 more lines about 10.0.0.1 were left out: {MESSAGE}"
    limited.summarise()
    assert len(caplog.records) == 1


async def test_any_number_of_addresses_takes_bounded_memory(clock, limited, caplog):
    """Those beyond the bound share one allowance; the quiet ones make room."""
    caplog.set_level(logging.WARNING, logger="limited")
    count = 10 * ADDRESSES_MAX
    for number in range(count):
        limited.log(logging.WARNING, f"10.0.{number >> 8}.{number & 255}", MESSAGE, number)
    addresses = limited._kinds[MESSAGE]
    assert len(addresses) <= ADDRESSES_MAX + 1
    lines = len(caplog.records)
    assert lines == ADDRESSES_MAX + BURST
    caplog.clear()
    limited.summarise()
    (line,) = caplog.messages
    assert re.match(rf"{count - lines} more lines about {OTHERS}", line)
    clock[0] = 1000.0
    warn(limited, "192.168.0.1", 1)
    assert list(addresses) == ["192.168.0.1"]


async def test_topics_that_clients_create_and_delete_cannot_fill_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each round costs the client two small requests and would cost two lines."""
    monkeypatch.setattr(limited_log, "BURST", 3)
    monkeypatch.setattr(limited_log, "LINES_PER_S", 0.0)
    caplog.set_level(logging.INFO)
    async with in_process(tmp_path) as running:
        topics = running.broker.services.topics
        for _ in range(8):
            await topics.auto_create("churned")
            await topics.delete("churned")
        await create_topic_and_wait(running)
    for line in ("because a client asked", "have left their names"):
        assert caplog.text.count(line) == 3, line


async def create_topic_and_wait(running: Running) -> None:
    """Lets the removals that were queued before come to their ends."""
    connection = await RawConnection.open(running.kafka_address)
    await create_topic(connection, "churned", 1)
    await connection.close()
