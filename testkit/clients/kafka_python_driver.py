# mypy: disable-error-code="no-untyped-call"
# kafka-python has no annotations.
"""kafka-python driven by the line protocol: README.md in this directory."""

from __future__ import annotations

import logging
import sys
from functools import partial
from importlib.metadata import version
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError

from echoless.testkit.clients.line_protocol import (
    Records,
    read_options,
    read_records,
    say,
    say_done,
)


class KafkaPythonDriver:
    """The producer. Its own thread reports what became of a record."""

    def __init__(self) -> None:
        self._producer: Any = None
        self._opening = 0
        """Counts the producers: late reports of an earlier one are ignored."""

    def open(self, words: list[str]) -> None:
        options = read_options(words)
        self._producer = KafkaProducer(
            bootstrap_servers=options.bootstrap,
            enable_idempotence=True,
            linger_ms=options.linger_ms,
            request_timeout_ms=options.request_timeout_ms,
            delivery_timeout_ms=options.delivery_timeout_ms,
            retry_backoff_ms=50,
        )
        self._opening += 1
        say("opened")

    def send(self, words: list[str]) -> None:
        records = read_records(words)
        for number in records.numbers:
            try:
                sent = self._producer.send(
                    records.topic, value=b"%d" % number, partition=records.partition
                )
            except KafkaError as refused:
                say_done(records, number, error=type(refused).__name__)
                continue
            sent.add_callback(partial(self._stored, self._opening, records, number))
            sent.add_errback(partial(self._failed, self._opening, records, number))

    def close(self) -> None:
        self._opening += 1
        self._producer.close(timeout=0)
        say("closed")

    def _stored(self, opening: int, records: Records, number: int, metadata: Any) -> None:
        if opening == self._opening:
            say_done(records, number, offset=metadata.offset)

    def _failed(self, opening: int, records: Records, number: int, error: Exception) -> None:
        if opening == self._opening:
            say_done(records, number, error=type(error).__name__)


def main() -> None:
    """Runs until the end of the input."""
    logging.disable(logging.CRITICAL)
    say("ready", client="kafka-python", version=version("kafka-python"))
    driver = KafkaPythonDriver()
    for line in sys.stdin:
        command, *words = line.split()
        if command == "open":
            driver.open(words)
        elif command == "send":
            driver.send(words)
        elif command == "close":
            driver.close()


if __name__ == "__main__":
    main()
