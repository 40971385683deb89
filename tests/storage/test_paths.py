"""File names are Kafka's, and are parsed back to what they were built from."""

from __future__ import annotations

import pytest

from echoless.storage import paths


def test_offset_files_have_twenty_digits() -> None:
    """A name sorts as its offset does."""
    path = paths.offset_file("/d/orders-0", 42, paths.LOG)
    assert path == "/d/orders-0/00000000000000000042.log"
    assert paths.parse_offset_file(paths.name_of(path)) == (42, ".log")


@pytest.mark.parametrize(
    "name", ["42.log", "00000000000000000042.txt", "00000000000000000042.log.tmp", "leader-epoch"]
)
def test_other_names_are_not_offset_files(name: str) -> None:
    """Strangers in a directory are left alone."""
    assert paths.parse_offset_file(name) is None


@pytest.mark.parametrize(
    ("topic", "partition"), [("orders", 0), ("a-1", 17), ("x.y_z-", 3), ("-", 0)]
)
def test_partition_directories_are_parsed_back(topic: str, partition: int) -> None:
    """The last hyphen separates the partition, whatever the topic is called."""
    name = paths.name_of(paths.partition_directory("/data", topic, partition))
    assert paths.parse_partition_directory(name) == (topic, partition)


@pytest.mark.parametrize("name", ["orders", "orders-", "orders-01", "-0", "orders-x", "a b-0"])
def test_other_names_are_not_partitions(name: str) -> None:
    """Directories that no topic can have are ignored."""
    assert paths.parse_partition_directory(name) is None


def test_a_directory_on_its_way_out_is_known_and_short_enough() -> None:
    """It is no partition any more, and the longest topic name still fits into a file name."""
    name = paths.name_of(paths.deleted_directory("/data", "t" * 249, 2147483647, "ab" * 16))
    assert paths.is_deleted_directory(name)
    assert len(name) <= 255
    assert not paths.is_deleted_directory("orders-0")
    assert paths.parse_partition_directory(name) is None


def test_paths_are_taken_apart() -> None:
    """Directory and name of a path; a trailing slash does not count."""
    assert paths.parent_of("/data/orders-0/x") == "/data/orders-0"
    assert paths.parent_of("data") == "."
    assert paths.name_of("/data/orders-0/") == "orders-0"
