"""Kafka Connect with exactly-once support for sources: a worker that is killed again and again writes every line once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.applications.connect import ExactlyOnceSource
from tests.applications.servers import OneServer
from tests.support.echoless import Echoless

pytestmark = [pytest.mark.clients, pytest.mark.slow]

_KILLS = 2


def test_each_line_of_a_source_is_written_once(tmp_path: Path, broker: Echoless) -> None:
    """Lines and the source's position are committed together: what was open when the worker was killed is aborted, and read again."""
    source = ExactlyOnceSource(tmp_path, OneServer(broker), "written-once")
    source.start()
    for _ in range(_KILLS):
        source.wait_until_open()
        source.restart()
    source.wait_until_written()
    source.close()
    assert source.stored() > source.check(), "what was open was aborted"
