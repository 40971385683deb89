"""The ledger's record of a whole batch: the number of its Spark partitions.

    batches/batch-00000000000000000012.json     {"version": 1, "query_id": ..., "spark_partitions": 8}

A batch that is rerun with another number is refused. Its rows would move between Spark partitions, and one that
has stored nothing yet would see no difference and store some of them again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

from echoless.pipeline.exactly_once.errors import NEW_CHECKPOINT, LedgerError
from echoless.pipeline.exactly_once.ledger import BATCHES_KEPT
from echoless.pipeline.exactly_once.ledger_files import LedgerFiles
from echoless.pipeline.exactly_once.options import NEW_LEDGER

VERSION: Final = 1
_IN_USE: Final = "in-use.json"
"""Created by earlier versions for batches without tasks, which have no record there."""
_NAME: Final = re.compile(r"batch-(\d{20})\.json")


class BatchRecord:
    """Record of one batch."""

    def __init__(self, files: LedgerFiles, sink: str, query_id: str, batch_id: int) -> None:
        self._files = files
        self._what = f"sink {sink}, batch {batch_id}"
        self._directory = f"{sink}/batches"
        self._query_id = query_id
        self._batch_id = batch_id
        self._name = self._path(batch_id)

    def agree(self, spark_partitions: int, *, is_late: bool = False) -> None:
        """Records the number, or compares it with the recorded one. Raises `LedgerError`.

        `is_late`: whether the rows have been written already.
        """
        self._check_order()
        if self._create(spark_partitions):
            return
        found = self._read(self._name)
        if is_late and not found["spark_partitions"]:
            return
        if found["query_id"] != self._query_id:
            raise LedgerError(
                f"{self._what}: the ledger belongs to query {found['query_id'] or '(none)'}, this is "
                f"{self._query_id or '(none)'}. {NEW_CHECKPOINT}"
            )
        if found["spark_partitions"] != spark_partitions:
            happened = "may have been" if is_late else "would be"
            raise LedgerError(
                f"{self._what} has {spark_partitions} Spark partitions now and had "
                f"{found['spark_partitions']} before: rows {happened} stored twice. Rerun the batch with "
                "the number it had first, and fix that number from now on (repartition, or "
                "the source's settings)"
            )

    def note(self) -> None:
        """Records a batch without tasks, of which Spark does not say the query; it may have some when it is run again."""
        self._create(0)

    def check_not_lost(self, *, has_every_batch: bool) -> None:
        """Refuses a stream's batch above 0 if the ledger has no batch, or not the one before. Raises `LedgerError`.

        `has_every_batch`: whether the sink is given each batch of the query, so that none may be missing.
        """
        if not self._query_id or not self._batch_id:
            return
        names = self._files.list(self._directory)
        if not names:
            raise LedgerError(
                f"{self._what}: the ledger is empty, and the stream is at batch {self._batch_id}: the ledger was lost or "
                "moved, and what this batch stored before would be stored twice. Bring it back; or, if this sink has "
                f"not written this batch yet, set {NEW_LEDGER}=true"
            )
        last = max(_numbers(names), default=-1)
        if not has_every_batch or _IN_USE in names or last >= self._batch_id - 1:
            return
        if self._files.find(self._path(self._batch_id - 1)) is None:  # a listing may be stale
            raise LedgerError(
                f"{self._what}: the last batch in the ledger is {last}: the ledger is an old copy, and what was stored "
                "since would be stored twice. Put the newest back; or, if another sink has written the batches since, "
                f"set {NEW_LEDGER}=true"
            )

    def most_tasks_before(self) -> int:
        """Returns the most Spark partitions of a batch before this one whose record is kept; 0: there is none."""
        earlier = [one for one in self._batch_ids() if one < self._batch_id]
        return max((self._read(self._path(one))["spark_partitions"] for one in earlier), default=0)

    def _create(self, spark_partitions: int) -> bool:
        """Creates the record, unless there is one; returns whether it did."""
        fields = {
            "version": VERSION,
            "query_id": self._query_id,
            "spark_partitions": spark_partitions,
        }
        if not self._files.create(self._name, json.dumps(fields).encode()):
            return False
        self._clean()
        return True

    def _read(self, name: str) -> dict[str, Any]:
        try:
            fields = json.loads(self._files.read(name))
            if fields["version"] != VERSION:
                raise LedgerError(f"{name}: version {fields['version']}, not {VERSION}")
            return {key: fields[key] for key in ("query_id", "spark_partitions")}
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerError(f"{name}: not a batch record: {error!r}") from error

    def _check_order(self) -> None:
        """Refuses a batch out of order. Tasks do so too, but one without entries cannot know."""
        batch_ids = self._batch_ids()
        last = max(batch_ids, default=-1)
        if last > self._batch_id and self._batch_id not in batch_ids:
            raise LedgerError(
                f"{self._what}: the ledger is at batch {last} already. {NEW_CHECKPOINT}"
            )

    def _clean(self) -> None:
        for batch_id in self._batch_ids():
            if batch_id <= self._batch_id - BATCHES_KEPT:
                self._files.delete(self._path(batch_id))

    def _batch_ids(self) -> list[int]:
        return _numbers(self._files.list(self._directory))

    def _path(self, batch_id: int) -> str:
        return f"{self._directory}/batch-{batch_id:020}.json"


def _numbers(names: Iterable[str]) -> list[int]:
    """Returns the numbers of the batches that have a record."""
    found = map(_NAME.fullmatch, names)
    return [int(one[1]) for one in found if one is not None]
