"""Consume, transform, produce: copies one partition to another, with the offset that it has read up to in each transaction."""

from __future__ import annotations

from typing import Any, Final

from echoless.coordinators.groups.answers import OffsetFetchAnswer
from echoless.coordinators.groups.requests import OffsetFetch
from echoless.protocol.errors import ErrorCode
from tests.simulation.clients import REQUEST_TIMEOUT_S, Client, NoAnswerError
from tests.simulation.observations import Spot
from tests.simulation.transactions.port import KafkaPort
from tests.simulation.transactions.reader import PartitionReader
from tests.simulation.transactions.writer import (
    INVALID_EPOCH,
    INVALID_MAPPING,
    INVALID_STATE,
    AbortableError,
    Habits,
    UnansweredError,
    Writer,
)
from tests.support.raw_client import nested
from tests.transactions.history.events import Seen, Transaction

GROUP: Final = "copiers"
_GROUPS_KEY: Final = 0
_MOST_RECORDS: Final = 6
_AGAIN: Final = frozenset({3, 7, 14, 15, 16, 51})
_ABORTS: Final = frozenset({22, 25, 120, INVALID_EPOCH, INVALID_STATE, INVALID_MAPPING})


async def fetch_committed(client: Client, node: str, spot: Spot) -> int | None:
    """The committed offset of the group, 0 without one; None if it is not known now. Raises `NoAnswerError`."""
    request = OffsetFetch(GROUP, (tuple(spot),), require_stable=True)
    connection = client.connection(node)
    answer: OffsetFetchAnswer = await client.answered(
        connection, connection.ask_group(request), REQUEST_TIMEOUT_S
    )
    if answer.error_code is not ErrorCode.NONE:
        return None
    (row,) = answer.partitions
    return max(row.offset, 0) if row.error_code is ErrorCode.NONE else None


class Copier(Writer):
    """Copies what is committed; another instance of it reads on from the committed offset."""

    def __init__(
        self, port: KafkaPort, transactional_id: str, habits: Habits, source: Spot, target: Spot
    ) -> None:
        super().__init__(port, transactional_id, habits, [target])
        self._source = source
        self._target = target
        self._reader = PartitionReader(port, source, is_committed=True)
        self._group_coordinator: str | None = None

    async def started(self) -> None:
        await self._return()

    async def aborted(self) -> None:
        await self._return()

    async def _return(self) -> None:
        """Reads on from the committed offset."""
        until = self.seen.now() + self.habits.patience_s
        while self.seen.now() < until:
            node = await self._find_group()
            try:
                offset = await fetch_committed(self.client, node, self._source)
            except NoAnswerError:
                offset = None
            if offset is not None:
                self._reader = PartitionReader(self.port, self._source, is_committed=True)
                self._reader.position = offset
                return
            self.seen.count("a committed offset is not stable, or not known")
            self._group_coordinator = None
            await self.client.back_off()
        raise UnansweredError

    async def fill(self, one: Transaction) -> bool:
        found: list[Seen] = []
        try:
            await self._reader.poll(found)
        except NoAnswerError:
            return False
        del found[_MOST_RECORDS:]
        if not found:
            return False
        one.seen += found
        self._reader.position = found[-1].offset + 1
        await self.join([self._target])
        await self.send(one, self._target, [seen.value for seen in found])
        await self._commit_offset(self._reader.position)
        return True

    async def _commit_offset(self, offset: int) -> None:
        """The offset becomes part of the transaction. Raises what follows from the code."""
        if self.habits.generation == 1 and GROUP not in self._joined:
            await self.add(
                "add_offsets_to_txn",
                3,
                transactional_id=self.transactional_id,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.epoch,
                group_id=GROUP,
            )
            self._joined.add(GROUP)
        version = self._version(5, 3)
        self._may_be_open = True

        async def ask(node: str) -> Any:
            fields = self._offset_fields(version, offset)
            return await self.port.ask(node, "txn_offset_commit", version, **fields)

        answer = await self.repeat("txn_offset_commit", self._find_group, ask, _AGAIN)
        code = int(answer.topics[0].partitions[0].error_code)
        if code == 0:
            return
        if code not in _ABORTS:
            self._surprised("txn_offset_commit", code)
        raise AbortableError

    def _offset_fields(self, version: int, offset: int) -> dict[str, Any]:
        row = nested("txn_offset_commit", version, "TxnOffsetCommitRequestPartition")(
            partition_index=self._source.partition,
            committed_offset=offset,
            committed_leader_epoch=-1,
            committed_metadata=None,
        )
        topic = nested("txn_offset_commit", version, "TxnOffsetCommitRequestTopic")(
            name=self._source.topic, partitions=(row,)
        )
        return {
            "transactional_id": self.transactional_id,
            "group_id": GROUP,
            "producer_id": self.identity.producer_id,
            "producer_epoch": self.identity.epoch,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": (topic,),
        }

    async def _find_group(self) -> str:
        while self._group_coordinator is None:
            self._group_coordinator = await self.find(GROUP, _GROUPS_KEY)
        node, self._group_coordinator = self._group_coordinator, None
        return node
