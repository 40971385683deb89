"""One broker's side of a history: its sessions, under its own ids, and its topics."""

from __future__ import annotations

import datetime
import uuid
from typing import Any, Final

from tests.oracle.sessions.step import (
    EARLIER,
    IDS_FROM,
    MAIN,
    MISSING,
    OTHER,
    PARTITIONS,
    DeleteRecords,
    Fetch,
    Produce,
    Step,
)
from tests.oracle.side import Side
from tests.support.raw_batches import plain_batch, split_log
from tests.support.raw_client import (
    RawConnection,
    create_topic,
    nested,
    topic_id,
    wait_for_leaders,
)
from tests.support.raw_produce import PartitionData
from tests.support.session_client import ask

_UNKNOWN_ID: Final = uuid.UUID(int=77)
_UNKNOWN_SESSION: Final = (77, 1)
_BATCH: Final = plain_batch([b"x"], producer_id=-1, producer_epoch=-1, base_sequence=-1).encode()


class SessionAsker:
    """Asks one broker, one request after the other."""

    def __init__(self, side: Side, prefix: str) -> None:
        self.side = side
        self._prefix = prefix
        self._sessions: dict[int, tuple[int, int]] = {}
        """The id, and the epoch of the next request."""
        self._ids = {MISSING: _UNKNOWN_ID, OTHER: uuid.UUID(int=78), EARLIER: uuid.UUID(int=79)}
        self._labels: dict[Any, str] = {
            topic_id: f"never {number}" for number, topic_id in enumerate(self._ids.values())
        }
        """A name for each id that was ever sent."""
        self.has_other = False
        self._connection: RawConnection

    async def open(self, side: Side) -> None:
        self.side = side
        self._connection = await side.borrow()
        for topic, partitions in PARTITIONS.items():
            if topic == MAIN or self.has_other:
                await wait_for_leaders(self._connection, self._name(topic), partitions)
        self._ids[MAIN] = side.topic_ids[self._name(MAIN)]
        self._labels[self._ids[MAIN]] = MAIN

    def release(self) -> None:
        self.side.give_back(self._connection)

    def _name(self, topic: str) -> str:
        return self._prefix + (OTHER if topic == EARLIER else topic)

    async def ask(self, step: Step) -> Any:
        """Takes a step; returns the answer as plain values."""
        if isinstance(step, Fetch):
            return await self._fetch(step)
        if isinstance(step, Produce):
            if step.topic == OTHER and not self.has_other:
                return "no such topic"
            data = PartitionData(self._name(step.topic), step.partition, _BATCH)
            answers = [await self._connection.produce(9, -1, [data]) for _ in range(step.count)]
            return [(one.error, one.base_offset) for (one,) in answers]
        if isinstance(step, DeleteRecords):
            return await self._delete_records(step)
        await self._toggle()
        return self.has_other

    # --- fetches ---

    def session(self, slot: int, how: str) -> tuple[int, int]:
        """The id and the epoch to send."""
        id_, epoch = self._sessions.get(slot, _UNKNOWN_SESSION)
        match how:
            case "opens":
                return 0, 0
            case "whole":
                return 0, -1
            case "reopens":
                return id_, 0
            case "ends":
                return id_, -1
            case "again":
                return id_, epoch - 1 or -2
            case "skips":
                return id_, epoch + 1
            case "unknown":
                return _UNKNOWN_SESSION
        return id_, epoch

    async def _fetch(self, step: Fetch) -> Any:
        key = self._ids.__getitem__ if step.version >= IDS_FROM else self._name
        rows: dict[Any, list[tuple[int, int]]] = {}
        for topic, partition, offset in step.rows:
            rows.setdefault(key(topic), []).append((partition, offset))
        forgets: dict[Any, list[int]] = {}
        for topic, partition in step.forgets:
            forgets.setdefault(key(topic), []).append(partition)
        session = self.session(step.slot, step.how)
        response = await ask(
            self._connection,
            session,
            rows,
            forgets,
            version=step.version,
            max_bytes=step.bytes_max,
            isolation_level=step.isolation_level,
        )
        self._note(step, session, response)
        names = self._labels
        if step.version < IDS_FROM:
            names = {self._name(topic): topic for topic in (MISSING, OTHER, MAIN)}
        answered = {
            (names[self._key(topic)], row.partition_index): _row(row)
            for topic in response.responses
            for row in topic.partitions
        }
        return {
            "code": int(response.error_code),
            "has session": response.session_id != 0,
            "rows": dict(sorted(answered.items())),
        }

    @staticmethod
    def _key(topic: Any) -> Any:
        found = getattr(topic, "topic_id", None)
        return topic.topic if found is None else uuid.UUID(bytes=found.bytes)

    def _note(self, step: Fetch, session: tuple[int, int], response: Any) -> None:
        id_, epoch = session
        if epoch in {0, -1}:
            if id_ == self._sessions.get(step.slot, (0, 0))[0]:
                self._sessions.pop(step.slot, None)
            if response.session_id:
                self._sessions[step.slot] = response.session_id, 1
        elif response.error_code == 0:
            if response.session_id:
                self._sessions[step.slot] = id_, epoch + 1
            else:
                self._sessions.pop(step.slot)

    # --- topics ---

    async def _delete_records(self, step: DeleteRecords) -> Any:
        if step.topic == OTHER and not self.has_other:
            return "no such topic"
        topic = nested("delete_records", 2, "DeleteRecordsTopic")
        partition = nested("delete_records", 2, "DeleteRecordsPartition")
        rows = (partition(partition_index=step.partition, offset=step.offset),)
        response = await self._connection.call(
            "delete_records",
            2,
            topics=(topic(name=self._name(step.topic), partitions=rows),),
            timeout=datetime.timedelta(seconds=30),
        )
        (row,) = response.topics[0].partitions
        return int(row.error_code), row.low_watermark

    async def _toggle(self) -> None:
        name = self._name(OTHER)
        if self.has_other:
            wait = datetime.timedelta(seconds=30)
            response = await self._connection.call(
                "delete_topics", 5, topic_names=(name,), timeout=wait
            )
            assert response.responses[0].error_code == 0
            while not await self._is_gone(name):
                pass
        else:
            await create_topic(self._connection, name, PARTITIONS[OTHER])
            self._ids[EARLIER] = self._ids[OTHER]
            self._ids[OTHER] = await topic_id(self._connection, name)
            self._labels[self._ids[OTHER]] = f"{OTHER} {len(self._labels)}"
        self.has_other = not self.has_other

    async def _is_gone(self, name: str) -> bool:
        """Whether the broker knows the topic no more, so that it can be created again."""
        topic = nested("metadata", 12, "MetadataRequestTopic")
        response = await self._connection.call(
            "metadata",
            12,
            topics=(topic(topic_id=None, name=name),),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        return int(response.topics[0].error_code) == 3


def _row(row: Any) -> tuple[Any, ...]:
    """Code, offsets of the batches, high watermark, last stable offset and log start."""
    offsets = tuple(batch.base_offset for batch in split_log(row.records or b""))
    return (
        int(row.error_code),
        offsets,
        row.high_watermark,
        row.last_stable_offset,
        getattr(row, "log_start_offset", None),
    )
