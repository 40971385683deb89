"""One pass over the partitions of a follower's message: what each of them has for it.

A fetch that waits makes two. The first one notes how far the follower is, compares the logs, and finds nothing; the
second one, after the wait, reads what is new in the same partitions.

Called by `replica_fetch.py`, which says in which order.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

from echoless.broker.partitions.partition import Partition
from echoless.broker.replication.leader import fetch_as_replica, read_further
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.native.replication import ReplicaFetch, ReplicaFetched, ReplicaWanted
from echoless.storage.file_system import StorageError

if TYPE_CHECKING:
    from echoless.broker.services import Services

BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of batches in one answer, whatever the follower asks for; the same as for consumers."""

Turn = tuple[uuid.UUID, int]
_NOTHING: Final = ReplicaFetched(ErrorCode.NONE)


class ReplicaPass:
    """The rows of an answer, as they are read."""

    __slots__ = ("_left", "_message", "_size", "fetched", "has_news", "partitions", "short")

    def __init__(self, message: ReplicaFetch) -> None:
        self.fetched = [_NOTHING] * len(message.partitions)
        """In the order of the message."""
        self.has_news = False
        """Whether there is an error or a divergence that the follower should learn of at once."""
        self.partitions: dict[int, Partition] = {}
        """The partitions whose next append may complete the answer, by their place in the message."""
        self.short: Turn | None = None
        """The first partition for whose batches there was no room."""
        self._message = message
        self._left = min(message.bytes_max, BYTES_MAX)
        """Bytes of batches that may still be read."""
        self._size = 0
        """Bytes of batches read."""

    @property
    def is_enough(self) -> bool:
        """Whether the follower has something to do now."""
        return self._size >= self._message.min_bytes or self.has_news or not self.partitions

    def read(self, index: int, services: Services) -> None:
        """Reads one partition, which learns how far the follower is."""
        message = self._message
        wanted = message.partitions[index]
        _, topic_id, number, leader_epoch, offset, last_epoch = wanted
        broker_id, broker_epoch = message.broker_id, message.broker_epoch
        try:
            partition = services.partitions.find(topic_id, number)
            found = fetch_as_replica(
                partition, broker_id, broker_epoch, leader_epoch, offset, last_epoch, self._left
            )
        except (KafkaError, StorageError) as error:
            self._note_error(index, error, services)
        else:
            self._note(index, wanted, partition, found)

    def read_further(self, index: int, partition: Partition, services: Services) -> None:
        """Reads what has been appended to a partition that had nothing in an earlier pass."""
        wanted = self._message.partitions[index]
        try:
            found = read_further(partition, wanted.leader_epoch, wanted.offset, self._left)
        except (KafkaError, StorageError) as error:
            self._note_error(index, error, services)
        else:
            self._note(index, wanted, partition, found)

    def _note(
        self, index: int, wanted: ReplicaWanted, partition: Partition, found: ReplicaFetched
    ) -> None:
        size = len(found.batches)
        if size > self._left and self._size:  # only the first batch may exceed it
            found, size, self._left = found._replace(batches=b""), 0, 0
        if size:
            self._size += size
            self._left = max(self._left - size, 0)
        elif found.diverging is not None:
            self.has_news = True
        elif self.short is None and wanted.offset < partition.log.log_end_offset:
            self.short = turn_of(wanted)
        self.fetched[index] = found
        self.partitions[index] = partition

    def _note_error(self, index: int, error: KafkaError | StorageError, services: Services) -> None:
        """Notes an error of one partition; the others are answered as usual."""
        code = ErrorCode.KAFKA_STORAGE_ERROR
        if isinstance(error, KafkaError):
            code = error.code
        else:
            services.fail_storage(error)
        self.fetched[index] = ReplicaFetched(code)
        self.has_news = True


def turn_of(wanted: ReplicaWanted) -> Turn:
    """The key of the partition whose turn it is, whatever its place in the next message."""
    return wanted.topic_id, wanted.partition
