"""The positions of a copier in its group: read when partitions are assigned, committed under that generation.

Reading asks for stable offsets: the answer waits for commits under way, so what was answered "none" stays none unless
this generation commits. Without that, two members could each begin under a producer id of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from echoless.client.coordinator import MOVED, Backoff, Coordinator
from echoless.client.copier.position import Position, PositionError
from echoless.client.copier.transactional_lane import EXACT
from echoless.client.groups.assignment import Partition
from echoless.client.groups.errors import GenerationOverError, group_error
from echoless.client.groups.member import OVER, Generation
from echoless.protocol.errors import ErrorCode

_STABLE_FROM: Final = 7
"""The first version of OffsetFetch that can ask for stable offsets (Kafka 2.5)."""
_AGAIN: Final = MOVED | {ErrorCode.REQUEST_TIMED_OUT}
_OVER: Final = OVER | {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
"""Joining again shows whether the group, or the topic, still exists."""


class CommittedPosition(NamedTuple):
    """The commit of a group for one partition."""

    offset: int
    metadata: str

    @property
    def is_exact(self) -> bool:
        """Whether it was committed in a transaction with the records before it."""
        return self.metadata == EXACT

    def position(self, group: str, partition: Partition) -> Position:
        """Raises `PositionError`: a position without a state is not guessed at."""
        where = f"group {group}, {partition[0]}-{partition[1]}"
        if not self.metadata:
            raise PositionError(
                f"{where}: offset {self.offset} is committed without a copier's state (it was reset, or committed "
                "by another program), so it is unknown which of the records from there on are stored. If none is, "
                "and all before are, start once with bare_offsets=True (--bare-offsets)"
            )
        try:
            return Position.read(self.offset, self.metadata)
        except PositionError as error:
            raise PositionError(f"{where}: {error}") from error


class Positions:
    """The commits of one group."""

    def __init__(self, coordinator: Coordinator, instance_id: str | None) -> None:
        self._coordinator = coordinator
        self._instance_id = instance_id

    async def fetch(
        self, generation: Generation, partitions: Sequence[Partition]
    ) -> dict[Partition, CommittedPosition]:
        """Returns what is committed; a partition without a commit is left out.

        Raises `GroupError`, `PositionError`; `GenerationOverError` if that comes first.
        """
        if not partitions:
            return {}
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        rows = [{"name": name, "partition_indexes": some} for name, some in topics.items()]
        group = self._coordinator.key
        asked = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": rows}
        # Before version 8 a request is about one group.
        fields = {"groups": [asked], "group_id": group, "topics": rows, "require_stable": True}
        backoff = Backoff()
        while not generation.is_over:
            answer = await self._coordinator.ask("offset_fetch", fields)
            found = self._read(answer) if answer is not None else None
            if found is not None:
                return found
            await backoff.pause()
        raise GenerationOverError

    def _read(self, answer: Any) -> dict[Partition, CommittedPosition] | None:
        """None if the question has to be repeated."""
        if type(answer).__version__ < _STABLE_FROM:
            raise PositionError(
                f"group {self._coordinator.key}: its broker cannot tell whether commits are under way; "
                "Apache Kafka can from 2.5 on"
            )
        found = answer.groups[0] if hasattr(answer, "groups") else answer
        rows = [(topic.name, row) for topic in found.topics for row in topic.partitions]
        for code in (found.error_code, *(row.error_code for _, row in rows)):
            if code.value in MOVED:
                self._coordinator.forget()
                return None
            if code.value == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                return None
            if code.value:
                raise group_error(self._coordinator.key, "its offsets", code)
        return {
            (topic, row.partition_index): CommittedPosition(
                row.committed_offset, row.metadata or ""
            )
            for topic, row in rows
            if row.committed_offset >= 0
        }

    async def commit(
        self, generation: Generation, rows: Mapping[Partition, CommittedPosition]
    ) -> None:
        """Commits all of them in one batch, repeated until it is answered.

        Raises `GenerationOverError` if this member may not commit any more, `GroupError`, `PositionError`.
        """
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, index), committed in rows.items():
            row = {
                "partition_index": index,
                "committed_offset": committed.offset,
                "committed_leader_epoch": -1,
                "committed_metadata": committed.metadata,
            }
            topics.setdefault(topic, []).append(row)
        fields = {
            "group_id": self._coordinator.key,
            "generation_id_or_member_epoch": generation.number,
            "member_id": generation.member_id,
            "group_instance_id": self._instance_id,
            "topics": [{"name": name, "partitions": some} for name, some in topics.items()],
        }
        backoff = Backoff()
        while not generation.is_over:
            answer = await self._coordinator.ask("offset_commit", fields)
            generation.unanswered_commits += answer is None
            if answer is not None and self._is_committed(answer, generation):
                return
            await backoff.pause()
        raise GenerationOverError

    def _is_committed(self, answer: Any, generation: Generation) -> bool:
        for topic in answer.topics:
            for row in topic.partitions:
                code = row.error_code.value
                if code in _OVER:
                    generation.end()
                    raise GenerationOverError
                if code in _AGAIN:
                    self._coordinator.forget()
                    return False
                if code == ErrorCode.OFFSET_METADATA_TOO_LARGE:
                    raise PositionError(
                        f"group {self._coordinator.key}, {topic.name}-{row.partition_index}: its broker refuses "
                        "the length of the producer's state: raise offset_metadata_max_bytes (Kafka: "
                        "offset.metadata.max.bytes), or let each input partition have fewer output partitions"
                    )
                if code:
                    raise group_error(self._coordinator.key, "its commit", row.error_code)
        return True
