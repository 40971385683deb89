"""Clients that make the broker log: the log stays small, and says how much it leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest

from echoless.broker.limited_log import BURST
from tests.hostile.target import API_VERSIONS, assert_quiet_log, framed, is_answering, talk, until
from tests.support.echoless import Echoless

TRIES = 3 * BURST


@pytest.mark.slow  # the summary comes after ten seconds
def test_bad_bytes_cannot_fill_the_log(tmp_path: Path):
    """For hundreds from one address the log has the first, and later the number of the others."""
    broker = Echoless(tmp_path)
    broker.start()
    for number in range(TRIES):
        talk(broker.kafka_address, framed(b"\0\xff%06d" % number))
        talk(broker.native_address, b"\xff" * 8)
        talk(broker.admin_address, b"\x16\x03\x01 no HTTP\r\n\r\n")
    assert is_answering(broker.kafka_address)
    until(lambda: "more lines about 127.0.0.1 were left out" in broker.process.log(), "a summary")
    for line in ("closing connection", "this is not HTTP"):
        assert BURST <= broker.process.log().count(line) < TRIES, line
    assert talk(broker.kafka_address, API_VERSIONS)
    assert broker.terminate() == 0
    assert_quiet_log(broker)
