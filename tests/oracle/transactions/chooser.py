"""Chooses the next step of a history from what its clients know: mostly what they would do, sometimes what they must not. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from tests.oracle.messages import Plain
from tests.oracle.transactions.requests import SHORT_MS, Requests, Versions
from tests.oracle.transactions.session import Session
from tests.oracle.transactions.step import (
    CLOSED,
    IDS,
    MISSING,
    NOBODY,
    PARTITIONS,
    READ,
    TIME_OUT,
    Request,
)

_READ_SHARE: Final = 0.05
_READING_SHARE: Final = 0.12
_NEW_SESSION_SHARE: Final = 0.02
_OLD_SESSION_SHARE: Final = 0.15
_AGAIN, _LATE, _ODD = 0.08, 0.12, 0.24
"""Shares of repetitions, of these with delayed copies, and of these with what no client sends."""
_LATE_INIT_SHARE: Final = 0.2
"""The share of delayed copies of InitProducerId that are sent: most of them end the history."""
_STEPS_BEFORE_TIME_OUT: Final = 3
_MakeRequest = Callable[[Session], Request]


class Chooser:
    """The same seed and the same answers give the same steps."""

    def __init__(self, choices: random.Random, versions: Versions) -> None:
        self._choices = choices
        self._versions = versions
        self._requests = Requests(choices, versions)
        self._sessions: dict[str, list[Session]] = {name: [] for name in IDS}
        self._number = 0
        self._newest = 0
        """The number of the newest connection."""
        self._oldest = 0
        self._mortal: list[str] = []
        """The ids whose transactions may time out."""
        self._left = 0
        """The steps until that is waited for."""

    def restarted(self) -> int:
        """Forgets all connections; returns the number of the next one."""
        self._newest += 1
        self._oldest = self._newest
        for session in self._all():
            session.connection = self._newest
        return self._oldest

    def next(self, *, is_last: bool) -> Request:
        """Chooses one request."""
        self._number += 1
        return replace(self._next(is_last=is_last), number=self._number)

    def heard(self, step: Request, answer: Plain, states: Mapping[str, Plain]) -> None:
        """Lets the client that asked know of the answer; `states` are those of all ids now."""
        self._watch(states)
        if step.note in {"late", "odd"} or answer == CLOSED:
            return
        for session in self._all():
            if session.name == step.client:
                session.learn(step, answer)

    def _watch(self, states: Mapping[str, Plain]) -> None:
        """Notes which transactions are to time out."""
        before = self._mortal
        self._mortal = [
            name
            for name, row in states.items()
            if row["state"] == "Ongoing" and row["timeout"] == SHORT_MS
        ]
        if not before:
            self._left = _STEPS_BEFORE_TIME_OUT

    def _all(self) -> Iterator[Session]:
        for sessions in self._sessions.values():
            yield from sessions

    def _next(self, *, is_last: bool) -> Request:
        aside, draw = self._requests.aside, self._choices.random
        if self._mortal:
            self._left -= 1
            if self._left < 0:
                return aside(TIME_OUT, self._oldest, {"names": self._mortal})
        if is_last or draw() < _READ_SHARE:
            return aside(READ, self._oldest)
        if draw() < _READING_SHARE:
            producers = sorted({one.producer for one in self._all() if one.producer})
            return self._requests.reading(self._oldest, producers)
        session = self._session(self._choices.choice(IDS))
        kind = draw()
        if session.asked and kind < _AGAIN:
            again = session.asked[-1]
            return replace(again, connection=self._later_connection(session), note="again")
        if session.asked and kind < _LATE:
            return self._late(session)
        if session.producer and kind < _ODD:
            return replace(self._odd(session), note="odd")
        step = self._ordinary(session)
        session.asked.append(step)
        return step

    def _session(self, name: str) -> Session:
        """The newest session of an id, sometimes a new one or an older one."""
        sessions = self._sessions[name]
        draw = self._choices.random
        if not sessions or sessions[-1].is_fenced or draw() < _NEW_SESSION_SHARE:
            self._newest += 1
            generation = self._choices.choice(self._versions.generations)
            session = Session(
                name=f"{name}{len(sessions) + 1}",
                id=name,
                generation=generation,
                connection=self._newest,
            )
            sessions.append(session)
        if len(sessions) > 1 and draw() < _OLD_SESSION_SHARE:
            return self._choices.choice(sessions)
        return sessions[-1]

    def _later_connection(self, session: Session) -> int:
        """The session's connection, from now on sometimes a new one."""
        if self._choices.random() < 0.3:
            self._newest += 1
            session.connection = self._newest
        return session.connection

    def _late(self, session: Session) -> Request:
        """A copy of an earlier request, on the connection that it was sent on."""
        step = self._choices.choice(session.asked)
        is_init = step.api == "init_producer_id"
        if is_init and self._choices.random() > _LATE_INIT_SHARE:
            step = session.asked[-1]
        return replace(step, connection=max(step.connection, self._oldest), note="late")

    # --- what a client does

    def _ordinary(self, session: Session) -> Request:
        requests = self._requests
        if not session.producer:
            return requests.init(session, is_new=True)
        kinds: list[tuple[_MakeRequest, float]]
        if session.must_end:
            kinds = [(requests.abort, 1), (requests.init, 1), (requests.end, 1)]
        elif session.is_open:
            is_first = session.generation == 1
            kinds = [
                (requests.produce, 8),
                (requests.add, 4 * is_first),
                (requests.add_offsets, 2 * is_first),
                (requests.commit_offsets, 3),
                (requests.end, 6),
                (requests.init, 0.3),
            ]
        elif session.generation == 1:
            kinds = [
                (requests.add, 8),
                (requests.add_offsets, 3),
                (requests.init, 2),
                (requests.end, 1),
                (requests.produce, 1),
            ]
        else:
            kinds = [
                (requests.produce, 8),
                (requests.commit_offsets, 2),
                (requests.init, 2),
                (requests.end, 2),
            ]
        return self._one_of(kinds)(session)

    def _one_of(self, kinds: list[tuple[_MakeRequest, float]]) -> _MakeRequest:
        makers, weights = zip(*kinds, strict=True)
        (chosen,) = self._choices.choices(makers, weights)
        return chosen

    # --- what no client does

    def _odd(self, session: Session) -> Request:
        """A request as of this session, with one thing that is wrong, or that another client would do."""
        requests = self._requests
        kinds: list[tuple[_MakeRequest, float]] = [
            (requests.produce, 4),
            (requests.add, 4),
            (requests.add_offsets, 2),
            (requests.commit_offsets, 4),
            (requests.end, 4),
            (requests.init, 1),
        ]
        step = self._one_of(kinds)(session)
        changes = (
            self._other_epoch,
            self._other_producer,
            self._other_id,
            self._other_generation,
            self._other_place,
        )
        return self._choices.choice(changes)(session, step)

    def _other_epoch(self, session: Session, step: Request) -> Request:
        epoch = max(session.epoch + self._choices.choice([-2, -1, -1, 1, 1]), 0)
        return _with(step, "producer_epoch", epoch)

    def _other_producer(self, _session: Session, step: Request) -> Request:
        known = [one.producer for one in self._all() if one.producer]
        return _with(step, "producer_id", self._choices.choice([NOBODY, *known]))

    def _other_id(self, session: Session, step: Request) -> Request:
        names = [*(one for one in IDS if one != session.id), MISSING, ""]
        return _with(step, "transactional_id", self._choices.choice(names))

    def _other_generation(self, session: Session, step: Request) -> Request:
        """The same with a version of the other generation, where there is one."""
        if len(set(self._versions.generations)) == 1:
            return self._other_epoch(session, step)
        is_second = session.generation == 1
        versions = {"produce": 11, "end_txn": 4, "txn_offset_commit": 4}
        if step.api not in versions:
            return step
        return replace(step, version=versions[step.api] + is_second)

    def _other_place(self, session: Session, step: Request) -> Request:
        """A topic that does not exist, a partition that was not added, a sequence that is not next, a member of no group."""
        if step.api == "produce":
            return self._other_batch(session, step)
        is_group = step.api == "txn_offset_commit" and step.version >= 3
        if is_group and self._choices.random() < 0.6:
            return _with(_with(step, "generation_id", 3), "member_id", "m")
        return _with(step, "name", MISSING)

    def _other_batch(self, session: Session, step: Request) -> Request:
        (row,) = step.values["rows"]
        match self._choices.randrange(4):
            case 0:
                partition = self._choices.randrange(PARTITIONS)
                step = _with(step, "sequence", session.sequences.get(partition, 0))
                return _with(step, "partition", partition)
            case 1:
                return _with(step, "sequence", row["sequence"] + 3)
            case 2:
                return _with(step, "is_transactional", False)
        return _with(step, "topic", MISSING)


def _with(step: Request, key: str, value: Plain) -> Request:
    """The step with another value of a field, wherever that is."""
    return replace(step, values=_changed(step.values, key, value))


def _changed(values: Mapping[str, Plain], key: str, value: Plain) -> dict[str, Plain]:
    """The values with another one; below version 4 of AddPartitionsToTxn the names of fields are longer."""
    found: dict[str, Plain] = {}
    for name, one in values.items():
        if name in {key, f"v3_and_below_{key}"}:
            found[name] = value
        elif isinstance(one, list):
            found[name] = [
                _changed(row, key, value) if isinstance(row, Mapping) else row for row in one
            ]
        else:
            found[name] = one
    return found
