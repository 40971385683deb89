"""A topic as transactions leave it at their worst, for tests of readers (`docs/testing.md`).

Its producers speak the second generation of the protocol by themselves, so that nothing has to be installed.
"""

from __future__ import annotations

import time
from typing import Any, Final

from echoless.client.connection import BrokerConnection
from echoless.protocol.records import Record, build_batch

_RETRIED: Final = frozenset({14, 15, 16, 19, 51})
"""Codes of a coordinator that is not ready, or has not ended the transaction before."""
_WITHIN_S: Final = 30.0
_AGAIN_S: Final = 0.01
_TIMEOUT_MS: Final = 600_000
_PARTITION: Final = 0
_METADATA: Final = {
    "allow_auto_topic_creation": False,
    "include_topic_authorized_operations": False,
}


class TransactionalTopic:
    """A topic of one partition with committed, aborted and open transactions. Blocking.

    In the order of the log: a committed transaction; an aborted and a committed one whose records alternate; the first
    record of one that stays open, the holder; then `behind` more, of which every third is aborted. It ends in a marker.
    """

    def __init__(self, address: str, name: str, *, behind: int = 30) -> None:
        """Writes to an empty topic that is there. `address` is `host:port` of its leader's port for Kafka clients.

        Raises `ConnectionFailedError`, and `AssertionError` for a broker that does not take it.
        """
        self.name = name
        self.committed: list[bytes] = []
        """The values that a reader of committed records has to see in the end, in order."""
        self.aborted: list[bytes] = []
        """The values that it must never see."""
        self._address = address
        self.readable: list[bytes] = []
        """The values that it sees as long as the holder's transaction is open."""
        self.last_stable_offset = 0
        """The offset at which it stops meanwhile."""
        with _connect(address) as connection:
            self._holder = self._write_all(connection, behind)
            self.log_end_offset = self._end_offset(connection)
        """The end of the log while the holder's transaction is open; the last batch is a marker."""

    def release(self, *, is_commit: bool = True) -> None:
        """Ends the holder's transaction; returns once its marker is in the log. Its record is `b"held"`."""
        with _connect(self._address) as connection:
            self._holder.end(connection, is_commit=is_commit)
        if is_commit:
            self.committed.insert(len(self.readable), b"held")
        else:
            self.aborted.append(b"held")

    def _write_all(self, connection: BrokerConnection, behind: int) -> _Producer:
        """The holder."""
        self._write(connection, "first", [b"first 0", b"first 1"], is_commit=True)
        self._write_in_turns(connection)
        self.readable += self.committed
        self.last_stable_offset = self._end_offset(connection)
        holder = self._producer(connection, "holder")
        holder.send(connection, b"held")
        for number in range(behind):
            values = [b"behind %d" % number]
            self._write(connection, f"{number % 4}", values, is_commit=number % 3 != 1)
        return holder

    def _producer(self, connection: BrokerConnection, name: str) -> _Producer:
        return _Producer(connection, f"{self.name}-{name}", self.name)

    def _write_in_turns(self, connection: BrokerConnection) -> None:
        ending, staying = [self._producer(connection, one) for one in ("aborted", "committed")]
        for number in range(3):
            for producer, values, word in (
                (ending, self.aborted, b"aborted"),
                (staying, self.committed, b"between"),
            ):
                values.append(b"%s %d" % (word, number))
                producer.send(connection, values[-1])
        staying.end(connection, is_commit=True)
        ending.end(connection, is_commit=False)

    def _write(
        self, connection: BrokerConnection, name: str, values: list[bytes], *, is_commit: bool
    ) -> None:
        producer = self._producer(connection, name)
        for value in values:
            producer.send(connection, value)
        producer.end(connection, is_commit=is_commit)
        (self.committed if is_commit else self.aborted).extend(values)

    def _end_offset(self, connection: BrokerConnection) -> int:
        partition = {"partition_index": _PARTITION, "current_leader_epoch": -1, "timestamp": -1}
        topic = {"name": self.name, "partitions": [partition]}
        fields = {"replica_id": -1, "isolation_level": 0, "topics": [topic]}
        answer = connection.request("list_offsets", fields)
        return int(answer.topics[0].partitions[0].offset)


class _Producer:
    """One session of a transactional id, with one transaction."""

    def __init__(self, connection: BrokerConnection, name: str, topic: str) -> None:
        self._name = name
        self._sequence = 0
        wanted = {"topics": [{"name": topic, "topic_id": None}], **_METADATA}
        answer = connection.request("metadata", wanted)
        self._topic = {"name": topic, "topic_id": answer.topics[0].topic_id}
        keys = {"key_type": 1, "coordinator_keys": [name]}
        self._until_done(lambda: connection.request("find_coordinator", keys).coordinators[0])
        fields = {"transactional_id": name, "transaction_timeout": _TIMEOUT_MS}
        session = self._until_done(lambda: connection.request("init_producer_id", fields))
        self._identity = int(session.producer_id), int(session.producer_epoch)

    def send(self, connection: BrokerConnection, value: bytes) -> None:
        """Stores one record; the first one opens the transaction."""
        producer_id, producer_epoch = self._identity
        batch = build_batch(
            [Record(0, time.time_ns() // 1_000_000, None, value)],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=self._sequence,
            is_transactional=True,
        )
        row = {"index": _PARTITION, "records": batch}
        topic = {**self._topic, "partition_data": [row]}
        fields = {"transactional_id": self._name, "acks": -1, "timeout": 30_000}

        def ask() -> Any:
            answer = connection.request("produce", {**fields, "topic_data": [topic]})
            return answer.responses[0].partition_responses[0]

        self._until_done(ask)
        self._sequence += 1

    def end(self, connection: BrokerConnection, *, is_commit: bool) -> None:
        """Returns once every partition has its marker."""
        producer_id, producer_epoch = self._identity
        fields = {
            "transactional_id": self._name,
            "producer_id": producer_id,
            "producer_epoch": producer_epoch,
            "committed": is_commit,
        }
        self._until_done(lambda: connection.request("end_txn", fields))
        deadline = time.monotonic() + _WITHIN_S
        while self._state(connection).startswith("Prepare"):
            self._check(deadline, "its markers are missing")
            time.sleep(_AGAIN_S)

    def _state(self, connection: BrokerConnection) -> str:
        ids = {"transactional_ids": [self._name]}
        answer = connection.request("describe_transactions", ids)
        return str(answer.transaction_states[0].transaction_state)

    def _until_done(self, ask: Any) -> Any:
        """The first answer without one of the codes that pass. Raises `AssertionError` for another one."""
        deadline = time.monotonic() + _WITHIN_S
        while (answer := ask()).error_code in _RETRIED:
            self._check(deadline, f"error {int(answer.error_code)}")
            time.sleep(_AGAIN_S)
        if answer.error_code:
            raise AssertionError(f"{self._name}: error {int(answer.error_code)}")
        return answer

    def _check(self, deadline: float, why: str) -> None:
        if time.monotonic() > deadline:
            raise AssertionError(f"{self._name}: not within {_WITHIN_S:g} s: {why}")


def _connect(address: str) -> BrokerConnection:
    host, _, port = address.rpartition(":")
    return BrokerConnection.open(host, int(port), _WITHIN_S)
