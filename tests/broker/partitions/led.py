"""A partition that this broker leads, over a log in memory."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from echoless.broker.config.loading import Config, LogFlush
from echoless.broker.config.topic import TopicConfig
from echoless.broker.metadata.node_data import LeaderAndIsr
from echoless.broker.partitions.partition import Partition
from echoless.broker.partitions.produce_rules import ProduceRules
from echoless.protocol.dedup import Duplicate, Reject
from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_batch import read_header
from echoless.storage.appended import Appended
from tests.broker.partitions.fake_fencing import FakeFencing
from tests.storage.log_workload import make_batch
from tests.storage.one_log import NOW_MS, OneLog


@dataclass(slots=True)
class Led:
    """A partition that this broker leads, over a log in memory."""

    log_flush: LogFlush
    replicas: tuple[int, ...] = (1,)
    fencing: FakeFencing = field(default_factory=FakeFencing)
    one: OneLog = field(default_factory=OneLog)
    dirty: list[Partition] = field(default_factory=list)
    partition: Partition = field(init=False)

    def __post_init__(self) -> None:
        self.partition = self.open()
        self.lead(1)

    def open(self) -> Partition:
        config = Config(log_flush=self.log_flush)
        return Partition(
            "orders",
            0,
            uuid.UUID(int=7),
            self.one.log,
            config=config,
            rules=ProduceRules.of(TopicConfig.of(config, {})),
            high_watermark=0,
            fencing=self.fencing,
            on_dirty=self.dirty.append,
        )

    def lead(self, epoch: int, isr: tuple[int, ...] = (1,), version: int | None = None) -> None:
        """The state node says that broker 1 leads; `version` is the node's."""
        state = LeaderAndIsr(
            leader=1,
            leader_epoch=epoch,
            isr=isr,
            node_version=epoch if version is None else version,
        )
        self.partition.update(state, self.replicas)

    def append(self, sequence: int) -> Appended | Duplicate | Reject:
        batch = make_batch(
            producer_id=1, epoch=0, sequence=sequence, count=1, size=20, timestamp=NOW_MS
        )
        return self.partition.append(batch, read_header(batch), NOW_MS)

    def refusal(self, sequence: int) -> ErrorCode:
        """The error of a refused batch."""
        result = self.append(sequence)
        assert isinstance(result, Reject)
        return result.code

    def flush(self) -> None:
        self.one.log.flush()
        self.partition.advance_high_watermark()
