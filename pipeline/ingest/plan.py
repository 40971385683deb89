"""Plan of an ingest: which files are in which batch, decided once and recorded.

    begun/settings.json         the settings common to all runs
    batches/<number>.json       the batch's files; created before any of them is read
    done/<number>.json          all its rows are acknowledged

1. A batch file is created; nothing is sent yet. After a crash before this, nothing has happened.
2. The batch is written through the sink. After a crash here, the next run finds the batch, reads the same files in
   the same way, and the sink stores the rows that are missing.
3. The done file is created. After a crash before this, the next run does step 2 again, and the sink finds all rows
   stored.

Each file is created only if there is none, so of two concurrent runs one plans, and both write the same batches.

Invariant: a file is in one batch only.
Invariant: batches are numbered without gaps, and run in their order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field

from echoless.pipeline.exactly_once.ledger_files import LedgerFiles
from echoless.pipeline.ingest.settings import IngestError, IngestSettings

_SETTINGS = "settings.json"
_BEGUN = "begun"


@dataclass(slots=True, frozen=True, kw_only=True)
class SourceFile:
    """A file as it was found when it was planned."""

    path: str
    bytes: int
    modified_ms: int


@dataclass(slots=True, frozen=True, kw_only=True)
class FileBatch:
    """Files that are written as one batch of the sink."""

    number: int
    files: tuple[SourceFile, ...]


@dataclass(slots=True)
class IngestPlan:
    """The plan of one checkpoint."""

    _files: LedgerFiles
    batches: list[FileBatch] = field(default_factory=list)
    done: int = 0
    """Number of batches that are done: all below this one."""
    _planned: set[str] = field(default_factory=set)

    def agree(self, given: IngestSettings) -> IngestSettings | None:
        """Returns the settings of the first run; None if there was none. Raises `IngestError`."""
        if _SETTINGS not in self._files.list(_BEGUN):
            return None
        kept = IngestSettings.from_json(self._files.read(f"{_BEGUN}/{_SETTINGS}"))
        kept.check_same(given)
        return kept

    def begin(self, settings: IngestSettings) -> IngestSettings:
        """Stores the settings, or returns those of a run that was faster. Raises `IngestError`."""
        if self._files.create(f"{_BEGUN}/{_SETTINGS}", settings.to_json()):
            return settings
        kept = self.agree(settings)
        assert kept is not None, "another run has just created it"
        return kept

    def refresh(self) -> None:
        """Reads what other runs have planned and done."""
        for number in range(len(self.batches), len(self._files.list("batches"))):
            self._take(_decode(number, self._files.read(_batch_name(number))))
        self.done = max(self.done, len(self._files.list("done")))

    def next_batch(self) -> FileBatch | None:
        return self.batches[self.done] if self.done < len(self.batches) else None

    def finish(self, batch: FileBatch) -> None:
        """Records that all of the batch is acknowledged."""
        self._files.create(f"done/{batch.number:010}.json", b"{}")
        self.done = max(self.done, batch.number + 1)

    def add(self, listing: Sequence[SourceFile], settings: IngestSettings) -> None:
        """Plans the files that are not in any batch yet, oldest first; after another run's batches, if that one was faster."""
        while not self._add(listing, settings):
            known = len(self.batches)
            self.refresh()
            if len(self.batches) == known:
                return  # not to be read yet; what is missing is found at the next search

    def _add(self, listing: Sequence[SourceFile], settings: IngestSettings) -> bool:
        """Returns whether all are planned; not if another run plans too."""
        new = [one for one in listing if one.path not in self._planned]
        new.sort(key=lambda one: (one.modified_ms, one.path))
        bytes_max = 0 if settings.in_order else settings.batch_bytes
        for files in _cut(new, bytes_max):
            batch = FileBatch(number=len(self.batches), files=tuple(files))
            if not self._files.create(_batch_name(batch.number), _encode(batch)):
                return False
            self._take(batch)
        return True

    @property
    def files_waiting(self) -> int:
        return sum(len(batch.files) for batch in self.batches[self.done :])

    @property
    def bytes_waiting(self) -> int:
        """Size of the files that are planned and not done."""
        return sum(one.bytes for batch in self.batches[self.done :] for one in batch.files)

    def _take(self, batch: FileBatch) -> None:
        self.batches.append(batch)
        self._planned |= {one.path for one in batch.files}


def check_in_order(batch: FileBatch, settings: IngestSettings) -> None:
    """Raises `IngestError` if a batch of several files is to be written in order: a run without the settings planned it."""
    if settings.in_order and len(batch.files) > 1 and any(one.bytes for one in batch.files):
        raise IngestError(
            f"batch {batch.number} has {len(batch.files)} files: a run without --in-order planned it, and ended before it wrote "
            "anything. Remove the checkpoint, and begin again"
        )


def check_unchanged(batch: FileBatch, listing: Sequence[SourceFile]) -> None:
    """Raises `IngestError` if a file has changed since it was planned."""
    found = {one.path: one for one in listing}
    for planned in batch.files:
        if planned.path not in found:
            raise IngestError(f"{planned.path} is gone; it was planned for batch {batch.number}")
        if found[planned.path] != planned:
            raise IngestError(
                f"{planned.path} has changed since it was planned for batch {batch.number}; "
                "part of it may be stored"
            )


def _cut(files: Sequence[SourceFile], bytes_max: int) -> Iterator[list[SourceFile]]:
    """Groups neighbouring files up to `bytes_max`; at least one each."""
    batch: list[SourceFile] = []
    size = 0
    for one in files:
        if batch and size + one.bytes > bytes_max:
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += one.bytes
    if batch:
        yield batch


def _batch_name(number: int) -> str:
    return f"batches/{number:010}.json"


def _encode(batch: FileBatch) -> bytes:
    return json.dumps({"version": 1, "files": [asdict(one) for one in batch.files]}).encode()


def _decode(number: int, data: bytes) -> FileBatch:
    files = json.loads(data)["files"]
    return FileBatch(number=number, files=tuple(SourceFile(**one) for one in files))
