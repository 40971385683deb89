"""Clients that make the broker log: the log stays small, and says how much it leaves out."""

from __future__ import annotations

from pathlib import Path

from broker.limited_log import BURST
from tests.hostile.target import API_VERSIONS, assert_quiet_log, framed, is_answering, talk, until
from tests.support.echoless import Echoless

FRAMES = 4 * BURST


def test_bad_frames_cannot_fill_the_log(tmp_path: Path):
    """For hundreds from one address the log has the first, and later the number of the others."""
    broker = Echoless(tmp_path)
    broker.start()
    for number in range(FRAMES):
        assert talk(broker.kafka_address, framed(b"\0\xff%06d" % number)) == b""
    assert is_answering(broker.kafka_address)
    until(lambda: "more lines about 127.0.0.1 were left out" in broker.process.log(), "a summary")
    closings = broker.process.log().count("closing connection")
    assert BURST <= closings < FRAMES // 2
    assert talk(broker.kafka_address, API_VERSIONS)
    assert broker.terminate() == 0
    assert_quiet_log(broker)
