"""A message of a broker that has quotas: its use is counted as on the Kafka port (`handlers/metered.py`).

A client that has used too much learns from `throttle_time_ms` in the answer for how long nothing is read from it. What
brokers send each other is not counted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echoless.broker.handlers.mutations import EXCEEDED
from echoless.broker.native.acknowledged import produced_fields
from echoless.broker.native.failure import failure
from echoless.broker.native.framed import AnswerFields
from echoless.broker.network.request import NoResponse, Peer, needing_as_much
from echoless.broker.records.in_flight import ACKS_NONE
from echoless.protocol.errors import KafkaError
from echoless.protocol.native.messages import Fetch, Produce
from echoless.protocol.native.replica_fetch_answer import ReplicaFetchAnswer, SessionAnswer
from echoless.protocol.produce import PartitionProduced

if TYPE_CHECKING:
    from echoless.broker.quotas.quotas import Meters, Quotas
    from echoless.broker.quotas.rate import TokenBucket
    from echoless.broker.services import Services

NOT_COUNTED: Final = frozenset(
    {
        *("hello", "sasl", "replica_fetch", "replica_wake", "replica_snapshot"),
        *(
            "await_topic",
            "note_tree",
            "admin_read",
            "add_or_verify",
            "write_markers",
            "find_transactions",
        ),
    }
)
_UNKNOWN: Final = -1
"""Offsets in the answer to a fetch that was not made."""


def metered(
    message: Any,
    peer: Peer,
    services: Services,
    handle: Callable[[Any, Peer, Services], AnswerFields | Awaitable[AnswerFields]],
) -> AnswerFields | Awaitable[AnswerFields]:
    """Handles the message and counts it, also if it fails; a `KafkaError` becomes the answer."""
    quotas = services.quotas
    meters = quotas.meters(peer, peer.client_id)
    if isinstance(message, Fetch) and meters.fetched is not None:
        pause_ms = meters.fetched.throttle_ms(quotas.clock())
        if pause_ms:
            quotas.pause(peer, pause_ms)
            return _nothing(message, pause_ms)
        most = meters.fetched.most_at_once
        bytes_max, min_bytes = min(message.bytes_max, most), min(message.min_bytes, most)
        message = message._replace(bytes_max=bytes_max, min_bytes=min_bytes)
    produced_bytes = _size(message) if isinstance(message, Produce) else None
    is_timed = produced_bytes is None or message.acks != ACKS_NONE
    began_at = perf_counter()
    try:
        outcome = handle(message, peer, services)
    except KafkaError as error:
        outcome = failure(error)
    took_s = perf_counter() - began_at if is_timed else None
    pause_ms = quotas.used(peer, meters, produced_bytes, took_s)
    use = _Use(isinstance(message, Fetch), peer, pause_ms, quotas)
    if isinstance(outcome, Awaitable):
        return needing_as_much(outcome, use.counted_later(outcome))
    return use.counted(outcome)


def _size(message: Produce) -> int:
    if message.unbuilt is not None:
        return message.unbuilt.size("records")
    return len(message.batch or b"")


def _nothing(message: Fetch, pause_ms: int) -> dict[str, Any]:
    return {
        "high_watermark": _UNKNOWN,
        "last_stable_offset": _UNKNOWN,
        "log_start_offset": _UNKNOWN,
        "next_offset": message.offset,
        **({"batches": b""} if message.is_raw else {"records": []}),
        "throttle_time_ms": pause_ms,
    }


class _Use(NamedTuple):
    """A message that has been given to its handler."""

    is_fetch: bool
    peer: Peer
    pause_ms: int
    quotas: Quotas

    @property
    def meters(self) -> Meters:
        """The measures of the client now: those of the message's beginning may have been forgotten as unused."""
        return self.quotas.meters(self.peer, self.peer.client_id)

    def counted(self, answer: AnswerFields) -> AnswerFields:
        """The answer as it leaves; what a fetch took is counted."""
        if isinstance(answer, NoResponse | ReplicaFetchAnswer | SessionAnswer):
            return answer
        if (
            self.is_fetch
            and isinstance(answer, Mapping)
            and (fetched := self.meters.fetched) is not None
        ):
            fetched.record(_fetched_bytes(answer), self.quotas.clock())
        if not self.pause_ms:
            return answer
        fields = produced_fields(answer) if isinstance(answer, PartitionProduced) else answer
        return {**fields, "throttle_time_ms": self.pause_ms}

    async def counted_later(self, outcome: Awaitable[AnswerFields]) -> AnswerFields:
        try:
            return self.counted(await outcome)
        except KafkaError as error:
            if error.code is EXCEEDED and (mutations := self.meters.mutations) is not None:
                return self._beyond_quota(error, mutations)
            return self.counted(failure(error))

    def _beyond_quota(self, error: KafkaError, mutations: TokenBucket) -> AnswerFields:
        """The refusal of a change of topics; its client has to pause until the debt is paid."""
        pause_ms = mutations.throttle_ms(self.quotas.clock())
        if pause_ms <= self.pause_ms:
            return self.counted(failure(error))
        self.quotas.pause(self.peer, pause_ms)
        return self._replace(pause_ms=pause_ms).counted(failure(error))


def _fetched_bytes(answer: Mapping[str, Any]) -> int:
    """Bytes of batches, or of keys and values."""
    if "batches" in answer:
        return len(answer["batches"])
    records = answer.get("records", ())
    return sum(len(one["key"] or b"") + len(one["value"] or b"") for one in records)
