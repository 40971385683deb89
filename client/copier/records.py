"""The records that a copier reads and writes, and the function between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from echoless.protocol.records import Headers


class InputRecord(Protocol):
    """A record as aiokafka's consumer returns it; `timestamp` is in ms since 1970."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...


class OutputRecord(NamedTuple):
    """A record to write. The partition is always given: a count that grows must not move a record to another one."""

    topic: str
    partition: int
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int = -1
    """Milliseconds since 1970; -1: the timestamp of the input record."""


Copy = Callable[[InputRecord], Iterable[OutputRecord]]
"""The records that one input record becomes, none or several. It depends on that record alone, and returns the same
whenever it is called: their order decides their sequence numbers.
"""


def to_same_partition(prefix: str = "", topic: str | None = None) -> Copy:
    """Copies records as they are to the partition of the same number, of `topic` or the prefixed one."""

    def copy(record: InputRecord) -> Iterable[OutputRecord]:
        yield OutputRecord(
            topic=topic if topic is not None else prefix + record.topic,
            partition=record.partition,
            value=record.value,
            key=record.key,
            headers=record.headers,
            timestamp_ms=record.timestamp,
        )

    return copy
