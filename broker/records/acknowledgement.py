"""Decides when a produced batch is acknowledged, and what its client gets if it cannot be.

acks=0 answers nothing and closes the connection on an error; acks=1 waits until the batch is as
durable on the leader as `log_flush` requires; acks=-1 until the high watermark has passed it. A
duplicate waits for its original exactly as the first copy did.

Called by the Produce handlers of both ports.
"""

from __future__ import annotations

from echoless.broker.network.promise import Promise
from echoless.broker.network.request import CloseConnectionError
from echoless.broker.records.append import StoredBatch
from echoless.broker.records.deadlines import Deadlines
from echoless.broker.records.in_flight import ACKS_ALL
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.produce import TopicProduced


def is_unacknowledged(acks: int, stored: StoredBatch) -> bool:
    """Whether the broker may not acknowledge the batch yet under `acks`."""
    if acks == ACKS_ALL:
        return stored.next_offset > stored.partition.high_watermark
    return stored.next_offset > stored.partition.durable_offset


class _Wait:
    """One batch of an acknowledgement; its partition resolves it (`waiters.py`)."""

    __slots__ = ("_acknowledgement", "_is_done", "error", "stored")

    def __init__(self, acknowledgement: AwaitedAcknowledgement, stored: StoredBatch) -> None:
        self._acknowledgement = acknowledgement
        self._is_done = False
        self.error: BaseException | None = None
        self.stored = stored

    def done(self) -> bool:
        return self._is_done

    def cancel(self) -> bool:
        was_done, self._is_done = self._is_done, True
        return not was_done

    def set_result(self, _: None) -> None:
        self._is_done = True
        acknowledgement = self._acknowledgement
        acknowledgement.left -= 1
        if not acknowledgement.left:
            acknowledgement.finish()

    def set_exception(self, error: BaseException) -> None:
        self.error = error
        self.set_result(None)

    def exception(self) -> BaseException | None:
        return self.error


class AwaitedAcknowledgement(Promise):
    """Waits for all batches of one request together, at most for the timeout; answers with the topics.

    The wait begins at once: nothing is missed before the promise is watched.
    """

    __slots__ = ("_by_all", "_deadlines", "_tick", "_topics", "_waits", "left")

    def __init__(
        self,
        acks: int,
        topics: list[TopicProduced],
        waits: list[StoredBatch],
        timeout_s: float,
        deadlines: Deadlines,
    ) -> None:
        super().__init__()
        self._by_all = by_all = acks == ACKS_ALL
        self._topics = topics
        self._deadlines = deadlines
        self.left = len(waits)
        """Number of batches that still wait."""
        self._waits = [_Wait(self, one) for one in waits]
        for wait in self._waits:
            stored = wait.stored
            waiters = stored.partition.waiters
            (waiters.commit if by_all else waiters.flush).add(wait, stored.next_offset)
        self._tick = deadlines.add(self, timeout_s)

    def finish(self) -> None:
        """Notes that no batch waits any longer."""
        self._deadlines.discard(self, self._tick)
        self._become_ready()

    def expire(self) -> None:
        """Ends the wait at its deadline: the batches that still wait get REQUEST_TIMED_OUT."""
        for wait in self._leave():
            wait.error = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        self._become_ready()

    def abandon(self) -> None:
        """Ends the wait: the client is gone. Does nothing once the answer is ready."""
        if not self.is_ready:
            self._deadlines.discard(self, self._tick)
            self._leave()

    def _leave(self) -> list[_Wait]:
        """Takes the batches that still wait out of their partitions."""
        late = [wait for wait in self._waits if not wait.done()]
        for wait in late:
            wait.stored.partition.waiters.abandon(wait, by_all=self._by_all)
        return late

    def _result(self) -> list[TopicProduced]:
        waits, self._waits = self._waits, []  # each refers to this object: a cycle
        failed, by_all = {}, self._by_all
        for wait in waits:
            partition = wait.stored.partition
            if wait.error is not None or (
                by_all and len(partition.isr) < partition.rules.min_insync_replicas
            ):
                failed[id(wait.stored.produced)] = _failure(wait.error)
        topics = self._topics
        return [_with_failures(topic, failed) for topic in topics] if failed else topics


def _failure(error: BaseException | None) -> ErrorCode:
    """Why a batch that was appended cannot be acknowledged; without an error too few replicas have it."""
    if isinstance(error, KafkaError):
        return error.code
    return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def _with_failures(topic: TopicProduced, failed: dict[int, ErrorCode]) -> TopicProduced:
    """The topic with the error codes, which are listed by `id` of their rows."""
    key, partitions = topic
    return key, [
        produced._replace(error_code=failed.get(id(produced), produced.error_code))
        for produced in partitions
    ]


def answer_nothing(topics: list[TopicProduced]) -> None:
    """For acks=0: raises `CloseConnectionError` if anything failed, as no error can be returned."""
    for topic, partitions in topics:
        for produced in partitions:
            if produced.error_code:
                raise CloseConnectionError(
                    f"acks=0 produce to {topic}-{produced.partition} failed: "
                    f"{produced.error_code.name}, and the client expects no answer"
                )
