"""The ledger: under which identity and sequences the rows of one task of one batch are sent.

A small log of entries, each a file that is created once (`docs/formats/ledger.md`):

    partition-00003/batch-00000000000000000012.0.json     begin: the first sequence ranges
    partition-00003/batch-00000000000000000012.1.json     begin: more partitions, or another identity
    partition-00003/batch-00000000000000000012.2.json     end: all records are acknowledged

An attempt that finds an entry where it meant to create its own adopts it. So all attempts at a batch send the
same records under the same sequences, however many run, one after the other or at once. `numbering.py` has the
states that a batch can be in.

Invariant: a record is sent only after the entry with its topic and partition was created.
Invariant: nothing follows an end, and a batch is begun only where the one before it has ended.
"""

from __future__ import annotations

import enum
import re
from typing import Final, NamedTuple

from echoless.pipeline.exactly_once.entries import (
    Begin,
    End,
    Entry,
    EntryError,
    TaskOrigin,
    decode_entry,
    encode_entry,
)
from echoless.pipeline.exactly_once.errors import NEW_CHECKPOINT, LedgerError
from echoless.pipeline.exactly_once.ledger_files import LedgerFiles

BATCHES_KEPT: Final = 10
"""Number of ended batches whose entries are kept: a replay needs the last one, an operator some more."""
BATCH_ID_MAX: Final = 2**63 - 1
_NAME: Final = re.compile(r"batch-(\d{20})\.(\d+)\.json")


class Recorded(enum.Enum):
    """Outcome of adding an entry."""

    BY_US = enum.auto()
    """The entry was created."""
    BY_ANOTHER = enum.auto()
    """Another attempt was faster; its entries have been read instead."""


class TaskLocation(NamedTuple):
    """Location of a task's entries: one Spark partition of one batch of one sink."""

    sink: str
    query_id: str
    """Spark's id of the query; empty in a job that is not a stream."""
    batch_id: int
    spark_partition: int
    """Number of the task in this run of the batch."""
    run: str = ""
    """Id of this execution of the batch's tasks, in which their numbers are fixed."""
    lane: int | None = None
    """Number of the ledger's directory; None: the Spark partition's."""
    origin: TaskOrigin | None = None
    """The task that the lane was first used for in this batch; None: this one."""

    def __str__(self) -> str:
        return f"sink {self.sink}, batch {self.batch_id}, Spark partition {self.spark_partition}"

    @property
    def directory(self) -> str:
        return f"{self.sink}/partition-{self.lane_number:05}"

    @property
    def lane_number(self) -> int:
        return self.spark_partition if self.lane is None else self.lane

    @property
    def task_origin(self) -> TaskOrigin:
        return self.origin or TaskOrigin(self.run, self.spark_partition)


class LaneUse(NamedTuple):
    """Use of a lane in a batch."""

    has_begun: bool
    """Whether the ledger has a `begin` there."""
    origin: TaskOrigin | None
    """The task that it was first used for; None: that is not recorded (entries of version 0.2)."""


class _Key(NamedTuple):
    batch_id: int
    number: int

    @property
    def name(self) -> str:
        return f"batch-{self.batch_id:020}.{self.number}.json"


