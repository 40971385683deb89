"""A broker as the admin port sees one: real counters and producer states, no sockets, no disk."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from echoless.broker.admin.view import TlsView
from echoless.broker.authentication.admin_tokens import Tokens
from echoless.broker.authorization.access import Access
from echoless.broker.clock import Clock
from echoless.broker.cluster.own_listeners import AdvertisedChange
from echoless.broker.config.advertised import Advertised
from echoless.broker.config.loading import Config
from echoless.broker.decisions.decisions import Decisions
from echoless.broker.metadata.registration import BrokerInfo
from echoless.broker.metadata.topic import Topic
from echoless.broker.metrics import Metrics
from echoless.broker.network.memory_budget import MemoryBudget
from echoless.broker.network.open_connections import OpenConnections
from echoless.broker.network.unsent_answers import UNSENT_BYTES_MAX, UnsentAnswers
from echoless.broker.replication.peer_connection import PeerError
from echoless.broker.state_topics.shard_state import Unserved
from echoless.coordinators.groups.answers import CommittedOffset, ListedGroup
from echoless.coordinators.transactions.state import TransactionalIdState
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.transaction_records import TransactionValue
from echoless.storage.compaction.compaction import Uncleanable
from echoless.storage.producers.state import ProducerStates
from echoless.storage.scrub import Damage
from echoless.storage.strays import Stray

TOPIC_ID = uuid.UUID(int=7)


@dataclass
class FakeLog:
    log_start_offset: int = 0
    log_end_offset: int = 10
    size_bytes: int = 500
    producers: ProducerStates = field(default_factory=ProducerStates)
    dirty_ratio: float | None = None


@dataclass
class FakeRules:
    min_insync_replicas: int = 1


@dataclass
class FakePartition:
    topic: str
    index: int
    topic_id: uuid.UUID = TOPIC_ID
    leader_id: int = 1
    leader_epoch: int = 3
    isr: tuple[int, ...] = (1,)
    replicas: tuple[int, ...] = (1, 2)
    is_leader: bool = True
    high_watermark: int = 9
    last_stable_offset: int = 6
    rules: FakeRules = field(default_factory=FakeRules)
    log: FakeLog = field(default_factory=FakeLog)


@dataclass
class FakeLogs:
    failure: Exception | None = None
    strays: list[Stray] = field(default_factory=list)
    damaged: dict[str, Damage] = field(default_factory=dict)
    uncleanable: dict[tuple[str, int], Uncleanable] = field(default_factory=dict)


@dataclass
class FakeGroups:
    groups: list[ListedGroup | None] = field(default_factory=list)
    offsets: list[CommittedOffset] = field(default_factory=list)
    ready: ErrorCode = ErrorCode.NONE
    member_count: int = 0
    rebalances_completed: int = 0
    without_coordinator: list[Unserved] = field(default_factory=list)

    def unserved(self) -> list[Unserved]:
        return self.without_coordinator

    def committed(self) -> Iterator[CommittedOffset]:
        return iter(self.offsets)

    def listed(
        self, _states: Collection[str], _types: Collection[str]
    ) -> Iterator[ListedGroup | None]:
        return iter(self.groups)

    def readiness(self) -> ErrorCode:
        return self.ready


@dataclass
class FakeTransactions:
    states: dict[str, TransactionalIdState] = field(default_factory=dict)
    ready: ErrorCode = ErrorCode.NONE
    without_coordinator: list[Unserved] = field(default_factory=list)
    missing_markers: int = 0
    longest_marker_wait_s: float = 0.0

    def unserved(self) -> list[Unserved]:
        return self.without_coordinator

    def all(self) -> Iterator[tuple[str, TransactionValue]]:
        for name, state in self.states.items():
            assert state.value is not None
            yield name, state.value

    def look_at(self, transactional_id: str) -> TransactionalIdState | ErrorCode:
        return self.states.get(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)

    def readiness(self) -> ErrorCode:
        return self.ready


@dataclass
class FakeRegistry:
    topics: dict[str, Topic] = field(default_factory=dict)


class FakeFaults:
    def documents(self) -> list[dict[str, Any]]:
        return []


@dataclass
class FakeMembership:
    brokers: dict[int, BrokerInfo] = field(default_factory=dict)
    controller_id: int = 1
    unready_reason: str | None = None
    unproved_s: float = 0.0
    clocks_ahead_ms: dict[int, int] = field(default_factory=dict)

    async def ask(
        self, broker_id: int, message: Mapping[str, Any], *, timeout_s: float
    ) -> dict[str, Any]:
        raise PeerError(f"there is no broker {broker_id} in this cluster")


@dataclass
class FakeListeners:
    configured: dict[str, Advertised] = field(default_factory=dict)
    advertised: dict[str, Advertised] = field(default_factory=dict)

    async def change(self, name: str, change: AdvertisedChange) -> None:
        raise NotImplementedError


class FakeBroker:
    """Holds `orders-0`, `orders-1` and `bills-0`."""

    def __init__(self) -> None:
        self.config = Config()
        self.access: Access | None = None
        self.admin_tokens: Tokens | None = None
        self.tls: TlsView | None = None
        self.starting: str | None = None
        self.unserved_topics: dict[str, str] = {}
        self.clock = Clock(lambda: 0, lambda: 0, None)
        self.cluster_id = "cluster"
        self.metrics = Metrics()
        self.request_memory = MemoryBudget(self.config.request_size_max)
        self.unsent_answers = UnsentAnswers(UNSENT_BYTES_MAX)
        self.decisions = Decisions(self.metrics)
        self.logs = FakeLogs()
        self.groups = FakeGroups()
        self.transactions = FakeTransactions()
        self.membership = FakeMembership()
        self.listeners = FakeListeners()
        self.registry = FakeRegistry()
        self.faults: Any = FakeFaults()
        self.open_connections = OpenConnections()
        self.started_ms = 1_000
        held = [FakePartition("orders", 1), FakePartition("orders", 0), FakePartition("bills", 0)]
        self.partitions = {(p.topic, p.index): p for p in held}
