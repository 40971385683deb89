"""The frame of the Python client programs: command line, pacing, ack log, summary, SIGTERM.

A client module gives `main` its name, its version and two functions. The command line and the
summaries are defined in tests/compatibility/README.md.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TextIO

from tests.compatibility.clients.python.membership import Membership
from tests.compatibility.clients.python.records import (
    BASE_TIMESTAMP_MS,
    Header,
    PartitionDigest,
    Record,
    Series,
    canonical,
)

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
STORED = "stored"
"""The outcome of an attempt whose record was acknowledged."""


class Produce:
    """One run of `produce`: what to write, and what became of it."""

    def __init__(self, options: argparse.Namespace, *, null_headers: bool) -> None:
        self.options = options
        self._null_headers = null_headers
        self.sent = self.acked = 0
        self.errors: Counter[str] = Counter()
        self.fatal: str | None = None
        self._stopped = False
        self._ack_log: TextIO | None = None
        if options.ack_log:
            self._ack_log = open(options.ack_log, "a", buffering=1)  # noqa: SIM115 - until exit
        signal.signal(signal.SIGTERM, lambda *_: self.stop())

    def stop(self) -> None:
        """No further record; those handed over are still delivered."""
        self._stopped = True

    def records(self) -> Iterator[tuple[float, Record]]:
        """Each record with the number of seconds to wait before it (0 unless paced)."""
        options, began = self.options, time.monotonic()
        series = Series(
            seed=options.seed,
            partitions=options.partitions,
            base_timestamp=options.base_timestamp,
            null_headers=self._null_headers,
        )
        for index in range(options.count):
            if self._stopped or self.fatal:
                return
            due = began + index / options.rate if options.rate else 0.0
            wait = max(0.0, due - time.monotonic()) if options.rate else 0.0
            self.sent += 1
            yield wait, series.record(options.first + index)

    def acknowledged(self, partition: int, offset: int, number: int) -> None:
        """The broker has the record."""
        self.acked += 1
        if self._ack_log:
            self._ack_log.write(f"{partition} {offset} {number}\n")

    def failed(self, name: str) -> None:
        """The client gave a record up."""
        self.errors[name] += 1

    def summary(self) -> dict[str, Any]:
        """The fields of the summary line."""
        return {
            "sent": self.sent,
            "acked": self.acked,
            "errors": dict(self.errors),
            "fatal": self.fatal,
        }

    @property
    def succeeded(self) -> bool:
        return self.fatal is None and not self.errors and self.acked == self.sent


class Consume:
    """One run of `consume`: the digests, and whether every partition was read to its end."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self._partitions: dict[int, PartitionDigest] = {}
        self._ends: dict[int, int] = {}
        self._records: TextIO | None = open(options.records, "w") if options.records else None  # noqa: SIM115
        self._read_at = time.monotonic()

    def begin(self, partition: int, first_offset: int, end_offset: int) -> None:
        """The partition is to be read from the one offset to the other (exclusive)."""
        self._partitions[partition] = PartitionDigest(first_offset)
        self._ends[partition] = end_offset

    def add(
        self,
        partition: int,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[Header],
    ) -> None:
        """One record as read; those beyond the end are left out."""
        if offset >= self._ends[partition]:
            return
        self._read_at = time.monotonic()
        content = canonical(timestamp, key, value, headers)
        self._partitions[partition].add(offset, content)
        if self._records:
            number = next((int(value or -1) for name, value in headers if name == "n"), -1)
            self._records.write(f"{partition} {offset} {number} {content.hex()}\n")

    @property
    def is_over(self) -> bool:
        """Whether every partition was read to its end, or nothing came for too long."""
        silence_ms = (time.monotonic() - self._read_at) * 1000
        return self.succeeded or silence_ms > self.options.idle_timeout_ms

    @property
    def succeeded(self) -> bool:
        return all(
            digest.next_offset >= self._ends[partition]
            for partition, digest in self._partitions.items()
        )

    def summary(self) -> dict[str, Any]:
        """The fields of the summary line."""
        if self._records:
            self._records.close()
        return {"partitions": {str(p): d.report() for p, d in sorted(self._partitions.items())}}


