"""The parts of a broker that serve requests, and nothing else of it.

The last step of `Broker.start` makes it, so a handler never sees a part that is missing; the handlers of
both ports take it as `services`. Code that handlers share takes the part that it needs instead. It has no
methods, and a part that is replaced while the broker runs has no place in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from echoless.broker.clock import Clock
from echoless.broker.cluster.membership import ClusterMembership
from echoless.broker.cluster.metadata_rows import MetadataRows
from echoless.broker.cluster.topics import Topics
from echoless.broker.config.loading import Config
from echoless.broker.groups.service import GroupService
from echoless.broker.metadata.broker_settings import BrokerSettings
from echoless.broker.metadata.features import Features
from echoless.broker.metadata.producer_ids import ProducerIds
from echoless.broker.metadata.topic_registry import TopicRegistry
from echoless.broker.metrics import Metrics
from echoless.broker.partitions.partition_registry import PartitionRegistry
from echoless.broker.records.fetch_parts import FetchParts
from echoless.broker.records.in_flight import ProduceParts
from echoless.broker.records.markers import MarkerWriter
from echoless.broker.records.record_thread import RecordThread
from echoless.broker.transactions.service import TransactionService
from echoless.broker.tree.node_tree import NodeTree
from echoless.storage.file_system import StorageError

if TYPE_CHECKING:
    from echoless.broker.authorization.access import Access
    from echoless.broker.quotas.quotas import Quotas
    from echoless.protocol.native.admin_read import AdminRead


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class Services:
    """The parts of one broker that has started."""

    config: Config
    settings: BrokerSettings
    """Settings that were changed while this broker ran; `config` has the values in force."""
    cluster_id: str
    cluster: ClusterMembership
    registry: TopicRegistry
    """All topics of the cluster, by name and by id."""
    topics: Topics
    """Creates, extends and deletes them."""
    partitions: PartitionRegistry
    """The partitions of which this broker holds a replica."""
    produce: ProduceParts
    markers: MarkerWriter
    """Ends transactions on the partitions that this broker leads."""
    fetch: FetchParts
    producer_ids: ProducerIds
    groups: GroupService
    """The consumer groups that this broker coordinates."""
    transactions: TransactionService
    """The transactional ids that this broker coordinates."""
    features: Features
    """The level of what the cluster may store."""
    metadata_rows: MetadataRows
    metrics: Metrics
    clock: Clock
    record_thread: RecordThread
    """Opens records when there are too many to open on the event loop."""
    tree: NodeTree
    """For requests to the controller."""
    quotas: Quotas
    access: Access | None = None
    """Decides what each client may do; None: everything."""
    fail_storage: Callable[[StorageError], None]
    """To be called with every `StorageError`: the log directory goes offline."""
    read_admin: Callable[[AdminRead], Awaitable[tuple[int, str]]]
    """Reads a document of the admin port for another broker: a status, and JSON."""
    stopping: asyncio.Event
    """Set when the broker begins to stop: requests that wait for data are answered with what there is."""
