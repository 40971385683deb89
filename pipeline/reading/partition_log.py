"""The log of one partition, fetched from its leader, which is looked up again after it moves."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from echoless.client.connection import AuthenticationError, ConnectionFailedError
from echoless.client.messages import fetch_version_max
from echoless.pipeline.reading.connections import Address, ask, ask_another
from echoless.pipeline.reading.errors import DataLossError, ReadError
from echoless.pipeline.reading.options import READ_COMMITTED, ReaderOptions
from echoless.pipeline.reading.span import OffsetSpan
from echoless.pipeline.reading.topic_metadata import FoundTopic, read_topics
from echoless.pipeline.reading.visible_batches import AbortedTransaction
from echoless.protocol.errors import ErrorCode

_RETRY_S: Final = 0.25
_GONE_S: Final = 3.0
"""Time for which a topic that is not found, or is another one, is looked for: brokers learn of it one after the other."""


class FetchedBytes(NamedTuple):
    """An answer to a fetch."""

    records: bytes
    """Whole batches, perhaps with part of another."""
    aborted: tuple[AbortedTransaction, ...]
    readable_end: int
    """Offset up to which a reader may read; -1 if the broker has left records out to slow the reader down."""
    log_end: int
    """Offset that the log ends at for readers, whatever transactions are open."""


class OffsetGoneError(Exception):
    """The log does not have the offset that was asked for."""


class PartitionLog:
    """Reads one partition of the topic that a span names: not of another one of that name."""

    def __init__(
        self,
        options: ReaderOptions,
        span: OffsetSpan,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options = options
        self._span = span
        self._sleep = sleep
        self._found: FoundTopic | None = None
        self._loss = ""
        """Loss of the topic that the last metadata shows; empty if it is there."""
        self._lost_at = 0.0

    def fetch(self, offset: int, bytes_max: int) -> FetchedBytes:
        """Fetches from the batch that holds `offset` on; empty if there is none yet.

        Raises `OffsetGoneError`, `DataLossError` if the topic is another one now, `ReadError`.
        """
        began = time.monotonic()
        while True:
            reason = self._try(offset, bytes_max)
            if isinstance(reason, FetchedBytes):
                return reason
            waited = time.monotonic() - began
            if self._loss:
                if time.monotonic() - self._lost_at > _GONE_S:
                    raise DataLossError(f"{self._span}: {self._loss}")
                ask_another(self._options)
            if waited > self._options.patience_s:
                raise ReadError(
                    f"{self._span}: cannot be fetched for {self._options.patience_s:g} s: {reason}"
                )
            self._sleep(_RETRY_S)
            self._found = None

    def _try(self, offset: int, bytes_max: int) -> FetchedBytes | str:
        """Returns the answer, or the reason why there is none yet."""
        try:
            address = self._leader()
            if address is None:
                return self._loss or "it has no leader"
            answer = self._ask(address, offset, bytes_max)
        except AuthenticationError as error:
            raise ReadError(f"{self._span}: {error}") from error
        except ConnectionFailedError as error:
            return str(error)
        part = answer.responses[0].partitions[0] if answer.responses else None
        if part is None:
            return "the broker did not answer for it"
        code = ErrorCode(int(part.error_code.value))
        if code is ErrorCode.NONE:
            return _fetched(answer, part, self._options.isolation)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._found = None
            raise OffsetGoneError
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise ReadError(f"topic {self._span.topic}: it may not be read; grant Read on it")
        if not code.retriable:
            raise ReadError(f"{self._span}: {code.name}")
        return code.name

    def _leader(self) -> Address | None:
        if self._found is None:
            before, self._loss = self._loss, ""  # nothing is known until there is an answer
            found = read_topics(self._options, [self._span.topic]).get(self._span.topic)
            self._loss = self._loss_of(found)
            if self._loss and not before:
                self._lost_at = time.monotonic()
            if found is None or self._loss:
                return None
            self._found = found
        return self._found.leaders.get(self._span.partition)

    def _loss_of(self, found: FoundTopic | None) -> str:
        if found is None:
            return "the topic was deleted"
        planned = self._span.topic_id
        if None in (planned, found.id_text) or found.id_text == planned:
            return ""
        return (
            f"the topic was deleted and created again (id {planned} is now {found.id_text}); "
            "the records that were to be read are gone"
        )

    def _ask(self, address: Address, offset: int, bytes_max: int) -> Any:
        assert self._found is not None, "its leader is known"
        topic_id = self._found.topic_id
        part = {
            "partition": self._span.partition,
            "fetch_offset": offset,
            "partition_max_bytes": bytes_max,
        }
        topic = {
            "topic": self._span.topic,
            "topic_id": topic_id,
            "partitions": [part],
        }
        request = {
            "max_wait": self._options.fetch_wait_ms,
            "min_bytes": 1,
            "max_bytes": bytes_max,
            "isolation_level": self._options.isolation,
            "topics": [topic],
            "forgotten_topics_data": [],
        }
        return ask(self._options, address, "fetch", request, fetch_version_max(topic_id))


def _fetched(answer: Any, part: Any, isolation: int) -> FetchedBytes:
    aborted = tuple(
        AbortedTransaction(int(one.first_offset), int(one.producer_id))
        for one in getattr(part, "aborted_transactions", None) or ()
    )
    end = part.last_stable_offset if isolation == READ_COMMITTED else part.high_watermark
    is_throttled = bool(getattr(answer, "throttle_time", None))
    return FetchedBytes(
        bytes(part.records or b""),
        aborted,
        -1 if is_throttled else int(end),
        int(part.high_watermark),
    )