class Ledger:
    """The entries of one location, as far as this attempt has read them."""

    def __init__(self, files: LedgerFiles, location: TaskLocation) -> None:
        """Reads the entries. Raises `LedgerError`."""
        if not 0 <= location.batch_id <= BATCH_ID_MAX:
            raise LedgerError(f"{location}: batches have numbers from 0 to {BATCH_ID_MAX}")
        self.files = files
        """The ledger's files."""
        self.location = location
        self._keys = self._list()
        self.previous = self._read_previous()
        """End of the batch before this one; None if there was none."""
        self.begins: list[Begin] = []
        self.end: End | None = None
        self._check_order()
        self._take_known()

    def refresh(self) -> None:
        """Reads the entries that other attempts have added."""
        self._keys = self._list()
        self._take_known()

    def add(self, entry: Entry) -> Recorded:
        """Creates the entry, unless another attempt was faster. Raises `LedgerError`."""
        key = self._next_key()
        if not self.files.create(self._path(key), encode_entry(entry)):
            # Read by name: a listing may be stale on a mounted file system.
            self._take(self._read(key))
            self.refresh()
            return Recorded.BY_ANOTHER
        self._keys = self._list()
        _withdraw_if_late(self.files, self.location, key, self._keys)
        self._take(entry)
        return Recorded.BY_US

    def clean(self, batches_kept: int = BATCHES_KEPT) -> None:
        """Deletes the entries of old batches; only after an end, which the next batch needs."""
        assert self.end is not None
        _clean(self.files, self.location, self._keys, batches_kept)

    def _list(self) -> list[_Key]:
        return _keys(self.files, self.location)

    def _read_previous(self) -> End | None:
        """Returns the previous batch's end. Raises `LedgerError` if that batch has not ended."""
        key = max(
            (key for key in self._keys if key.batch_id < self.location.batch_id), default=None
        )
        if key is None:
            return None
        entry = self._read(key)
        if not isinstance(entry, End):
            raise LedgerError(
                f"{self.location}: batch {key.batch_id} has begun and not ended. It ran with more Spark "
                "partitions than later; a batch has to be replayed with the partitions it began with"
            )
        return entry

    def _check_order(self) -> None:
        """Refuses a late attempt at a batch that has ended and been cleaned up."""
        batch_id = self.location.batch_id
        is_known = _Key(batch_id, 0) in self._keys
        if self._keys and self._keys[-1].batch_id > batch_id and not is_known:
            raise _left_behind(self.location, self._keys)
        if self.previous is not None:
            self._check_query(self.previous)

    def _take_known(self) -> None:
        while self.end is None and (key := self._next_key()) in self._keys:
            self._take(self._read(key))

    def _take(self, entry: Entry) -> None:
        self._check_query(entry)
        if isinstance(entry, End):
            self.end = entry
            return
        if entry.origin not in (None, self.location.task_origin):
            raise LedgerError(
                f"{self.location}: another run of the batch uses {self.location.directory} for other rows at "
                "the same time; if no other query or job writes under this name, run the batch again"
            )
        self.begins.append(entry)

    def _check_query(self, entry: Entry) -> None:
        if entry.query_id != self.location.query_id:
            raise LedgerError(
                f"{self.location}: the ledger belongs to query {entry.query_id or '(none)'}, this is "
                f"{self.location.query_id or '(none)'}. {NEW_CHECKPOINT}"
            )

    def _next_key(self) -> _Key:
        return _Key(self.location.batch_id, len(self.begins))

    def _read(self, key: _Key) -> Entry:
        return _read_entry(self.files, self._path(key))

    def _path(self, key: _Key) -> str:
        return _path(self.location, key)


def add_end(files: LedgerFiles, location: TaskLocation, end: End, begins: int) -> bool:
    """Creates the end of an attempt that has read so many `begin`s, and cleans up; False: there is a further entry.

    That nobody has added an entry is all that has to be known of the others. Raises `LedgerError`.
    """
    key = _Key(location.batch_id, begins)
    if not files.create(_path(location, key), encode_entry(end)):
        return False
    keys = _keys(files, location)
    _withdraw_if_late(files, location, key, keys)
    _clean(files, location, keys, BATCHES_KEPT)
    return True


def _keys(files: LedgerFiles, location: TaskLocation) -> list[_Key]:
    found = (_NAME.fullmatch(name) for name in files.list(location.directory))
    return sorted(_Key(int(one[1]), int(one[2])) for one in found if one is not None)


def _path(location: TaskLocation, key: _Key) -> str:
    return f"{location.directory}/{key.name}"


def _clean(files: LedgerFiles, location: TaskLocation, keys: list[_Key], batches_kept: int) -> None:
    for key in keys:
        if key.batch_id <= location.batch_id - batches_kept:
            files.delete(_path(location, key))


def _withdraw_if_late(
    files: LedgerFiles, location: TaskLocation, key: _Key, keys: list[_Key]
) -> None:
    """Withdraws the entry of an attempt so late that later batches have cleaned up before it.

    Entries of a later batch are there before anything is cleaned up, so an attempt that sees none was not
    late.
    """
    if keys and keys[-1].batch_id > key.batch_id:
        files.delete(_path(location, key))
        raise _left_behind(location, keys)


def _left_behind(location: TaskLocation, keys: list[_Key]) -> LedgerError:
    return LedgerError(
        f"{location}: the ledger is at batch {keys[-1].batch_id} already. {NEW_CHECKPOINT}"
    )


def use_of_lane(files: LedgerFiles, location: TaskLocation, lane: int) -> LaneUse:
    """Reads how a lane is used in the location's batch. Raises `LedgerError`."""
    directory = location._replace(lane=lane).directory
    name = _Key(location.batch_id, 0).name
    if name not in files.list(directory):
        return LaneUse(has_begun=False, origin=None)
    entry = _read_entry(files, f"{directory}/{name}")
    return LaneUse(has_begun=True, origin=entry.origin if isinstance(entry, Begin) else None)


def last_end(files: LedgerFiles, location: TaskLocation) -> End | None:
    """Reads the end of a lane's last batch; None: there is no batch, or it has begun and not ended. Raises `LedgerError`."""
    keys = _keys(files, location)
    entry = _read_entry(files, _path(location, keys[-1])) if keys else None
    return entry if isinstance(entry, End) else None


def has_begun(files: LedgerFiles, location: TaskLocation) -> bool:
    """Whether the lane has a `begin` in the location's batch, which is looked for by its name. Raises `LedgerError`."""
    return files.find(_path(location, _Key(location.batch_id, 0))) is not None


def _read_entry(files: LedgerFiles, path: str) -> Entry:
    try:
        return decode_entry(files.read(path))
    except EntryError as error:
        raise LedgerError(f"{path}: {error}") from error
