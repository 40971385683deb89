"""A transactional producer, and a reader, of confluent-kafka (librdkafka): a line of JSON asks, a line of JSON answers.

    python -m echoless.testkit.clients.librdkafka_transactions SERVERS

A line has `do`, the name of a method of `TransactionalActor`, and its arguments. The answer has the name of an error, or null, and what
the client makes of it: `abortable`, `fatal` or `other`. What librdkafka calls retriable is tried again here, as it asks of programs.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

_WITHIN_S: Final = 40.0
_CALL_S: Final = 10.0
_POLL_S: Final = 0.2
_END: Final = "_PARTITION_EOF"
_SETTINGS: Final = {
    "log_level": 0,
    "socket.timeout.ms": 1000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 50,
}

Outcome = dict[str, Any]


class TransactionalActor:
    """The producer or the reader."""

    def __init__(self, servers: str) -> None:
        self._options: dict[str, Any] = {"bootstrap.servers": servers, **_SETTINGS}
        self._producer: Any = None
        self._errors: list[Any] = []

    def open(self, name: str, client_id: str, timeout_ms: int = 60_000) -> Outcome:
        """Begins a session of the transactional id."""
        self._producer = Producer(
            {
                **self._options,
                "transactional.id": name,
                "client.id": client_id,
                "transaction.timeout.ms": timeout_ms,
            }
        )
        return self._until_done(self._producer.init_transactions)

    def begin(self) -> Outcome:
        return self._until_done(lambda _: self._producer.begin_transaction())

    def send(self, topic: str, numbers: Sequence[int], partition: int = 0) -> Outcome:
        """Stores records whose values are numbers, as one batch if may be."""
        self._errors = []
        try:
            for number in numbers:
                self._producer.produce(
                    topic, b"%d" % number, partition=partition, on_delivery=self._delivered
                )
            left = self._producer.flush(_WITHIN_S)
        except KafkaException as raised:
            return _outcome(raised.args[0])
        except SystemError as raised:  # a fatal error that came during a callback
            return _outcome(_cause_of(raised))
        error = next((one for one in self._errors if one is not None), None)
        if left:
            return {"error": "_TIMED_OUT", "kind": "other"}
        return _outcome(error)

    def _delivered(self, error: Any, _message: Any) -> None:
        self._errors.append(error)

    def offsets(self, group: str, topic: str, offset: int) -> Outcome:
        """Makes the position of a group part of the transaction."""
        consumer = Consumer({**self._options, "group.id": group})
        metadata = consumer.consumer_group_metadata()
        places = [TopicPartition(topic, 0, offset)]
        send = self._producer.send_offsets_to_transaction
        outcome = self._until_done(lambda timeout_s: send(places, metadata, timeout_s))
        consumer.close()
        return outcome

    def commit(self) -> Outcome:
        return self._until_done(self._producer.commit_transaction)

    def abort(self) -> Outcome:
        return self._until_done(self._producer.abort_transaction)

    def committed(self, group: str, topic: str) -> Outcome:
        """The position of a group."""
        consumer = Consumer({**self._options, "group.id": group})
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=_WITHIN_S)
        consumer.close()
        return {**_outcome(None), "offset": found.offset}

    def read(self, topic: str, partitions: int = 1, *, is_committed: bool = True) -> Outcome:
        """Every value that a reader of this isolation finds, by partition, up to the end that it may see."""
        isolation = "read_committed" if is_committed else "read_uncommitted"
        more = {"group.id": "reader", "enable.partition.eof": True, "isolation.level": isolation}
        consumer = Consumer({**self._options, **more, "enable.auto.commit": False})
        places = [TopicPartition(topic, one, 0) for one in range(partitions)]
        consumer.assign(places)
        found: list[list[int]] = [[] for _ in places]
        ended: set[int] = set()
        until = time.monotonic() + _WITHIN_S
        while len(ended) < partitions and time.monotonic() < until:
            message: Any = consumer.poll(_POLL_S)
            if message is None:
                continue
            if message.error() is None:
                found[message.partition()].append(int(message.value()))
            elif message.error().name() == _END:
                ended.add(message.partition())
        consumer.close()
        return {**_outcome(None), "values": found}

    def _until_done(self, call: Callable[[float], object]) -> Outcome:
        until = time.monotonic() + _WITHIN_S
        while True:
            try:
                call(_CALL_S)
            except KafkaException as raised:
                error = raised.args[0]
                if error.retriable() and time.monotonic() < until:
                    continue
                return _outcome(error)
            return _outcome(None)


def _cause_of(raised: SystemError) -> Any:
    if not isinstance(raised.__cause__, KafkaException):
        raise raised
    return raised.__cause__.args[0]


def _outcome(error: Any) -> Outcome:
    if error is None:
        return {"error": None, "kind": ""}
    kind = "fatal" if error.fatal() else "abortable" if error.txn_requires_abort() else "other"
    return {"error": error.name(), "kind": kind}


def _say(outcome: Outcome) -> None:
    sys.stdout.write(json.dumps(outcome) + "\n")
    sys.stdout.flush()


def main(servers: str) -> None:
    """Runs until the end of the input."""
    actor = TransactionalActor(servers)
    for line in sys.stdin:
        fields = json.loads(line)
        _say(getattr(actor, fields.pop("do"))(**fields))


if __name__ == "__main__":
    main(*sys.argv[1:])
