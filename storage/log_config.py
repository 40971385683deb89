"""The part of a topic's configuration that its logs need. Sizes in bytes, times in ms."""

from __future__ import annotations

from dataclasses import dataclass, field

from echoless.protocol.dedup import WINDOW_DEFAULT, UnknownProducerId
from echoless.protocol.leases import lease_retention_ms
from echoless.storage.compaction.plan import CompactionRules

_WEEK_MS = 7 * 24 * 60 * 60 * 1000
_DAY_MS = 24 * 60 * 60 * 1000


@dataclass(slots=True, kw_only=True)
class LogConfig:
    """Settings of one log; replaced as a whole by `Log.reconfigure`."""

    segment_bytes: int = 128 * 1024 * 1024
    """A segment is closed before it grows beyond this; at most 2**31 - 1 (`.index` positions)."""
    roll_ms: int | None = _WEEK_MS
    """A segment is closed when its batches span this much time. None: never because of its age."""
    retention_ms: int = _WEEK_MS
    """Segments whose newest record is older are deleted. -1: never."""
    retention_bytes: int = -1
    """The oldest segments are deleted while the rest still holds this much. -1: no limit."""
    index_interval_bytes: int = 4096
    """About this many bytes of log to one index entry."""
    log_append_time: bool = False
    """`message.timestamp.type=LogAppendTime`: the broker's clock replaces the producer's."""
    window: int = WINDOW_DEFAULT
    """Batches remembered per producer id."""
    producer_id_expiration_ms: int = _DAY_MS
    """A producer id that has appended nothing for this long is forgotten."""
    leased_producer_expiration_ms: int = lease_retention_ms(_DAY_MS)
    """The same for a leased producer id, if that is longer (`protocol/leases.py`)."""
    producers_max: int = 0
    """Producer ids remembered; the least recently used goes first. 0: no limit.

    Leased ids are not counted.
    """
    producers_fair: bool = False
    """The owner with most producer ids loses one first, not the one idle for longest (`protocol/bound_ids.py`)."""
    forgotten_producers_max: int = 10_000
    """Forgotten producer ids of which the newest batch is kept (`producers/forgotten.py`)."""
    is_compacted: bool = False
    """`cleanup.policy` names `compact`: of each key the newest record is kept."""
    compaction_rules: CompactionRules = field(default_factory=CompactionRules)
    """Rules by which a compacted log is cleaned."""
    unknown_producer_id: UnknownProducerId = UnknownProducerId.REJECT
    older_ids_end: int = 0
    """Producer ids below it may go on here after a deleted topic of the same name (`protocol/dedup.py`)."""

    @property
    def forgotten_max(self) -> int:
        """Forgotten producers to keep: none where anything is accepted of them, as Kafka does."""
        accepts = self.unknown_producer_id is UnknownProducerId.ACCEPT
        return 0 if accepts else self.forgotten_producers_max
