# mypy: disable-error-code="no-untyped-call"
# aiokafka has no annotations.
"""A transactional producer of aiokafka: a line of JSON asks, a line of JSON answers, as in `librdkafka_transactions.py`.

aiokafka says by the class of an error what a program has to do, and retries everything else itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import Awaitable, Sequence
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, OutOfOrderSequenceNumber, ProducerFenced

_WITHIN_S: Final = 40.0
_LEAVES_S: Final = 1.0

Outcome = dict[str, Any]


class AiokafkaTransactions:
    """The producer."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._producer: Any = None

    async def open(self, name: str, client_id: str, timeout_ms: int = 60_000) -> Outcome:
        """Begins a session of the transactional id."""
        if self._producer is not None:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self._producer.stop(), _LEAVES_S)
        self._producer = AIOKafkaProducer(
            bootstrap_servers=self._servers,
            client_id=client_id,
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            request_timeout_ms=1000,
            retry_backoff_ms=50,
            metadata_max_age_ms=500,  # or the only broker that it knows may be the one that is stopped
        )
        return await _outcome(self._producer.start())

    async def begin(self) -> Outcome:
        return await _outcome(self._producer.begin_transaction())

    async def send(self, topic: str, numbers: Sequence[int], partition: int = 0) -> Outcome:
        """Stores records whose values are numbers."""

        async def store() -> None:
            sent = [
                await self._producer.send(topic, b"%d" % number, partition=partition)
                for number in numbers
            ]
            await asyncio.gather(*sent)

        return await _outcome(store())

    async def commit(self) -> Outcome:
        return await _outcome(self._producer.commit_transaction())

    async def abort(self) -> Outcome:
        return await _outcome(self._producer.abort_transaction())


async def _outcome(done: Awaitable[object]) -> Outcome:
    try:
        await asyncio.wait_for(done, _WITHIN_S)
    except (ProducerFenced, OutOfOrderSequenceNumber) as error:
        return {"error": type(error).__name__, "kind": "fatal"}
    except (KafkaError, TimeoutError) as error:
        return {"error": type(error).__name__, "kind": "abortable"}
    return {"error": None, "kind": ""}


async def _main(servers: str) -> None:
    """Runs until the end of the input."""
    logging.disable(logging.CRITICAL)
    actor = AiokafkaTransactions(servers)
    while line := await asyncio.to_thread(sys.stdin.readline):
        fields = json.loads(line)
        outcome = await getattr(actor, fields.pop("do"))(**fields)
        sys.stdout.write(json.dumps(outcome) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
