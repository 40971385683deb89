"""`echoless dump`: the contents of a partition's files, byte for byte, without a broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import typer

from echoless.cli.data_files import read_offset_entries, read_time_entries
from echoless.cli.errors import CommandError
from echoless.cli.log_dump import batch_rows, record_rows
from echoless.cli.options import Json
from echoless.cli.output import print_json, print_table
from echoless.storage import paths
from echoless.storage.checkpoints import read_lines, split_line
from echoless.storage.file_system import StorageError
from echoless.storage.os_file_system import OsFileSystem
from echoless.storage.producers.snapshot import SnapshotError, read_snapshot
from echoless.storage.transaction_index import ENTRY_SIZE, TransactionIndex

Rows = Sequence[dict[str, Any]]
_FILES = OsFileSystem()


class FileDump(NamedTuple):
    """The contents of one file; `problem` describes the damage, empty if there is none."""

    path: str
    rows: Rows
    problem: str = ""


def dump(
    path: Annotated[str, typer.Argument(help="A partition's directory, or one file of it.")],
    records: Annotated[
        bool, typer.Option("--records", help="Show the records instead of the batches.")
    ] = False,
    limit: Annotated[
        int, typer.Option(help="Batches, records or entries per file; 0 shows all.", min=0)
    ] = 1000,
    as_json: Json = False,
) -> None:
    """Show batches or records of a log, entries of indexes, snapshots and checkpoints."""
    if not _FILES.exists(path):
        raise CommandError(f"{path} does not exist")
    dumps = [_dump_file(file, records=records, limit=limit) for file in _files(path)]
    if not dumps:
        raise CommandError(f"{path} holds no file of a partition; give a <topic>-<partition>")
    if as_json:
        print_json([{"path": d.path, "rows": d.rows, "problem": d.problem or None} for d in dumps])
    else:
        for one in dumps:
            _show(one, limit)
    problems = [one.problem for one in dumps if one.problem]
    if problems:
        raise CommandError("; ".join(problems))


def _show(one: FileDump, limit: int) -> None:
    title = one.path
    if limit and len(one.rows) == limit:
        title += f" (the first {limit}; --limit 0 shows all)"
    elif not one.rows:
        title += ": empty"
    columns = list(one.rows[0]) if one.rows else []
    headings = [column.replace("_", " ") for column in columns]
    print_table(title, headings, [list(row.values()) for row in one.rows])


def _files(path: str) -> list[str]:
    if not _FILES.is_directory(path):
        return [path]
    names = sorted(_FILES.list_directory(path), key=lambda name: (name.rpartition(".")[0], name))
    return [paths.join(path.rstrip("/"), name) for name in names if _reader(name) is not None]


def _dump_file(path: str, *, records: bool, limit: int) -> FileDump:
    reader = _reader(paths.name_of(path))
    if reader is None:
        known = ".log, .index, .timeindex, .txnindex, .snapshot, leader-epoch-checkpoint"
        raise CommandError(f"{path} is not a file that can be shown ({known})")
    rows: list[dict[str, Any]] = []
    try:
        for row in reader(path, records):
            if limit and len(rows) == limit:
                break
            rows.append(row)
    except (StorageError, SnapshotError) as error:
        return FileDump(path, rows, str(error))
    return FileDump(path, rows)


def _reader(name: str) -> Callable[[str, bool], Any] | None:
    """The function that yields the rows of a file with this name."""
    if name == paths.LEADER_EPOCH_CHECKPOINT:
        return _epoch_rows
    file = paths.parse_offset_file(name)
    return None if file is None else _READERS[file.suffix]


def _log_rows(path: str, records: bool) -> Any:
    return record_rows(path) if records else batch_rows(path)


def _index_rows(path: str, _: bool) -> Any:
    return (entry._asdict() for entry in read_offset_entries(path, _base_offset(path)))


def _time_rows(path: str, _: bool) -> Any:
    return (entry._asdict() for entry in read_time_entries(path, _base_offset(path)))


def _transaction_rows(path: str, _: bool) -> Any:
    index = TransactionIndex.decode(_base_offset(path), _FILES.read_bytes(path))
    if index is None:
        raise StorageError(path, f"is not a series of entries of {ENTRY_SIZE} bytes of version 0")
    return (aborted._asdict() for aborted in index)


def _snapshot_rows(path: str, _: bool) -> Any:
    for producer_id, entry in read_snapshot(_FILES, path).items():
        window = ", ".join(
            f"{b.base_sequence}-{b.last_sequence}@{b.base_offset}" for b in entry.batches
        )
        yield {
            "producer_id": producer_id,
            "producer_epoch": entry.producer_epoch,
            "run_start": entry.run_start,
            "last_append_ms": entry.last_append_ms,
            "window": window,
        }


def _epoch_rows(path: str, _: bool) -> Any:
    for line in read_lines(_FILES, path):
        epoch, start_offset = split_line(path, line, field_count=2)
        yield {"leader_epoch": epoch, "start_offset": start_offset}


def _base_offset(path: str) -> int:
    file = paths.parse_offset_file(paths.name_of(path))
    assert file is not None, f"{path} was chosen by its name"
    return file.offset


_READERS: dict[str, Callable[[str, bool], Any]] = {
    paths.LOG: _log_rows,
    paths.OFFSET_INDEX: _index_rows,
    paths.TIME_INDEX: _time_rows,
    paths.TRANSACTION_INDEX: _transaction_rows,
    paths.SNAPSHOT: _snapshot_rows,
}
