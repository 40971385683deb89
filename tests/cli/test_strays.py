"""`echoless strays`, on directories that `storage` wrote."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from echoless.storage.os_file_system import OsFileSystem
from echoless.storage.partition_metadata import read_topic_id
from echoless.storage.properties_file import encode_uuid
from tests.cli.command import Command
from tests.cli.data_directory import append, fill, open_directory


def only_stray(data_dir: Path, echoless: Command) -> dict[str, object]:
    (stray,) = echoless("strays", "list", data_dir, "--json").json["strays"]
    assert isinstance(stray, dict)
    return stray


def test_set_aside_list_restore(tmp_path: Path, echoless: Command) -> None:
    """A log goes and comes back, the command names it, and the next start finds its records."""
    directory = fill(tmp_path)
    ran = echoless("strays", "set-aside", tmp_path, "orders-0")
    assert ran.code == 0
    assert not directory.exists()
    stray = only_stray(tmp_path, echoless)
    name = stray["name"]
    assert ran.out == f"set aside orders-0 as {name}\n"
    assert stray["topic_id"] == encode_uuid(uuid.UUID(int=1))
    assert stray["reason"] == "by command"
    assert str(name) in echoless("strays", "list", tmp_path).out.replace("\n", "")
    ran = echoless("strays", "restore", tmp_path, name)
    assert (ran.code, ran.err) == (0, "")
    with open_directory(tmp_path) as log:
        assert log.log_end_offset == 16


def test_a_place_that_is_taken_is_set_aside_on_demand(tmp_path: Path, echoless: Command) -> None:
    """`--replace` loses nothing either: the two change places, and the topic id stays."""
    directory = fill(tmp_path)
    echoless("strays", "set-aside", tmp_path, "orders-0")
    name = only_stray(tmp_path, echoless)["name"]
    with open_directory(tmp_path) as log:
        append(log, 3, 0)
    ran = echoless("strays", "restore", tmp_path, name)
    assert ran.code == 1
    assert "--replace" in ran.err
    ran = echoless("strays", "restore", tmp_path, name, "--replace")
    assert ran.code == 0
    assert only_stray(tmp_path, echoless)["reason"] == f"replaced by {name}"
    with open_directory(tmp_path) as log:
        assert log.log_end_offset == 16
    assert read_topic_id(OsFileSystem(), str(directory)) == uuid.UUID(int=1)


@pytest.mark.slow
def test_another_place_and_topic(tmp_path: Path, echoless: Command) -> None:
    """For directories that were exchanged."""
    fill(tmp_path)
    echoless("strays", "set-aside", tmp_path, "orders-0")
    name = only_stray(tmp_path, echoless)["name"]
    topic_id = uuid.UUID(int=9)
    ran = echoless("strays", "restore", tmp_path, name, "--as", "bills-3", "--topic-id", encode_uuid(topic_id))  # fmt: skip
    assert ran.code == 0
    assert read_topic_id(OsFileSystem(), str(tmp_path / "bills-3")) == topic_id


def test_a_lost_topic_id_is_asked_for(tmp_path: Path, echoless: Command) -> None:
    """A log whose `partition.metadata` is damaged needs its topic as an argument."""
    directory = fill(tmp_path)
    (directory / "partition.metadata").write_bytes(b"nonsense")
    assert echoless("strays", "set-aside", tmp_path, "orders-0").code == 0
    name = only_stray(tmp_path, echoless)["name"]
    ran = echoless("strays", "restore", tmp_path, name)
    assert ran.code == 1
    assert "--topic-id" in ran.err
    ran = echoless("strays", "restore", tmp_path, name, "--topic-id", encode_uuid(uuid.UUID(int=1)))
    assert ran.code == 0
    with open_directory(tmp_path) as log:
        assert log.log_end_offset == 16


def test_delete(tmp_path: Path, echoless: Command) -> None:
    """For good, and only what was set aside."""
    fill(tmp_path)
    echoless("strays", "set-aside", tmp_path, "orders-0")
    name = str(only_stray(tmp_path, echoless)["name"])
    assert echoless("strays", "delete", tmp_path, "orders-0").code == 1
    assert echoless("strays", "delete", tmp_path, f"../{name}").code == 1
    assert echoless("strays", "delete", tmp_path, name).code == 0
    assert not (tmp_path / name).exists()
    assert echoless("strays", "list", tmp_path, "--json").json == {"strays": [], "problems": []}


def test_a_directory_in_use_is_refused(tmp_path: Path, echoless: Command) -> None:
    """The error names the holder of the lock."""
    with open_directory(tmp_path):
        ran = echoless("strays", "list", tmp_path)
        assert ran.code == 1
        assert "is in use by broker 1" in ran.err
    assert echoless("strays", "list", tmp_path / "nothing").code == 1
    ran = echoless("strays", "set-aside", tmp_path, "nonsense")
    assert "TOPIC-PARTITION" in ran.err
