"""Writes the rows of one Spark partition of one batch: the work of a task, without Spark.

0. The task's lane of the ledger is found by its first rows (`task_identity.py`). Without rows nothing is done.
1. The lane is read. If an earlier attempt has begun the batch, its sequence ranges are used again, the
   leaders say how many of its rows are stored, and those are read back and compared with the rows at hand.
   After a crash before this, nothing has happened.
2. Before the first record is sent to a partition, its sequence range is in the ledger (`numbering.py`). After
   a crash here, the next attempt sends the same records under the same sequences.
3. All records are sent and acknowledged. If another attempt may have been sending too, everything is read back
   once more. After a crash here, the next attempt finds all rows stored.
4. The attempt returns its end: the state from which the next batch continues. Spark's driver records it once
   it knows that the attempt counts (`ends.py`). After a crash here, the next attempt compares fingerprints and
   sends nothing.

An attempt cannot take the last step itself, because it does not know whether it has seen all rows. If the task
fails before the sink, or is killed, Spark closes the stream of rows, and an Arrow stream that is closed between
two of its batches looks complete. The attempt has then stored the first rows, as if it had died there.

Not a byte is sent before the rows are known to begin with those that were sent before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from echoless.client.batch import now_ms
from echoless.client.sequencer import Identity
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.exactly_once.batch_metrics import TaskCosts
from echoless.pipeline.exactly_once.batch_tasks import BatchTasks, SlotName, TaskSlot
from echoless.pipeline.exactly_once.broker_session import session_of
from echoless.pipeline.exactly_once.entries import End, PartitionRows, SequenceRange
from echoless.pipeline.exactly_once.errors import SinkError
from echoless.pipeline.exactly_once.fingerprint import Fingerprint, is_older
from echoless.pipeline.exactly_once.leader_queries import LeaderQueries
from echoless.pipeline.exactly_once.ledger import Ledger, TaskLocation, use_of_lane
from echoless.pipeline.exactly_once.ledger_age import check_age
from echoless.pipeline.exactly_once.ledger_files import LedgerFiles
from echoless.pipeline.exactly_once.ledger_identity import open_files
from echoless.pipeline.exactly_once.numbering import BatchState, Coverage, Numbering
from echoless.pipeline.exactly_once.options import SinkOptions
from echoless.pipeline.exactly_once.read_back import ReadBack
from echoless.pipeline.exactly_once.rows import Router, RowSlice, chunks
from echoless.pipeline.exactly_once.slice_sender import SliceSender, without_asking
from echoless.pipeline.exactly_once.task_head import head_digest
from echoless.pipeline.exactly_once.task_identity import TaskIdentity, TaskKey
from echoless.pipeline.exactly_once.verification import StoredPrefix, fingerprint_of, mismatch
from echoless.pipeline.frozen_imports import freeze_imports


class Written(NamedTuple):
    """The rows that one task of the sink has stored."""

    spark_partition: int
    rows: int
    """Number of rows of the Spark partition, all of which are stored."""
    rows_found: int
    """Number of those that an earlier attempt had stored."""


class Attempted(NamedTuple):
    """Outcome of an attempt that has stored all rows it was given, or none (`is_deferred`)."""

    written: Written
    end: End | None
    """The end to record if the attempt counts. None: it is recorded already, or there were no rows."""
    location: TaskLocation
    """Location of the task, with its lane."""
    slot: SlotName | None
    """Name of the slot; None: the task has no rows."""
    is_deferred: bool = False
    """Whether nothing was stored, because tasks that an earlier run had begun were not found again."""
    costs: TaskCosts = TaskCosts()
    begins: int = 0
    """Number of the ledger's `begin`s that the end follows."""


