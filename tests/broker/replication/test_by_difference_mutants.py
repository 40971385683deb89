"""Histories of replication by difference miss each promise that is taken out of it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

import pytest

from echoless.broker.native.replica_session import Row, Session
from echoless.broker.native.replica_sessions import ReplicaSessions
from echoless.broker.partitions.waiters import Waiters
from echoless.broker.replication.fetcher import Fetcher
from echoless.protocol.native.replica_session import SessionFetch
from tests.broker.replication.test_by_difference import Event, play

HISTORIES: Final = 500
Mutate = Callable[[pytest.MonkeyPatch], None]


def random_events(seed: int) -> list[Event]:
    """Draws up to forty events."""
    rng = Random(seed)

    def index() -> int:
        return rng.randrange(3)

    def broker() -> int:
        return rng.choice([1, 2])

    kinds: list[Callable[[], Event]] = [
        *[lambda: ("append", (index(),))] * 3,
        *[lambda: ("delete", (index(),))] * 3,
        lambda: ("move", (index(), rng.choice([None, 1, 2]))),
        lambda: ("lead_again", (index(), rng.choice([None, 1, 2]))),
        lambda: ("there_and_back", (index(),)),
        lambda: ("reassign", (index(),)),
        lambda: ("restart", (broker(), rng.randrange(4), rng.choice([0.0, 0.3, 2.0]))),
        lambda: ("doubt", (broker(),)),
        lambda: ("break_connections", ()),
        lambda: ("run", (rng.choice([0.0003, 0.001, 0.1, 1.0, 20.0]),)),
    ]
    return [rng.choice(kinds)() for _ in range(rng.randrange(1, 40))]


def _lost_answers_do_not_matter(patch: pytest.MonkeyPatch) -> None:
    """The follower goes on with its session, whatever became of a message."""
    patch.setattr(Fetcher, "_begin_anew", lambda self: self._followed.ask_all())


def _epochs_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    """A repeated or late message is taken for the next one."""
    session_of = ReplicaSessions._session_of

    def any_epoch(self: ReplicaSessions, message: SessionFetch, services: Any) -> Session:
        present = self._by_broker.get(message.broker_id)
        if message.session_epoch and present is not None and present.key == message.key:
            message = message._replace(session_epoch=present.next_epoch)
            present.wait = None
        return session_of(self, message, services)

    patch.setattr(ReplicaSessions, "_session_of", any_epoch)


def _registrations_do_not_end_sessions(patch: pytest.MonkeyPatch) -> None:
    """Claims under a broker epoch that was not registered yet are never repeated."""
    session_of = ReplicaSessions._session_of

    def as_ever(self: ReplicaSessions, message: SessionFetch, services: Any) -> Session:
        present = self._by_broker.get(message.broker_id)
        if present is not None:
            registered = services.cluster.registered_epoch(message.broker_id)
            present.counts = registered == message.broker_epoch
        return session_of(self, message, services)

    patch.setattr(ReplicaSessions, "_session_of", as_ever)


def _progress_is_not_sent(patch: pytest.MonkeyPatch) -> None:
    """The high watermark and the log start go with batches alone."""
    patch.setattr(Waiters, "note_progress", lambda self: self.progress.clear())


def _appends_do_not_mark(patch: pytest.MonkeyPatch) -> None:
    """An append that finds a follower level is never owed to it."""
    patch.setattr(Row, "set_result", lambda self, _: self._note_silence())


def _only_appends_mark(patch: pytest.MonkeyPatch) -> None:
    """A change of the replicas leaves the rows as they are."""
    set_result = Row.set_result

    def if_appended(self: Row, result: None) -> None:
        if self.partition.log.log_end_offset > self.offset or self.partition.in_sync is None:
            set_result(self, result)
        else:
            self.partition.waiters.append.add(self)

    patch.setattr(Row, "set_result", if_appended)


MUTANTS: Final[dict[str, Mutate]] = {
    "lost answers do not matter": _lost_answers_do_not_matter,
    "epochs are not checked": _epochs_are_not_checked,
    "registrations do not end sessions": _registrations_do_not_end_sessions,
    "progress is not sent": _progress_is_not_sent,
    "appends do not mark": _appends_do_not_mark,
    "only appends mark": _only_appends_mark,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_histories_find(name: str) -> None:
    """Some history among the first ones breaks a promise, and none does without the mutation."""
    with pytest.MonkeyPatch.context() as patch:
        MUTANTS[name](patch)
        found = next(seed for seed in range(HISTORIES) if not _is_kept(seed))
    assert play(random_events(found), found) == []


def _is_kept(seed: int) -> bool:
    try:
        return not play(random_events(seed), seed)
    except Exception:  # noqa: BLE001 - a broken promise may show in any way
        return False