class Case(NamedTuple):
    """One attempt to store a record: where, and by which security settings."""

    name: str
    bootstrap: str
    topic: str
    security: str


class Attempts:
    """One run of `attempt`: the outcome of each case, `STORED` or the client's own error."""

    succeeded = True
    """Errors are what was asked for."""

    def __init__(self, path: str) -> None:
        with open(path) as lines:
            self.cases = [Case(*line.split()) for line in lines]
        self._outcomes: dict[str, str] = {}

    async def run(self, attempt: Callable[[Case], Any]) -> None:
        """Makes all attempts at once: some clients retry for seconds before they say anything."""
        threads = ThreadPoolExecutor(len(self.cases))
        asyncio.get_running_loop().set_default_executor(threads)
        outcomes = [_outcome(attempt, case) for case in self.cases]
        for case, outcome in zip(self.cases, await asyncio.gather(*outcomes), strict=True):
            self._outcomes[case.name] = outcome

    def summary(self) -> dict[str, Any]:
        """The fields of the summary line."""
        return {"outcomes": self._outcomes}


async def _outcome(attempt: Callable[[Case], Any], case: Case) -> str:
    try:
        if inspect.iscoroutinefunction(attempt):
            return str(await attempt(case))
        return str(await asyncio.to_thread(attempt, case))
    except Exception as error:  # noqa: BLE001 - this is the answer
        return f"{type(error).__name__}: {error}"


def main(
    client: str,
    version: str,
    produce: Callable[[Produce], Any],
    consume: Callable[[Consume], Any],
    attempt: Callable[[Case], str | Awaitable[str]],
    subscribe: Callable[[Membership], Any],
    *,
    null_headers: bool = True,
) -> None:
    """Runs the command line; the functions may be coroutine functions."""
    options = _parser().parse_args()
    began = time.monotonic()
    run: Produce | Consume | Attempts | Membership
    if options.command == "attempt":
        run = Attempts(options.cases)
        work: Any = run.run(attempt)
    elif options.command == "produce":
        run = Produce(options, null_headers=null_headers)
        work = produce(run)
    elif options.command == "subscribe":
        run = Membership(options)
        work = subscribe(run)
    else:
        run = Consume(options)
        work = consume(run)
    if inspect.isawaitable(work):
        asyncio.run(work)
    seconds = round(time.monotonic() - began, 3)
    print(json.dumps({"client": client, "version": version, "seconds": seconds, **run.summary()}))
    sys.stdout.flush()
    sys.exit(0 if run.succeeded else 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("produce", "consume"):
        command = commands.add_parser(name)
        command.add_argument("--bootstrap", required=True)
        command.add_argument("--topic", required=True)
        command.add_argument("--partitions", type=int, required=True)
        command.add_argument("--security", help="file of settings, by librdkafka's names")
        (_add_produce_options if name == "produce" else _add_consume_options)(command)
    commands.add_parser("attempt").add_argument("--cases", required=True)
    subscribe = commands.add_parser("subscribe")
    for name in ("bootstrap", "topic", "group", "log"):
        subscribe.add_argument(f"--{name}", required=True)
    subscribe.add_argument("--assignor", default="range")
    subscribe.add_argument("--protocol", choices=("classic", "consumer"), default="classic")
    subscribe.add_argument("--session-timeout-ms", type=int, default=6_000)
    return parser


def _add_produce_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--codec", choices=CODECS, default="none")
    command.add_argument("--count", type=int, required=True)
    command.add_argument("--seed", type=int, required=True)
    command.add_argument("--first", type=int, default=0)
    command.add_argument("--base-timestamp", type=int, default=BASE_TIMESTAMP_MS)
    command.add_argument("--rate", type=float, default=0.0)
    command.add_argument("--ack-log")
    command.add_argument("--linger-ms", type=int, default=5)
    command.add_argument("--request-timeout-ms", type=int, default=10_000)
    command.add_argument("--delivery-timeout-ms", type=int, default=60_000)


def _add_consume_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--records")
    command.add_argument("--idle-timeout-ms", type=int, default=20_000)
