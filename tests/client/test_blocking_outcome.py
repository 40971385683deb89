"""The outcome of a batch is a future with the producer's condition."""

from __future__ import annotations

import threading

import pytest

from echoless.client.acknowledgements import Acknowledgements
from echoless.client.blocking_outcome import BatchOutcome

NO_RECORDS = Acknowledgements(())


class Owner:
    """Notifies as the producer does: only for an outcome that is awaited."""

    def __init__(self):
        self.lock = threading.RLock()
        self.condition = threading.Condition(self.lock)
        self.ended = []

    def outcome(self):
        return BatchOutcome(self.lock, self.condition, self.on_done)

    def on_done(self, outcome):
        with self.condition:
            self.ended.append(outcome)
            if outcome.is_awaited:
                self.condition.notify_all()


def test_a_caller_that_waits_is_notified():
    """The result is set by another thread, after the caller has begun to wait."""
    owner = Owner()
    outcome = owner.outcome()

    def finish_when_awaited():
        is_awaited = False
        while not is_awaited:
            with owner.condition:
                is_awaited = outcome.is_awaited
        outcome.set_result(NO_RECORDS)

    thread = threading.Thread(target=finish_when_awaited)
    thread.start()
    assert outcome.result(60) is NO_RECORDS
    thread.join()
    assert owner.ended == [outcome]


def test_its_exception_is_raised_every_time():
    """It is set once and kept; the owner learns of it."""
    owner = Owner()
    outcome = owner.outcome()
    assert not outcome.done()
    error = ValueError("no")
    outcome.set_exception(error)
    assert outcome.done()
    assert outcome.exception() is error
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            outcome.result()
    assert owner.ended == [outcome]


def test_waiting_may_end_before_the_outcome():
    """The batch may still be stored: a later call returns its acknowledgements."""
    outcome = Owner().outcome()
    with pytest.raises(TimeoutError, match="no outcome after 0"):
        outcome.result(0)
    outcome.set_result(NO_RECORDS)
    assert outcome.result(0) is NO_RECORDS
