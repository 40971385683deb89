"""The sessions of all followers: which message is the next one of which session. What a session keeps: `replica_session.py`.

Invariant: a message is acted on only if it is the next one of the present session of its broker: one that is repeated, late, or
of an earlier broker epoch, claims nothing and changes nothing.
Invariant: no claim is ever dropped silently: a session under a broker epoch that is not registered here, so that its claims
do not count, ends when it is; and so does the other way round.

Called by `replica_fetch.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from echoless.broker.native.replica_session import Session, SessionWait
from echoless.broker.records.deadlines import Deadlines
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.native.replica_fetch_answer import SessionAnswer
from echoless.protocol.native.replica_session import ReplicaWake, SessionFetch

if TYPE_CHECKING:
    from echoless.broker.services import Services


class ReplicaSessions:
    """The sessions of all followers, one for each broker."""

    def __init__(self) -> None:
        self._by_broker: dict[int, Session] = {}
        self._deadlines = Deadlines()

    def __len__(self) -> int:
        """The number of rows in all sessions."""
        return sum(len(session.rows) for session in self._by_broker.values())

    def handle(self, message: SessionFetch, services: Services) -> SessionAnswer | SessionWait:
        """The answer to a message of a session, at once or after a wait.

        Raises `KafkaError` FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH: the follower has to open a new one.
        """
        session = self._session_of(message, services)
        news = session.take(message)
        is_waited_for = message.max_wait_ms > 0 and not services.stopping.is_set()
        if not is_waited_for or news or session.owes_much:
            return session.answer(news, message.bytes_max)
        seconds = message.max_wait_ms / 1000
        return SessionWait(session, message.bytes_max, self._deadlines, seconds)

    def wake(self, message: ReplicaWake) -> dict[str, Any]:
        """Ends the wait of a session, if there is one."""
        session = self._by_broker.get(message.broker_id)
        if session is not None and session.number == message.session:
            session.wake()
        return {}

    def _session_of(self, message: SessionFetch, services: Services) -> Session:
        registered = services.cluster.registered_epoch(message.broker_id)
        counts = registered == message.broker_epoch
        if message.session_epoch == 0:
            return self._open(message, services, registered)
        session = self._by_broker.get(message.broker_id)
        if session is None or session.key != message.key:
            raise KafkaError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                f"broker {message.broker_id} has no session {message.session} here",
            )
        if session.next_epoch != message.session_epoch or session.wait is not None:
            raise KafkaError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"message {message.session_epoch} of session {message.session} of broker "
                f"{message.broker_id} came when {session.next_epoch} was due",
            )
        if session.counts != counts:
            del self._by_broker[message.broker_id]
            session.end()
            raise KafkaError(
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                f"the registration of broker {message.broker_id} has changed since it opened its session",
            )
        return session

    def _open(self, message: SessionFetch, services: Services, registered: int | None) -> Session:
        """A new session in place of the present one, unless the message is older than that."""
        if message.broker_id not in services.cluster.brokers:
            raise KafkaError(
                ErrorCode.REPLICA_NOT_AVAILABLE,
                f"broker {message.broker_id} is not registered, as far as this broker knows: it has no session here",
            )
        counts = registered == message.broker_epoch
        before = self._by_broker.get(message.broker_id)
        if before is not None:
            if before.broker_epoch == message.broker_epoch:
                is_late = message.session <= before.number
            else:
                is_late = registered == before.broker_epoch
            if is_late:
                raise KafkaError(
                    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                    f"broker {message.broker_id} has opened another session since session {message.session}",
                )
            before.end()
        session = Session(message, services, counts=counts)
        self._by_broker[message.broker_id] = session
        return session
