"""The transactional ids of a broker that leads several partitions of `__transaction_state`, in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from echoless.broker.config.internal_topics import TRANSACTION_STATE
from echoless.broker.config.loading import Config, LogFlush
from echoless.broker.decisions.events import TransactionStep
from echoless.broker.metrics import Metrics
from echoless.broker.state_topics.append_parts import AppendParts
from echoless.broker.state_topics.shard_state import ShardState
from echoless.broker.transactions.coordinator_door import CoordinatorDoor
from echoless.broker.transactions.marker_sender import MarkerSender
from echoless.broker.transactions.service import TransactionService
from echoless.coordinators.transactions.answers import TransactionAnswer
from echoless.coordinators.transactions.requests import (
    AddPartitions,
    EndTransaction,
    InitTransactionalId,
    TransactionRequest,
)
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.partitioner import partition_of
from echoless.protocol.state_records.transaction_records import TransactionStatus
from echoless.storage.file_system import StorageError
from echoless.storage.log_config import LogConfig
from tests.broker.partitions.fake_fencing import FakeFencing
from tests.broker.partitions.led import Led
from tests.broker.transactions.fake_door import FakeDoor, FakeLeaders, place
from tests.broker.until import until
from tests.storage.one_log import NOW_MS, OneLog

PARTITIONS = 2
ID = "orders"


def _fail(error: StorageError) -> None:
    raise error


class Coordinating:
    """A service over partitions in memory, all of which this broker leads; its markers go through a fake door."""

    def __init__(self, *, replicas: tuple[int, ...] = (1,)) -> None:
        self.replicas = replicas
        self.door, self.leaders = FakeDoor(), FakeLeaders()
        self.newest_connection = 0
        self.metrics = Metrics()
        self.last_producer_id = 99
        self.id_errors: list[Exception] = []
        """Raised, the first one first, instead of giving producer ids."""
        self.led = [self._led(index) for index in range(PARTITIONS)]
        self.steps: list[TransactionStep] = []
        """The steps that coordinators have taken by themselves, or for leaders."""
        self.service = self.new_service()

    def _note(
        self, make: Callable[..., TransactionStep], *values: Any, is_large: bool = False
    ) -> None:
        del is_large
        self.steps.append(make(*values))

    def new_service(self) -> TransactionService:
        topic: Any = SimpleNamespace(name=TRANSACTION_STATE, partition_count=PARTITIONS)
        leaders: Any = self.leaders
        appends = AppendParts(
            now_ms=lambda: NOW_MS,
            wall_ms=lambda: NOW_MS,
            fail_storage=_fail,
            metrics=self.metrics,
            timeout_s=60,
        )
        return TransactionService(
            Config(),
            topic,
            appends,
            newest_connection=lambda: self.newest_connection,
            next_producer_id=self._next_producer_id,
            new_sender=lambda: MarkerSender(leaders, self.door),
            new_door=self._no_door,
            version=lambda: 2,
            note=self._note,
        )

    def _no_door(self) -> CoordinatorDoor:
        raise AssertionError("no partition of a client is led here")

    async def _next_producer_id(self) -> int:
        await asyncio.sleep(0)
        if self.id_errors:
            raise self.id_errors.pop(0)
        self.last_producer_id += 1
        return self.last_producer_id

    def _led(self, index: int) -> Led:
        fencing = FakeFencing(epochs={2: 7})
        led = Led(LogFlush.OS, self.replicas, fencing, OneLog(LogConfig(retention_ms=-1)))
        led.partition.topic, led.partition.index = TRANSACTION_STATE, index
        led.lead(2, isr=self.replicas)
        return led

    @property
    def timer_count(self) -> int:
        """The timers of all ids."""
        return sum(len(shard._timers) for shard in self.service.shards.values())

    async def serve(self) -> None:
        """Has the service lead both partitions, and returns when it serves."""
        for led in self.led:
            self.service.led(led.partition, led.partition.leader_epoch)
        shards = self.service.shards
        await until(lambda: all(one.state is ShardState.SERVING for one in shards.values()))

    async def ask(self, request: TransactionRequest, name: str = ID) -> TransactionAnswer:
        answered = self.service.ask(name, request)
        return await answered if isinstance(answered, Awaitable) else answered

    async def begin(self, *indexes: int, name: str = ID, version: int = 0) -> tuple[int, int]:
        """Begins a session and a transaction with these partitions; returns the session's identity."""
        answer = await self.ask(InitTransactionalId(60_000), name)
        while answer.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE:  # no producer id yet
            await asyncio.sleep(0)
            answer = await self.ask(InitTransactionalId(60_000), name)
        assert answer.error_code is ErrorCode.NONE
        identity = answer.producer_id, answer.producer_epoch
        partitions = frozenset(map(place, indexes))
        added = await self.ask(AddPartitions(*identity, partitions, version), name)
        assert added.error_code is ErrorCode.NONE
        return identity

    async def end(
        self, identity: tuple[int, int], *, is_commit: bool = True, name: str = ID
    ) -> ErrorCode:
        """The code of an EndTxn of the first generation."""
        return (await self.ask(EndTransaction(*identity, is_commit), name)).error_code

    def status(self, name: str = ID) -> TransactionStatus | None:
        """The state of an id as it is committed."""
        state = self.service.look_at(name)
        value = None if isinstance(state, ErrorCode) else state.value
        return None if value is None else value.status

    @property
    def home(self) -> Led:
        """The partition that keeps `ID`."""
        return self.led[partition_of(ID, PARTITIONS)]
