"""Lines that other machines provoke: bounded in number and in memory, and never lost uncounted."""

from __future__ import annotations

import logging
import re

import pytest

from broker import limited_log
from broker.limited_log import ADDRESSES_MAX, BURST, OTHERS, LimitedLog

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
    count = 20_000
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