def write_partition(
    options: SinkOptions,
    location: TaskLocation,
    batches: Iterable[Any],
    clock_ms: Callable[[], int] = now_ms,
) -> Attempted:
    """Writes the rows of Arrow batches. Raises `SinkError`, `DeliveryError`."""
    iterator = (batch for batch in batches if batch.num_rows)
    first = next(iterator, None)
    if first is None:
        return Attempted(Written(location.spark_partition, 0, 0), None, location, None)
    files = open_files(options)
    digest = head_digest(first)
    slot = find_slot(files, location, digest)
    if slot is None:
        rows = first.num_rows + sum(batch.num_rows for batch in iterator)
        written = Written(location.spark_partition, rows, 0)
        name = SlotName(digest, 0)
        return Attempted(written, None, location, name, True, TaskCosts(files.requests))
    location = location._replace(lane=slot.lane, origin=slot.origin)
    ledger = Ledger(files, location)
    run = (*location[:3], location.run) if location.run else ()
    with session_of(options.bootstrap_servers, options.settings) as session, ExitStack() as stack:
        leaders = LeaderQueries(session, options.settings, run)
        attempt = _Attempt(options, ledger, leaders, stack, clock_ms())
        written, end = attempt.run(chain([first], iterator))
    freeze_imports("write_partition")
    costs = TaskCosts(files.requests, leaders.waits.seconds)
    return Attempted(written, end, location, slot.name, costs=costs, begins=len(ledger.begins))


def find_slot(files: LedgerFiles, location: TaskLocation, digest: str) -> TaskSlot | None:
    """Returns the slot of a task; None: it is deferred. Raises `SinkError`."""
    tasks = BatchTasks(files, location.sink, location.query_id, location.batch_id)
    task = TaskKey(location.run, location.spark_partition, digest)
    return TaskIdentity(tasks, task, partial(use_of_lane, files, location)).find()


