# mypy: disable-error-code="no-untyped-call"
# kafka-python has no annotations.
"""A transactional producer of kafka-python: a line of JSON asks, a line of JSON answers, as in `librdkafka_transactions.py`."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from kafka import KafkaProducer
from kafka.errors import InvalidProducerEpochError, KafkaError, ProducerFencedError

_WITHIN_S: Final = 40.0
_LEAVES_S: Final = 1.0

Outcome = dict[str, Any]


class KafkaPythonTransactions:
    """The producer."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._producer: Any = None

    def open(self, name: str, client_id: str, timeout_ms: int = 60_000) -> Outcome:
        """Begins a session of the transactional id."""
        if self._producer is not None:
            self._producer.close(timeout=_LEAVES_S)
        self._producer = KafkaProducer(
            bootstrap_servers=self._servers.split(","),
            client_id=client_id,
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            request_timeout_ms=1000,
            delivery_timeout_ms=30_000,
            retry_backoff_ms=50,
            metadata_max_age_ms=500,
        )
        return _outcome(self._producer.init_transactions)

    def begin(self) -> Outcome:
        return _outcome(self._producer.begin_transaction)

    def send(self, topic: str, numbers: Sequence[int], partition: int = 0) -> Outcome:
        """Stores records whose values are numbers."""

        def store() -> None:
            sent = [
                self._producer.send(topic, b"%d" % number, partition=partition)
                for number in numbers
            ]
            for one in sent:
                one.get(_WITHIN_S)

        return _outcome(store)

    def commit(self) -> Outcome:
        return _outcome(self._producer.commit_transaction)

    def abort(self) -> Outcome:
        return _outcome(self._producer.abort_transaction)


def _outcome(done: Callable[[], object]) -> Outcome:
    try:
        done()
    except (ProducerFencedError, InvalidProducerEpochError) as error:
        return {"error": type(error).__name__, "kind": "fatal"}
    except KafkaError as error:
        return {"error": type(error).__name__, "kind": "abortable"}
    return {"error": None, "kind": ""}


def main(servers: str) -> None:
    """Runs until the end of the input."""
    logging.disable(logging.CRITICAL)
    actor = KafkaPythonTransactions(servers)
    for line in sys.stdin:
        fields = json.loads(line)
        outcome = getattr(actor, fields.pop("do"))(**fields)
        sys.stdout.write(json.dumps(outcome) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
