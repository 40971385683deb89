"""`echoless dump` shows the bytes of a partition's files as they are."""

from __future__ import annotations

from pathlib import Path

from echoless.protocol.control_records import EndMarker, MarkerType, build_marker
from echoless.protocol.record_batch import read_header
from echoless.storage import paths
from echoless.storage.producers.open_transactions import ClosedTransaction
from echoless.storage.transaction_index import TransactionIndex
from tests.cli.command import Command
from tests.cli.data_directory import file_of, fill


def test_batches_are_shown_with_every_header_field(tmp_path: Path, echoless: Command) -> None:
    """One row per batch, the fields as in the file, and whether the CRC is correct."""
    segment = file_of(fill(tmp_path), 0, paths.LOG)
    header = read_header(segment.read_bytes())
    ran = echoless("dump", segment, "--json")
    (dumped,) = ran.json
    assert (ran.code, dumped["path"], dumped["problem"]) == (0, str(segment), None)
    assert dumped["rows"][0] == {
        "position": 0,
        "base_offset": 0,
        "last_offset": 1,
        "records": 2,
        "size": header.size,
        "codec": "none",
        "leader_epoch": 0,
        "max_timestamp": header.max_timestamp,
        "producer_id": 7,
        "producer_epoch": 0,
        "base_sequence": 0,
        "last_sequence": 1,
        "flags": "",
        "crc": f"{header.crc:08x}",
        "crc_ok": True,
    }
    assert dumped["rows"][1]["position"] == header.size


def test_records_are_shown_as_text_where_they_are_text(tmp_path: Path, echoless: Command) -> None:
    """Keys, values and headers are readable; other bytes are written in Python's notation."""
    segment = file_of(fill(tmp_path), 0, paths.LOG)
    row = echoless("dump", segment, "--records", "--json").json[0]["rows"][1]
    assert (row["offset"], row["key"], row["value"]) == (1, "key", "value 1")
    assert row["headers"] == "trace=\\x00\\xff"


def test_markers_are_shown_in_words(tmp_path: Path, echoless: Command) -> None:
    """The marker of a transaction says how it ended, and by which coordinator's word."""
    segment = tmp_path / f"{0:020d}.log"
    ends = EndMarker(MarkerType.COMMIT, 3), EndMarker(MarkerType.ABORT, 4)
    segment.write_bytes(
        b"".join(build_marker(end, 7, 0, 1000, base_offset=i) for i, end in enumerate(ends))
    )
    rows = echoless("dump", segment, "--records", "--json").json[0]["rows"]
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [
        (0, "COMMIT", "coordinator epoch 3"),
        (1, "ABORT", "coordinator epoch 4"),
    ]


def test_aborted_transactions_are_shown(tmp_path: Path, echoless: Command) -> None:
    """One row per entry of a `.txnindex`; bytes that are no entry are a problem."""
    file = tmp_path / f"{5:020d}.txnindex"
    index = TransactionIndex(5)
    index.append(ClosedTransaction(7, 6, 8, 9))
    file.write_bytes(index.encode())
    (dumped,) = echoless("dump", file, "--json").json
    assert dumped["rows"] == [
        {"producer_id": 7, "first_offset": 6, "last_offset": 8, "last_stable_offset": 9}
    ]
    file.write_bytes(index.encode()[:-1])
    ran = echoless("dump", file, "--json")
    assert ran.code == 1
    assert "is not a series of entries of 34 bytes of version 0" in ran.json[0]["problem"]


def test_directory_shows_all_of_its_files(tmp_path: Path, echoless: Command) -> None:
    """A partition's directory is dumped file by file: log, indexes, snapshots, epochs."""
    directory = fill(tmp_path)
    dumped = {Path(d["path"]).name: d["rows"] for d in echoless("dump", directory, "--json").json}
    shown = {name for name in dumped if paths.parse_offset_file(name)}
    assert shown == {p.name for p in directory.iterdir() if paths.parse_offset_file(p.name)}
    assert dumped[paths.LEADER_EPOCH_CHECKPOINT] == [{"leader_epoch": "0", "start_offset": "0"}]
    snapshot = dumped[file_of(directory, 16, paths.SNAPSHOT).name]
    assert [row["producer_id"] for row in snapshot] == [7, 8]
    assert snapshot[0]["window"] == "0-1@0, 2-3@4, 4-5@8, 6-7@12"
    index = dumped[file_of(directory, 0, paths.OFFSET_INDEX).name]
    assert index[0]["offset"] == 3


def test_wrong_crc_is_shown_and_the_file_read_on(tmp_path: Path, echoless: Command) -> None:
    """A damaged batch is marked, and the batches after it are still shown."""
    segment = file_of(fill(tmp_path), 0, paths.LOG)
    data = bytearray(segment.read_bytes())
    data[70] ^= 1
    segment.write_bytes(data)
    rows = echoless("dump", segment, "--json").json[0]["rows"]
    assert [row["crc_ok"] for row in rows[:2]] == [False, True]


def test_torn_file_is_shown_up_to_the_damage(tmp_path: Path, echoless: Command) -> None:
    """The readable part is shown; then the damage is named and the exit code is 1."""
    segment = file_of(fill(tmp_path), 0, paths.LOG)
    whole = len(echoless("dump", segment, "--json").json[0]["rows"])
    segment.write_bytes(segment.read_bytes()[:-1])
    ran = echoless("dump", segment, "--json")
    assert (ran.code, len(ran.json[0]["rows"])) == (1, whole - 1)
    assert "the file lacks 1 bytes of the batch" in ran.err


def test_table_says_when_it_is_cut(tmp_path: Path, echoless: Command) -> None:
    """A limited table says so, and how to see the rest."""
    segment = file_of(fill(tmp_path), 0, paths.LOG)
    ran = echoless("dump", segment, "--limit", 1)
    assert "the first 1; --limit 0 shows all" in ran.out
    assert "base" in ran.out


def test_what_is_no_partition_is_refused(tmp_path: Path, echoless: Command) -> None:
    """A path that cannot be shown is refused in one line."""
    (tmp_path / "other.txt").write_text("")
    assert "does not exist" in echoless("dump", tmp_path / "nothing").err
    assert "is not a file that can be shown" in echoless("dump", tmp_path / "other.txt").err
    assert "holds no file of a partition" in echoless("dump", tmp_path).err