class _Attempt:
    def __init__(
        self,
        options: SinkOptions,
        ledger: Ledger,
        leaders: LeaderQueries,
        stack: ExitStack,
        start_ms: int,
    ) -> None:
        self._options = options
        self._ledger = ledger
        self._location = ledger.location
        self._leaders = leaders
        self._stack = stack
        check = partial(check_age, ledger.files, ledger.location, leaders)
        self._numbering = Numbering(ledger, leaders, self._count_stored, check, now_ms=start_ms)
        self._fingerprints: dict[TopicPartition, Fingerprint] = {}
        self._read_backs: dict[TopicPartition, ReadBack] = {}
        self._prefix: StoredPrefix | None = None
        self._sender: SliceSender | None = None
        self._rows_found = 0
        self._rows = 0

    def run(self, batches: Iterable[Any]) -> tuple[Written, End | None]:
        self._numbering.resume()
        for chunk in chunks(batches):
            slices = self._route(chunk)
            for rows in slices:
                self._fingerprint(rows.target).add(rows)
            if self._numbering.state is not BatchState.ENDED:
                self._send(self._stored_prefix().admit(slices))
        if self._numbering.state is not BatchState.ENDED:
            self._stored_prefix().finish()
        return self._finish()

    def _fingerprint(self, target: TopicPartition) -> Fingerprint:
        found = self._fingerprints.get(target)
        if found is None:
            ended = () if self._ledger.end is None else self._ledger.end.targets
            older = any(is_older(one.fingerprint) for one in ended if one.target == target)
            found = self._fingerprints[target] = Fingerprint(is_older=older)
        return found

    def _route(self, chunk: Any) -> list[RowSlice]:
        """Divides the rows among partitions, and ensures that the ledger has sequences for them."""
        while True:
            router = Router(
                topic=self._options.topic,
                timestamp_ms=self._numbering.timestamp_ms,
                partition_count=self._numbering.partition_count,
                partition_count_now=self._leaders.partition_count,
                first_partition=self._location.batch_id + self._location.lane_number,
                first_row=self._rows,
            )
            slices = router.route(chunk)
            if self._numbering.cover(rows.target for rows in slices) is Coverage.COMPLETE:
                self._rows += chunk.num_rows
                return slices

    def _stored_prefix(self) -> StoredPrefix:
        """Returns the rows stored already, which are settled once the identity is."""
        if self._prefix is None:
            found = self._numbering.stored_at_start()
            stored = {target: self._read_back(target).rows(found[target]) for target in found}
            counts = {target: sum(one.rows for one in found[target]) for target in found}
            self._prefix = StoredPrefix(self._location, counts, stored)
            self._rows_found = sum(counts.values())
        return self._prefix

    def _send(self, slices: list[RowSlice]) -> None:
        if self._sender is None and slices:
            settings = self._options.settings
            if self._numbering.is_first:
                settings = without_asking(settings)
            sender = SliceSender(self._leaders, settings, self._numbering.producer_state())
            self._sender = self._stack.enter_context(sender)
        for rows in slices:
            assert self._sender is not None
            self._sender.send(rows)

    # --- the end -----------------------------------------------------------------------------------

    def _finish(self) -> tuple[Written, End | None]:
        if self._sender is not None:
            self._sender.finish()
            self._verify(self._sender.doubtful)
        else:
            self._rows_found = self._rows
        written = Written(self._location.spark_partition, self._rows, self._rows_found)
        if self._ledger.end is not None:
            self._compare(self._ledger.end)
            return written, None
        self._check_handovers()
        return written, self._end()

    def _end(self) -> End:
        counts = {target: found.rows for target, found in self._fingerprints.items()}
        return End(
            query_id=self._location.query_id,
            cluster_id=self._leaders.cluster_id(),
            rows=self._rows,
            targets=tuple(
                PartitionRows(topic=t.topic, partition=t.partition, rows=f.rows, fingerprint=str(f))
                for t, f in sorted(self._fingerprints.items())
            ),
            state=self._numbering.producer_state_after(counts),
        )

    def _compare(self, end: End) -> None:
        """Compares the rows with the recorded end. Raises `ReplayMismatchError`."""
        if end.rows != self._rows:
            raise mismatch(
                self._location, f"there are {self._rows} rows, and {end.rows} are stored"
            )
        for one in end.targets:
            own = self._fingerprints.get(one.target)
            if own is None or own.rows != one.rows:
                rows = own.rows if own is not None else 0
                what = f"{rows} rows go to {one.target}, and {one.rows} are stored there"
                raise mismatch(self._location, what)
            if not own.matches(one.fingerprint):
                raise mismatch(self._location, f"the rows of {one.target} differ from those stored")

    def _verify(self, targets: Iterable[TopicPartition]) -> None:
        """Reads back what another attempt may have sent at the same time.

        Raises `ReplayMismatchError`.
        """
        counts = {target: self._fingerprints[target].rows for target in targets}
        stored_ranges = self._numbering.stored_ranges(counts)
        for target in sorted(counts):
            stored, own = fingerprint_of(
                target, self._read_back(target).rows(stored_ranges[target])
            )
            if not self._fingerprints[target].matches(stored, compares_timestamps=own):
                what = f"another attempt at the same time has sent other rows to {target}"
                raise mismatch(self._location, what)

    def _check_handovers(self) -> None:
        """Raises `SinkError` if an earlier attempt stored rows after this one had counted them."""
        counts = {target: found.rows for target, found in self._fingerprints.items()}
        for target, stored_ranges in sorted(self._numbering.handovers(counts).items()):
            if self._read_back(target).has_surplus(stored_ranges):
                raise SinkError(
                    f"{self._location}: rows of {target} are stored twice: a broker had forgotten the "
                    "producer, the batch continued under the next epoch, and an earlier attempt was still "
                    "alive. Check what is stored there, and continue under another name"
                )

    # --- reading back ------------------------------------------------------------------------------

    def _read_back(self, target: TopicPartition) -> ReadBack:
        found = self._read_backs.get(target)
        if found is None:
            timeout_s = self._options.settings.delivery_timeout_s
            found = ReadBack(self._leaders, target, timeout_s=timeout_s)
            self._read_backs[target] = found
        return found

    def _count_stored(self, sequence_range: SequenceRange, identity: Identity, end: int) -> int:
        return self._read_back(sequence_range.target).count(sequence_range, identity, end)
