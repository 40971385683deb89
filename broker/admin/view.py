"""The admin port's view of a broker: these attributes, read and never written.

Protocols rather than the classes themselves, so that the port can be tested without a broker and its
dependencies are visible at a glance.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from echoless.broker.clock import Clock
from echoless.broker.config.loading import Config
from echoless.broker.decisions.decisions import Decisions
from echoless.broker.faults.faults import FaultInjection
from echoless.broker.metrics import Metrics
from echoless.broker.network.memory_budget import MemoryBudget
from echoless.broker.network.open_connections import OpenConnections
from echoless.broker.network.unsent_answers import UnsentAnswers
from echoless.protocol.errors import ErrorCode
from echoless.storage.compaction.compaction import Uncleanable
from echoless.storage.producers.state import ProducerStates
from echoless.storage.scrub import Damage
from echoless.storage.strays import Stray

if TYPE_CHECKING:
    from echoless.broker.authentication.admin_tokens import Tokens
    from echoless.broker.authorization.access import Access
    from echoless.broker.metadata.registration import BrokerInfo
    from echoless.broker.metadata.topic import Topic
    from echoless.broker.state_topics.held_requests import Answered
    from echoless.broker.state_topics.shard_state import Unserved
    from echoless.coordinators.groups.answers import CommittedOffset, GroupAnswer, ListedGroup
    from echoless.coordinators.groups.requests import GroupRequest
    from echoless.coordinators.transactions.state import TransactionalIdState
    from echoless.protocol.state_records.transaction_records import TransactionValue


class LogView(Protocol):
    """One partition's log."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def producers(self) -> ProducerStates: ...
    @property
    def dirty_ratio(self) -> float | None: ...


class RulesView(Protocol):
    """A topic's requirements on what is produced."""

    @property
    def min_insync_replicas(self) -> int: ...


class PartitionView(Protocol):
    """One partition that this broker holds a replica of."""

    @property
    def topic_id(self) -> uuid.UUID: ...
    @property
    def leader_id(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def isr(self) -> tuple[int, ...]: ...
    @property
    def replicas(self) -> tuple[int, ...]: ...
    @property
    def is_leader(self) -> bool: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def last_stable_offset(self) -> int: ...
    @property
    def rules(self) -> RulesView: ...
    @property
    def log(self) -> LogView: ...


class StorageView(Protocol):
    """The data directory."""

    @property
    def failure(self) -> Exception | None: ...
    @property
    def strays(self) -> Sequence[Stray]: ...
    @property
    def damaged(self) -> Mapping[str, Damage]: ...
    @property
    def uncleanable(self) -> Mapping[tuple[str, int], Uncleanable]: ...


class GroupsView(Protocol):
    """The consumer groups that the broker coordinates."""

    def listed(
        self, states: Collection[str], types: Collection[str]
    ) -> Iterator[ListedGroup | None]: ...
    def committed(self) -> Iterator[CommittedOffset]: ...
    @property
    def member_count(self) -> int: ...
    @property
    def rebalances_completed(self) -> int: ...
    def readiness(self) -> ErrorCode: ...
    def unserved(self) -> Sequence[Unserved]: ...
    def ask(self, request: GroupRequest) -> Answered[GroupAnswer]: ...
    def topic_names(self, topic_ids: Collection[bytes]) -> Mapping[bytes, str]: ...


class TransactionsView(Protocol):
    """The transactional ids that the broker coordinates."""

    def all(self) -> Iterator[tuple[str, TransactionValue]]: ...
    def look_at(self, transactional_id: str) -> TransactionalIdState | ErrorCode: ...
    def readiness(self) -> ErrorCode: ...


class MembershipView(Protocol):
    """The cluster, as this broker knows it."""

    @property
    def unready_reason(self) -> str | None: ...
    @property
    def unproved_s(self) -> float: ...
    @property
    def controller_id(self) -> int: ...
    @property
    def brokers(self) -> Mapping[int, BrokerInfo]: ...
    @property
    def clocks_ahead_ms(self) -> Mapping[int, int]: ...
    async def ask(
        self, broker_id: int, message: Mapping[str, Any], *, timeout_s: float
    ) -> dict[str, Any]: ...


class TlsView(Protocol):
    """The certificates of the listeners."""

    @property
    def expiries_s(self) -> Mapping[str, float]: ...


class TopicsView(Protocol):
    """All topics of the cluster."""

    @property
    def topics(self) -> Mapping[str, Topic]: ...


class BrokerView(Protocol):
    """One broker; while it is `starting`, only its configuration and its counters are available."""

    @property
    def starting(self) -> str | None: ...
    @property
    def config(self) -> Config: ...
    @property
    def access(self) -> Access | None: ...
    @property
    def admin_tokens(self) -> Tokens | None: ...
    @property
    def tls(self) -> TlsView | None: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def cluster_id(self) -> str: ...
    @property
    def metrics(self) -> Metrics: ...
    @property
    def request_memory(self) -> MemoryBudget: ...
    @property
    def unsent_answers(self) -> UnsentAnswers: ...
    @property
    def decisions(self) -> Decisions: ...
    @property
    def faults(self) -> FaultInjection: ...
    @property
    def partitions(self) -> Mapping[tuple[str, int], PartitionView]: ...
    @property
    def unserved_topics(self) -> Mapping[str, str]: ...
    @property
    def logs(self) -> StorageView: ...
    @property
    def groups(self) -> GroupsView: ...
    @property
    def transactions(self) -> TransactionsView: ...
    @property
    def membership(self) -> MembershipView: ...
    @property
    def registry(self) -> TopicsView: ...
    @property
    def open_connections(self) -> OpenConnections: ...
    @property
    def started_ms(self) -> int: ...
