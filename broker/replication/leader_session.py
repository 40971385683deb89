"""The follower's side of a session: which rows the leader has, and the next message.

A session lasts as long as every message of it is answered. After anything else the next one is opened, in which all
partitions are named anew; so what a follower said, and did not take back, is what it says. It is opened even if there is
nothing to name any more: what was to be forgotten may have been lost on its way.

The leader's side is `broker/native/replica_session.py`, which explains the rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from echoless.broker.replication.follower import Follower
from echoless.protocol.errors import ErrorCode
from echoless.protocol.native.replica_session import (
    FORGOTTEN_MAX,
    NamedRow,
    SessionFetch,
    read_session_answer,
)
from echoless.protocol.native.replication import ReplicaFetched


class LeaderSession:
    """One session with one leader."""

    def __init__(self, number: int, *, replaces: bool = False) -> None:
        """`number` is higher than that of every earlier session, of one of which the leader may have rows if `replaces`."""
        self.number = number
        self._epoch = 0
        self._replaces = replaces
        self._is_asking = False
        """Whether a message has no answer yet."""
        self._next_numbers = itertools.count()
        self._numbers: dict[Follower, int] = {}
        self._rows: dict[int, Follower] = {}
        """The rows that the leader may have, by their numbers."""
        self._forgotten: list[int] = []

    @property
    def is_needed(self) -> bool:
        """Whether the leader has anything to wait for, or to forget."""
        return bool(self._rows or self._forgotten) or self._replaces

    @property
    def may_have_rows(self) -> bool:
        """Whether the leader may have rows of it, or of the session that it replaces."""
        return self._is_asking or self.is_needed

    def forget(self, follower: Follower) -> None:
        """Has the leader forget what this follower said."""
        number = self._numbers.pop(follower, None)
        if number is not None and self._rows.pop(number, None) is not None:
            self._forgotten.append(number)

    def message(
        self,
        named: Sequence[Follower],
        *,
        broker_id: int,
        broker_epoch: int,
        max_wait_ms: int,
        bytes_max: int,
    ) -> SessionFetch:
        """The next message: it says how far the logs of `named` go."""
        forgotten, self._forgotten = (
            self._forgotten[:FORGOTTEN_MAX],
            self._forgotten[FORGOTTEN_MAX:],
        )
        rows = []
        for follower in named:
            number = self._numbers.get(follower)
            if number is None:
                number = self._numbers[follower] = next(self._next_numbers)
            self._rows[number] = follower
            rows.append(NamedRow(number, follower.wanted()))
        message = SessionFetch(
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            max_wait_ms=max_wait_ms,
            bytes_max=bytes_max,
            session=self.number,
            session_epoch=self._epoch,
            named=rows,
            forgotten=forgotten,
        )
        self._epoch += 1
        self._is_asking = True
        return message

    def read_answer(
        self, answer: Mapping[str, Any]
    ) -> list[tuple[Follower, ReplicaFetched]] | None:
        """The leader's news for each follower; None if it knows no sessions. Raises `KafkaError`, `DecodeError`."""
        rows = read_session_answer(answer, self.number)
        if rows is None:
            return None
        self._is_asking = self._replaces = False
        found = []
        for number, fetched in rows:
            follower = self._rows.get(number)
            if follower is None:
                continue  # it was forgotten meanwhile
            if fetched.error is not ErrorCode.NONE or fetched.diverging is not None:
                del self._rows[number]  # as the leader has done
            found.append((follower, fetched))
        return found
