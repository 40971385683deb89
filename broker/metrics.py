"""The broker's counters, as plain integers.

A counter costs one addition in the hot path and uses no library; `broker/admin/exposition.py`
renders the counters as Prometheus text on request. Everything runs on the event loop, so there are no
locks. Names follow Prometheus' conventions: `_total` for counters that only grow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from echoless.protocol.record_batch import LOG_OVERHEAD, BatchHeader
from echoless.storage.opening import RecoveryReport

LATENCY_BOUNDS_S: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
"""Upper bounds of the buckets that a request's time is counted in."""


class Latencies(dict[int, list[float]]):
    """The durations of requests, by the key of their API: counts per bucket, one more without a bound, and the sum.

    A list, because two additions are all that a request may cost here.
    """

    def __missing__(self, key: int) -> list[float]:
        self[key] = row = [0.0] * (len(LATENCY_BOUNDS_S) + 2)
        return row


@dataclass(slots=True, repr=False, eq=False)
class Metrics:
    """The counters of one broker since its start."""

    connections_open: int = 0
    connections_accepted_total: int = 0
    connections_refused_total: int = 0
    """Connections refused because `connections_max` were open."""
    connections_idle_closed_total: int = 0
    logins_total: int = 0
    logins_failed_total: int = 0
    sessions_expired_total: int = 0
    """Connections closed because their client should have logged in again."""

    descriptors_lacked_total: int = 0
    """Times that a file operation found no free descriptor."""

    requests: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Requests, by the name of the API."""
    latencies: Latencies = field(default_factory=Latencies)
    """From taking a request off the connection to writing its answer, on Kafka's port."""
    received_bytes_total: int = 0
    """Bytes that connections received, on all ports but the admin port."""
    sent_bytes_total: int = 0
    requests_failed_total: int = 0
    """Requests that ended in an exception no handler expects: each is a bug."""
    fetch_bytes_total: int = 0
    fetch_rows_read_total: int = 0
    """Partitions that fetches of clients looked at."""
    fetch_sessions: int = 0
    fetch_session_rows: int = 0
    """Partitions in all fetch sessions."""
    fetch_sessions_opened_total: int = 0
    fetch_sessions_evicted_total: int = 0
    """Fetch sessions that ended because another needed their place."""
    throttled_requests_total: int = 0
    """Requests after which a connection was not read for a while, because of a quota."""
    throttled_ms_total: int = 0
    """For how long."""

    wall_clock_steps_total: int = 0
    """Steps of the machine's clock that were detected."""

    batches_appended_total: int = 0
    records_appended_total: int = 0
    bytes_appended_total: int = 0
    duplicates_total: int = 0
    """Batches found in the window and acknowledged without being stored again."""
    divergent_duplicates_total: int = 0
    """Duplicates with the records that are stored and other bytes: times, or compression."""
    reused_sequences_total: int = 0
    """Batches refused because their sequences are stored with other records."""
    rejects: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Batches refused by the de-duplication decision, by the name of the error code."""
    faults: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Times that a fault rule acted, by its action."""

    # Found in the logs at startup.
    recovery_cuts_total: int = 0
    """Logs that were truncated: a torn write, or damage that an operator accepted."""
    recovery_cut_bytes_total: int = 0
    recovery_segments_removed_total: int = 0
    recovery_snapshots_dropped_total: int = 0
    """Producer snapshots that were damaged."""
    recovery_producers_forgotten_total: int = 0
    """Logs that no longer know the producers of deleted records."""

    scrubbed_bytes_total: int = 0
    """Bytes read again from closed segments."""

    compaction_passes_total: int = 0
    """Passes over a compacted log."""
    compaction_ms_total: int = 0
    compaction_read_bytes_total: int = 0
    """Bytes read, those of the keys included."""
    compaction_written_bytes_total: int = 0
    compaction_removed_bytes_total: int = 0
    """Bytes by which logs became shorter."""
    compaction_failures_total: int = 0

    # In a cluster.
    isr_shrinks_total: int = 0
    isr_expands_total: int = 0
    replicated_bytes_total: int = 0
    """Bytes fetched from leaders and written to a log."""
    log_cuts_total: int = 0
    """Times that a follower's log diverged from its leader's and was truncated."""
    bootstraps_total: int = 0
    """Replicas that started over from the leader's producer state."""
    producer_epochs_moved_back_total: int = 0
    """Replicated batches with an older epoch than their producer's: a leader accepted a batch it should
    have refused."""
    unsafe_tail_leaderships_total: int = 0
    """Partitions led after a power failure by the only replica that was in sync: with `log_flush=os`
    acknowledged records that were not on disk yet are lost."""
    leadership_doubts_total: int = 0
    """Times that the session with the coordinator could not be confirmed."""
    elections: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Elections this broker held as the controller: `clean`, or `unclean` (records may be lost)."""

    # Internal topics.
    state_batches_appended_total: int = 0
    """Batches that coordinators of this broker appended to internal topics."""
    state_records_appended_total: int = 0
    state_bytes_appended_total: int = 0
    group_offsets_committed_total: int = 0
    """Offsets that OffsetCommit has stored."""
    group_offsets_refused_total: int = 0
    group_loads_total: int = 0
    """Partitions of `__consumer_offsets` that were loaded since this broker began to lead them."""
    group_load_ms_total: int = 0
    group_load_failures_total: int = 0
    """Records that could not be read: their groups are not served."""
    transactional_id_loads_total: int = 0
    """Partitions of `__transaction_state` that were loaded since this broker began to lead them."""
    transactional_id_load_ms_total: int = 0
    transactional_id_load_failures_total: int = 0
    """Records that could not be read: their transactional ids are not served."""

    def note_commit(self, codes: Iterable[int]) -> None:
        """Counts the partitions of an OffsetCommit, by the codes of its answer."""
        for code in codes:
            if code:
                self.group_offsets_refused_total += 1
            else:
                self.group_offsets_committed_total += 1

    def recovered(self, reports: Iterable[RecoveryReport]) -> None:
        """Counts what was found while opening the logs."""
        for report in reports:
            self.recovery_cuts_total += bool(report.cut_reason)
            self.recovery_cut_bytes_total += report.bytes_cut
            self.recovery_segments_removed_total += report.segments_removed
            self.recovery_snapshots_dropped_total += report.snapshots_damaged
            self.recovery_producers_forgotten_total += report.producers_forgotten

    def state_appended(self, header: BatchHeader) -> None:
        """Counts one batch that a coordinator appended."""
        self.state_batches_appended_total += 1
        self.state_records_appended_total += header.record_count
        self.state_bytes_appended_total += header.batch_length + LOG_OVERHEAD

    def appended(self, header: BatchHeader) -> None:
        """Counts one appended batch."""
        self.batches_appended_total += 1
        self.records_appended_total += header.record_count
        self.bytes_appended_total += header.batch_length + LOG_OVERHEAD
