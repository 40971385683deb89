"""The broker's counters as Prometheus' text. Imports prometheus_client: loaded with the HTTP app."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from echoless.broker.admin.cluster_families import cluster_families
from echoless.broker.admin.group_families import group_families
from echoless.broker.admin.machine_families import machine_families
from echoless.broker.admin.partition_series import Key, PartitionSeries, Values, read
from echoless.broker.admin.view import BrokerView
from echoless.broker.faults.action import TYPES
from echoless.broker.handlers.apis import API_BY_KEY
from echoless.broker.metrics import LATENCY_BOUNDS_S, Latencies
from echoless.broker.network.turns import ADMIN_PORT, for_client, work_in_turns

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_PREFIX: Final = "echoless_"

_COUNTERS: Final = {
    "connections_accepted_total": "Connections accepted",
    "connections_refused_total": "Connections turned away by connections_max",
    "connections_idle_closed_total": "Connections closed for their silence",
    "logins_total": "Clients that have logged in",
    "logins_failed_total": "Log-ins that have failed",
    "sessions_expired_total": "Connections closed for want of another log-in",
    "received_bytes_total": "Bytes received from clients and brokers",
    "sent_bytes_total": "Bytes sent to them",
    "requests_failed_total": "Requests that a bug of the broker ended, and their connections",
    "throttled_requests_total": "Requests after which a quota paused the connection",
    "throttled_ms_total": "Milliseconds of these pauses",
    "wall_clock_steps_total": "Steps of the machine's clock",
    "descriptors_lacked_total": "Times that work on files found no file descriptor",
    "batches_appended_total": "Batches written to a log",
    "records_appended_total": "Records written to a log",
    "bytes_appended_total": "Bytes written to a log",
    "fetch_bytes_total": "Bytes of records given to consumers",
    "fetch_rows_read_total": "Partitions that consumers' fetches looked at",
    "fetch_sessions_opened_total": "Fetch sessions opened",
    "fetch_sessions_evicted_total": "Fetch sessions that gave their place to others",
    "duplicates_total": "Repeated batches acknowledged without storing them again",
    "divergent_duplicates_total": "Repeats of stored records in other bytes (times, compression)",
    "reused_sequences_total": "Batches refused: their sequences are stored with other records",
    "recovery_cuts_total": "Logs that the start cut, at a torn write or accepted damage",
    "recovery_cut_bytes_total": "Bytes that went with these cuts",
    "recovery_segments_removed_total": "Segments that went with these cuts",
    "recovery_snapshots_dropped_total": "Damaged producer snapshots that the start dropped",
    "recovery_producers_forgotten_total": "Logs that lost the producers of deleted records",
    "scrubbed_bytes_total": "Bytes of closed segments that were read again to find damage",
    "compaction_passes_total": "Passes over compacted logs",
    "compaction_ms_total": "Milliseconds that these took, their pauses included",
    "compaction_read_bytes_total": "Bytes that they read",
    "compaction_written_bytes_total": "Bytes that they wrote",
    "compaction_removed_bytes_total": "Bytes by which they made logs shorter",
    "compaction_failures_total": "Passes that failed",
    "state_batches_appended_total": "Batches that coordinators wrote to internal topics",
    "state_records_appended_total": "Records in these batches",
    "state_bytes_appended_total": "Bytes of these batches",
    "group_offsets_committed_total": "Offsets that groups have committed",
    "group_offsets_refused_total": "Offsets whose commit was refused",
    "group_loads_total": "Partitions of __consumer_offsets loaded after beginning to lead them",
    "group_load_ms_total": "Milliseconds that these took",
    "group_load_failures_total": "Those that could not be read: their groups are not served",
    "transactional_id_loads_total": "Partitions of __transaction_state loaded after beginning to lead them",
    "transactional_id_load_ms_total": "Milliseconds that these took",
    "transactional_id_load_failures_total": "Those that could not be read: their ids are not served",
    "isr_shrinks_total": "Followers taken out of the in-sync replicas",
    "isr_expands_total": "Followers taken into the in-sync replicas",
    "replicated_bytes_total": "Bytes fetched from leaders and written to a log",
    "log_cuts_total": "Cuts of a log that had parted from its leader's",
    "bootstraps_total": "Replicas started anew behind the leader's producer state",
    "producer_epochs_moved_back_total": "Replicated batches with an older producer epoch",
    "unsafe_tail_leaderships_total": "Partitions led after a power failure by the last replica in sync",
    "leadership_doubts_total": "Times that the coordinator was silent for too long",
}
_LABELLED_COUNTERS: Final = {
    "requests": ("api", "Requests by API"),
    "rejects": ("error", "Batches refused by the de-duplication decision"),
    "faults": ("action", "Times that a fault rule acted"),
    "elections": ("kind", "Leaders elected by this broker as the controller"),
}
_KNOWN_VALUES: Final[Mapping[str, Collection[str]]] = {
    "rejects": ("OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH", "UNKNOWN_PRODUCER_ID"),
    "faults": TYPES,
    "elections": ("clean", "unclean"),
}
"""Values that are there from the start, with 0: Prometheus sees no increase in a series that begins with 1."""


class Exposition:
    """The text for one broker, rendered anew for each scrape.

    Values are read in turns on the event loop and rendered as text in a thread: a broker may have
    thousands of partitions.
    """

    def __init__(self, broker: BrokerView) -> None:
        self._broker = broker
        self._series = PartitionSeries()

    async def text(self) -> bytes:
        families = await machine_families(self._broker)
        rows: list[tuple[Key, Values]] = []
        await work_in_turns(_Families(self._broker).steps(families))
        await work_in_turns(read(self._broker, rows))
        return await for_client(ADMIN_PORT, partial(self._text, families, rows))

    def _text(self, families: Sequence[Metric], rows: Sequence[tuple[Key, Values]]) -> bytes:
        registry = CollectorRegistry()
        registry.register(_Collected(families))
        ProcessCollector(registry=registry)
        return generate_latest(registry) + self._series.text(rows)


def _request_seconds(latencies: Latencies) -> Metric:
    """The histogram of the APIs that were asked for since the start."""
    family = HistogramMetricFamily(
        f"{_PREFIX}request_seconds",
        "Time from taking a request off its connection to writing the answer, by API",
        labels=["api"],
    )
    bounds = [*map(str, LATENCY_BOUNDS_S), "+Inf"]
    # Where rules delay requests, one may wait for its refusal that is of no API.
    for key, row in sorted((key, row) for key, row in latencies.items() if key in API_BY_KEY):
        *counts, sum_s = row
        buckets = list(zip(bounds, accumulate(counts), strict=True))
        family.add_metric([API_BY_KEY[key].name], buckets, sum_s)
    return family


class _Collected(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


class _Families:
    def __init__(self, broker: BrokerView) -> None:
        self._broker = broker

    def steps(self, families: list[Metric]) -> Iterator[None]:
        """Adds all families but those of single partitions; a step is a partition or a group."""
        families.extend(self._of_broker())
        held = list(self._broker.partitions.items())
        yield from cluster_families(self._broker, families, held)
        yield from group_families(self._broker, families)

    def _of_broker(self) -> Iterator[Metric]:
        metrics = self._broker.metrics
        yield GaugeMetricFamily(
            f"{_PREFIX}connections_open", "Connections open", metrics.connections_open
        )
        yield GaugeMetricFamily(
            f"{_PREFIX}fetch_sessions", "Fetch sessions of consumers", metrics.fetch_sessions
        )
        yield GaugeMetricFamily(
            f"{_PREFIX}fetch_session_rows", "Partitions in them", metrics.fetch_session_rows
        )
        yield _request_seconds(metrics.latencies)
        yield GaugeMetricFamily(
            f"{_PREFIX}unsent_bytes",
            "Answers that slow clients have not taken yet",
            self._broker.unsent_answers.total,
        )
        yield GaugeMetricFamily(
            f"{_PREFIX}request_memory_bytes",
            "Bytes that large requests hold",
            self._broker.request_memory.used,
        )
        yield CounterMetricFamily(
            f"{_PREFIX}connections_evicted_total",
            "Connections closed because others needed the memory that they held",
            self._broker.request_memory.evicted_total + self._broker.unsent_answers.evicted_total,
        )
        strays = self._broker.logs.strays
        yield GaugeMetricFamily(
            f"{_PREFIX}strays", "Logs that were set aside, not deleted yet", len(strays)
        )
        yield GaugeMetricFamily(
            f"{_PREFIX}stray_bytes", "Their bytes", sum(stray.size_bytes for stray in strays)
        )
        yield GaugeMetricFamily(
            f"{_PREFIX}damaged_segments",
            "Closed segments in which damage was found",
            len(self._broker.logs.damaged),
        )
        yield GaugeMetricFamily(
            f"{_PREFIX}uncleanable_partitions",
            "Compacted partitions whose last pass failed",
            len(self._broker.logs.uncleanable),
        )
        transactions = self._broker.transactions
        yield GaugeMetricFamily(
            f"{_PREFIX}transaction_markers_missing",
            "Markers of ended transactions that leaders of partitions have not answered for yet",
            transactions.missing_markers,
        )
        yield GaugeMetricFamily(
            f"{_PREFIX}transaction_marker_wait_seconds",
            "Seconds for which the oldest of them has been missing, 0 without one",
            transactions.longest_marker_wait_s,
        )
        for name, help_text in _COUNTERS.items():
            yield CounterMetricFamily(_PREFIX + name, help_text, getattr(metrics, name))
        for name, (label, help_text) in _LABELLED_COUNTERS.items():
            family = CounterMetricFamily(_PREFIX + name, help_text, labels=[label])
            known = dict.fromkeys(_KNOWN_VALUES.get(name, ()), 0)
            for value, count in sorted({**known, **getattr(metrics, name)}.items()):
                family.add_metric([value], count)
            yield family
