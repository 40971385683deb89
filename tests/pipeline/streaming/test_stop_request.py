"""Asking a run to stop."""

from __future__ import annotations

import os
import signal

from echoless.pipeline.streaming.stop_request import StopRequest


def test_the_first_signal_asks_and_the_second_kills() -> None:
    """After the first one signals have their default effect; after the block, their former one."""
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest() as stop:
        assert not stop.is_made
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(10)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is before
