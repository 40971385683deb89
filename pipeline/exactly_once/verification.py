"""Comparison of a replay's rows with those that an earlier attempt stored.

The stored rows of a partition are the first that an attempt sent there, so a replay has to begin with the same
ones. Further rows are held back until every stored row has been matched: a replay that turns out to be different
has sent nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.exactly_once.errors import ReplayMismatchError
from echoless.pipeline.exactly_once.fingerprint import Fingerprint
from echoless.pipeline.exactly_once.ledger import TaskLocation
from echoless.pipeline.exactly_once.read_back import StoredRow
from echoless.pipeline.exactly_once.rows import RowSlice, slice_of
from echoless.protocol.records import Record

REMEDY = (
    "The rows of a batch have to come in the same order each time: sort within partitions "
    "(sort_within_partitions=True, or the option sortWithinPartitions), and let nothing in the query "
    "depend on time or randomness"
)
OTHER_JOB = (
    "If this is another job, with other data, sinkName was used before for that one: give it a name of its own, or "
    "another batchId"
)
_ROWS_AT_ONCE = 10_000
"""Rows compared at once, which are objects meanwhile."""


class StoredPrefix:
    """Rows stored already, by target, which a replay has to begin with."""

    def __init__(
        self,
        location: TaskLocation,
        counts: Mapping[TopicPartition, int],
        stored: Mapping[TopicPartition, Iterator[StoredRow]],
    ) -> None:
        """`counts`: number of rows stored in each target; `stored`: those rows."""
        self._location = location
        self._left = {target: count for target, count in counts.items() if count}
        self._stored = stored
        self._given = dict.fromkeys(counts, 0)
        self._next = {target: next(rows, None) for target, rows in stored.items()}
        self._held: list[RowSlice] = []

    def admit(self, slices: list[RowSlice]) -> list[RowSlice]:
        """Takes the next rows; returns those that may be sent now. Raises `ReplayMismatchError`."""
        if not self._left:
            return slices
        for rows in slices:
            rest = self._compare(rows)
            if rest.row_count:
                self._held.append(rest)
        if self._left:
            return []
        admitted, self._held = self._held, []
        return admitted

    def finish(self) -> None:
        """Ends the comparison. Raises `ReplayMismatchError` if more rows are stored."""
        for target, left in self._left.items():
            raise mismatch(
                self._location,
                f"there are {self._given[target]} rows for {target}, and {left} more are stored",
            )

    def _compare(self, rows: RowSlice) -> RowSlice:
        """Compares rows with the stored ones; returns those after them."""
        target = rows.target
        count = min(self._left.get(target, 0), rows.row_count)
        for start in range(0, count, _ROWS_AT_ONCE):
            self._compare_some(rows.rows(start, min(start + _ROWS_AT_ONCE, count)))
        if count:
            self._left[target] -= count
            if not self._left[target]:
                del self._left[target]
        return rows.rows(count, rows.row_count)

    def _compare_some(self, rows: RowSlice) -> None:
        target = rows.target
        for number, record in zip(rows.numbers.tolist(), rows.records(), strict=True):
            stored = self._next[target]
            if stored is not None and stored.row == self._given[target]:
                if not is_same(record, stored):
                    raise mismatch(
                        self._location,
                        f"row {number} is not the one that was stored in {target} "
                        f"at offset {stored.record.offset}",
                    )
                self._next[target] = next(self._stored[target], None)
            self._given[target] += 1


def is_same(record: Record, stored: StoredRow) -> bool:
    """Whether a replay's row is the stored one."""
    found = stored.record
    if stored.has_own_timestamp and record.timestamp != found.timestamp:
        return False
    given = (record.key, record.value, tuple(record.headers))
    return given == (found.key, found.value, tuple(found.headers))


def fingerprint_of(target: TopicPartition, stored: Iterator[StoredRow]) -> tuple[str, bool]:
    """Returns the fingerprint of stored rows, and whether all have the producer's timestamps."""
    found = Fingerprint()
    has_own_timestamps = True
    records: list[Record] = []
    for row in stored:
        has_own_timestamps &= row.has_own_timestamp
        records.append(row.record)
        if len(records) >= _ROWS_AT_ONCE:
            found.add(slice_of(target, records))
            records = []
    found.add(slice_of(target, records))
    return str(found), has_own_timestamps


def mismatch(location: TaskLocation, what: str) -> ReplayMismatchError:
    """Returns the error for a replay that differs, with the remedy."""
    cause = "" if location.query_id else f". {OTHER_JOB}"
    return ReplayMismatchError(
        f"{location}: this is not what an earlier attempt sent: {what}. {REMEDY}{cause}"
    )
