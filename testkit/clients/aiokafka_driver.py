# mypy: disable-error-code="no-untyped-call"
# aiokafka has no annotations.
"""aiokafka driven by the line protocol: README.md in this directory."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from typing import Any

import aiokafka
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from echoless.testkit.clients.line_protocol import (
    Records,
    read_options,
    read_records,
    say,
    say_done,
)

_STOP_TIMEOUT_S = 1.0


class AiokafkaDriver:
    """The producer. It answers every record with a future."""

    def __init__(self) -> None:
        self._producer: Any = None
        self._opening = 0
        """Counts the producers: late reports of an earlier one are ignored."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, words: list[str]) -> None:
        options = read_options(words)
        security = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": options.username,
            "sasl_plain_password": options.password,
        }
        self._producer = AIOKafkaProducer(
            bootstrap_servers=options.bootstrap,
            enable_idempotence=True,
            linger_ms=options.linger_ms,
            request_timeout_ms=options.request_timeout_ms,
            retry_backoff_ms=50,
            **(security if options.username else {}),
        )
        await self._producer.start()
        self._opening += 1
        say("opened")

    def send(self, words: list[str]) -> None:
        """Runs in its own task, which hands over all records before anything else runs."""
        self._keep(self._send(self._opening, read_records(words)))

    def close(self) -> None:
        self._opening += 1
        self._keep(_stop(self._producer))
        say("closed")

    async def _send(self, opening: int, records: Records) -> None:
        for number in records.numbers:
            try:
                future = await self._producer.send(
                    records.topic, value=b"%d" % number, partition=records.partition
                )
            except KafkaError as refused:
                say_done(records, number, error=type(refused).__name__)
            else:
                self._keep(self._report(opening, records, number, future))

    async def _report(
        self, opening: int, records: Records, number: int, future: asyncio.Future[Any]
    ) -> None:
        offset, error = None, None
        try:
            offset = (await future).offset
        except KafkaError as refused:
            error = type(refused).__name__
        if opening == self._opening:
            say_done(records, number, offset=offset, error=error)

    def _keep(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _stop(producer: Any) -> None:
    """Closes the producer, which would otherwise wait for answers that never come."""
    with contextlib.suppress(TimeoutError, KafkaError):
        await asyncio.wait_for(producer.stop(), _STOP_TIMEOUT_S)


async def main() -> None:
    """Runs until the end of the input."""
    logging.disable(logging.CRITICAL)
    say("ready", client="aiokafka", version=aiokafka.__version__)
    driver = AiokafkaDriver()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command, *words = line.split()
        if command == "open":
            await driver.open(words)
        elif command == "send":
            driver.send(words)
        elif command == "close":
            driver.close()


if __name__ == "__main__":
    asyncio.run(main())
