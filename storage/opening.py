"""The input and the result of opening a log.

`LogOpening` goes in, `Recovered` comes out of `recovery.py`. Called by `log.py`, `log_directory.py` and
the modules that take part in recovery.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from echoless.storage.file_system import FileSystem
from echoless.storage.kept_offsets import KeptOffsets
from echoless.storage.leader_epochs import LeaderEpochs
from echoless.storage.log_config import LogConfig
from echoless.storage.pending_flush import Snapshot
from echoless.storage.producers.state import ProducerStates
from echoless.storage.segments import Segments


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class LogOpening:
    """One partition directory, and what is known of its log from elsewhere."""

    directory: str
    config: LogConfig
    fs: FileSystem
    now_ms: int
    recovery_point: int = 0
    log_start_offset: int = 0
    cleaned_to: int = 0
    """The offset from which compaction goes on."""
    kept: KeptOffsets = field(default_factory=KeptOffsets)
    """The log's offsets on disk, outside its directory."""
    clean: bool = False
    """Whether the last shutdown was clean."""
    is_new: bool = False
    """No log has ever been in the directory."""
    is_start_known: bool = False
    """The log start is from a checkpoint, so no segment above it may be missing."""
    is_committed: bool = False
    """Every acknowledged batch was synced before its acknowledgement."""
    is_tail_safe: bool = False
    """The power has not failed since everything here was written."""
    is_loss_accepted: bool = False
    """An operator has accepted the loss of what is damaged (`accepted_loss.py`)."""
    sync_later: Callable[[Callable[[], None]], None] | None = None
    """Takes the syncs that have to be done before anything is appended; None: they are done at once."""
    make_name_durable: Callable[[], None] | None = None
    """Set if a power failure would take the directory itself; the first flush calls it, in its thread."""


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class RecoveryReport:
    """The findings and actions of opening a log. Every loss has also been logged."""

    batches_scanned: int = 0
    bytes_scanned: int = 0
    bytes_cut: int = 0
    """Bytes of torn or unreachable batches above the recovery point that were removed."""
    cut_reason: str = ""
    """File, position and damage; empty if nothing was cut."""
    segments_removed: int = 0
    snapshots_damaged: int = 0
    producers_forgotten: bool = False
    """Whether the producers of deleted records are lost."""
    snapshot_offset: int | None = None
    """Offset of the snapshot that the producer state was built on."""
    batches_replayed: int = 0
    """Batches whose headers were read for the producer state alone."""

    @property
    def is_notable(self) -> bool:
        return bool(
            self.bytes_cut
            or self.segments_removed
            or self.snapshots_damaged
            or self.producers_forgotten
        )


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class Recovered:
    """The parts of a log that is ready to be served."""

    segments: Segments
    producers: ProducerStates
    leader_epochs: LeaderEpochs
    log_start_offset: int
    recovery_point: int
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    """Producer snapshots, by offset, that may not be on disk; the next flush writes them."""
    report: RecoveryReport = field(default_factory=RecoveryReport)
