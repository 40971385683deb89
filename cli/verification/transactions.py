"""Checks that the `.txnindex` files of a partition name the transactions that its log says were aborted.

Each ABORT marker that ends an open transaction has an entry in the file of its segment. An entry that is missing shows
aborted records to readers of committed ones; one too many hides others. If the log does not begin at offset 0, or lacks
records, a transaction may have begun in what is not there: then only what the log itself shows is asked for.
"""

from __future__ import annotations

from echoless.cli.verification.findings import Findings
from echoless.protocol.control_records import EndMarker
from echoless.protocol.producer_effect import effect_of
from echoless.protocol.record_batch import BatchHeader
from echoless.storage import paths
from echoless.storage.os_file_system import OsFileSystem
from echoless.storage.producers.open_transactions import ClosedTransaction, OpenTransactions
from echoless.storage.transaction_index import TransactionIndex

_FILES = OsFileSystem()


class TransactionCheck:
    """The transactions of one partition."""

    def __init__(self, directory: str, first_offset: int, findings: Findings) -> None:
        self._directory = directory
        self._findings = findings
        self._open = OpenTransactions()
        self._is_complete = first_offset == 0
        """Whether every batch before the next one was seen."""
        self._base_offset = 0
        self._aborted: list[ClosedTransaction] = []
        """The transactions that markers of the segment aborted."""

    def begin_segment(self, base_offset: int) -> None:
        """Takes the batches of the next segment from now on."""
        self._base_offset = base_offset
        self._aborted.clear()

    def see(self, header: BatchHeader, marker: EndMarker | None) -> None:
        """Takes in the next batch."""
        aborted = self._open.note(header, header.base_offset, effect_of(header, marker))
        if aborted is not None:
            self._aborted.append(aborted)

    def skip(self) -> None:
        """Notes that batches are missing, or cannot be read."""
        self._is_complete = False

    def finish_segment(self) -> None:
        """Compares the file of the segment with its markers."""
        path = paths.offset_file(self._directory, self._base_offset, paths.TRANSACTION_INDEX)
        data = _FILES.read_bytes(path) if _FILES.exists(path) else b""
        index = TransactionIndex.decode(self._base_offset, data)
        if index is None:
            self._findings.problem(path, "is not a series of aborted transactions")
            return
        entries = {entry.last_offset: entry for entry in index}
        for aborted in self._aborted:
            self._compare(path, aborted, entries.pop(aborted.last_offset, None))
        if self._is_complete:
            for entry in entries.values():
                self._findings.problem(path, f"{_shown(entry)}: the log aborts no such transaction")

    def _compare(
        self, path: str, aborted: ClosedTransaction, entry: ClosedTransaction | None
    ) -> None:
        if entry is None:
            self._findings.problem(path, f"lacks {_shown(aborted)}")
        elif self._is_complete and entry != aborted:
            self._findings.problem(path, f"{_shown(entry)}: the log says {_shown(aborted)}")
        elif entry.producer_id != aborted.producer_id or entry.first_offset > aborted.first_offset:
            self._findings.problem(path, f"{_shown(entry)}: the log shows {_shown(aborted)}")


def _shown(one: ClosedTransaction) -> str:
    return (
        f"the transaction of producer {one.producer_id} from offset {one.first_offset} to its marker at "
        f"{one.last_offset} (last stable offset {one.last_stable_offset})"
    )
