"""`echoless produce`: the lines of standard input as records, by the project's own idempotent producer.

What can be read at once is sent together, so a file goes in full batches and a line that is typed goes at once.
Lines without a key go to the partitions in turn, as many at a time as were read at once.
"""

from __future__ import annotations

import enum
import os
import select
import sys
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from echoless.cli.cluster import security_of
from echoless.cli.completion import topic_names, transactional_ids
from echoless.cli.errors import CommandError
from echoless.cli.option_groups import grouped
from echoless.cli.options import BrokerOptions
from echoless.cli.output import counted
from echoless.protocol.record_batch import Codec

if TYPE_CHECKING:
    from echoless.client.producer import BlockingDelivery, Producer
    from echoless.protocol.records import Headers

_READ_BYTES: Final = 256 * 1024
LINE_BYTES_MAX: Final = 64 * 1024 * 1024
"""A longer line is refused, so that input without line breaks does not fill the memory."""


class CodecName(enum.StrEnum):
    """Codecs of record batches."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class _Record(NamedTuple):
    """One line as a record."""

    key: bytes | None
    value: bytes | None


@grouped
def produce(
    topic: Annotated[str, typer.Argument(help="The topic.", autocompletion=topic_names)],
    *,
    key_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Ends the key, at the start of each line.")
    ] = None,
    null_marker: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A key or value that is this text is null.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A header of each record; may be repeated."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, help="One partition; without it the key decides.")
    ] = None,
    compression: Annotated[CodecName, typer.Option(help="The codec of the batches.")] = (
        CodecName.NONE
    ),
    transaction: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Send all lines in one transaction of this transactional id.",
            autocompletion=transactional_ids,
        ),
    ] = None,
    abort: Annotated[
        bool, typer.Option("--abort", help="Abort the transaction at the end of the input.")
    ] = False,
    broker: BrokerOptions,
) -> None:
    """Send each line of standard input as a record; each is stored once.

    With --transaction, readers of committed records see all lines together once the input has ended, and none if a
    line cannot be sent or the command is interrupted. Other producers of the same id are fenced.
    """
    from echoless.client.errors import ProducerError
    from echoless.client.producer import Producer
    from echoless.client.settings import Settings

    if abort and transaction is None:
        raise CommandError("--abort: takes --transaction")
    if transaction == "":
        raise CommandError("--transaction: takes an id that is not empty")
    headers = _headers(header or [])
    lines = _Lines(key_separator, null_marker)
    settings = Settings(compression=Codec[compression.name], security=security_of(broker))
    try:
        with Producer(broker.bootstrap_server, settings, transactional_id=transaction) as producer:
            _check_partition(producer, topic, partition)
            sending = _Sending(producer, topic, partition, headers)
            try:
                if transaction is None:
                    sending.send_all(lines)
                elif abort:
                    _send_and_abort(producer, sending, lines)
                else:
                    with producer.transaction():
                        sending.end = ", but not committed"
                        sending.send_all(lines)
                        sending.end = ""  # until the outcome is known
                    sending.end = ", and committed"
            finally:
                stored = counted(sending.stored, "record")
                typer.echo(f"{stored} stored in {topic}{sending.end}", err=True)
    except ProducerError as error:
        raise CommandError(str(error)) from error


def _send_and_abort(producer: Producer, sending: _Sending, lines: _Lines) -> None:
    producer.begin_transaction()
    try:
        sending.send_all(lines)
    finally:
        producer.abort_transaction()
    sending.end = ", and aborted"


def _check_partition(producer: Producer, topic: str, partition: int | None) -> None:
    """Raises `CommandError` at once; a producer waits for a partition that may still be created."""
    if partition is not None and partition >= (count := producer.count_partitions(topic)):
        raise CommandError(f"--partition: {topic} has partitions 0 to {count - 1}, not {partition}")


def _headers(texts: list[str]) -> tuple[tuple[str, bytes], ...]:
    headers = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise CommandError(f"--header: takes NAME=VALUE, not {text!r}")
        headers.append((name, value.encode()))
    return tuple(headers)


class _Lines:
    """The lines of standard input, and what they say as records."""

    def __init__(self, key_separator: str | None, null_marker: str | None) -> None:
        if key_separator == "":
            raise CommandError("--key-separator: takes at least one character")
        self._separator = None if key_separator is None else key_separator.encode()
        self._null = None if null_marker is None else null_marker.encode()
        self._descriptor = sys.stdin.fileno()
        self._count = 0

    def has_more_now(self) -> bool:
        """Whether the next read would not wait."""
        return bool(select.select([self._descriptor], [], [], 0)[0])

    def portions(self) -> Iterator[list[bytes]]:
        """Yields the whole lines of each read. Raises `CommandError` for a line without an end."""
        begun: list[bytes] = []
        size = 0
        while data := os.read(self._descriptor, _READ_BYTES):
            whole, newline, rest = data.rpartition(b"\n")
            if newline:
                yield b"".join([*begun, whole]).split(b"\n")
                begun, size = [], 0
            begun.append(rest)
            size += len(rest)
            if size > LINE_BYTES_MAX:
                raise CommandError(
                    f"line {self._count + 1} is longer than {LINE_BYTES_MAX} bytes; it was not sent"
                )
        if size:
            yield [b"".join(begun)]

    def record(self, line: bytes) -> _Record:
        """Raises `CommandError` if the line has no key."""
        self._count += 1
        if self._separator is None:
            return _Record(None, self._or_null(line))
        key, found, value = line.partition(self._separator)
        if not found:
            raise CommandError(
                f"line {self._count} has no key: {self._separator.decode()!r} (--key-separator) is "
                "not in it; neither this line nor any after it was sent"
            )
        return _Record(self._or_null(key), self._or_null(value))

    def _or_null(self, text: bytes) -> bytes | None:
        return None if text == self._null else text


class _Sending:
    """Records on their way to one topic."""

    def __init__(
        self, producer: Producer, topic: str, partition: int | None, headers: Headers
    ) -> None:
        self.stored = 0
        self.end = ""
        """The end of the line that reports them."""
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._headers = headers
        self._deliveries: deque[BlockingDelivery] = deque()

    def send_all(self, lines: _Lines) -> None:
        """Sends every line, and waits until all are stored. Raises `ProducerError`, `CommandError`.

        Whatever ends it, the lines before are stored.
        """
        try:
            for number, portion in enumerate(lines.portions()):
                for line in portion:
                    self._send(lines.record(line), number)
                self._count()
                if not lines.has_more_now():
                    self._producer.flush()
        finally:
            try:
                self._producer.flush()
            finally:
                self._count()

    def _send(self, record: _Record, turn: int) -> None:
        partition = self._partition
        if partition is None and record.key is None:
            partition = turn % self._producer.count_partitions(self._topic)
        self._deliveries.append(
            self._producer.send(
                self._topic,
                record.value,
                key=record.key,
                partition=partition,
                headers=self._headers,
            )
        )

    def _count(self) -> None:
        """Counts the first ones that are done; `flush` raises the error of one that failed."""
        from echoless.client.errors import DeliveryError

        while self._deliveries and self._deliveries[0].is_done:
            try:
                self._deliveries.popleft().result()
            except DeliveryError:
                continue
            self.stored += 1
