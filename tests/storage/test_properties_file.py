"""`meta.properties` and `partition.metadata`: names, values and a checksum that Kafka ignores."""

from __future__ import annotations

import pytest

from echoless.storage.properties_file import PropertiesError, read_properties, write_properties
from tests.fakes.memory_file_system import MemoryFileSystem

PATH = "/meta.properties"
META = {"version": "0", "broker.id": "1", "cluster.id": "AAECAwQFBgcICQoLDA0ODw"}
METADATA = {"version": "0", "topic_id": "AAECAwQFBgcICQoLDA0ODw"}
FILES = [("=", META), (": ", METADATA)]


def written(properties: dict[str, str], separator: str) -> bytes:
    fs = MemoryFileSystem()
    write_properties(fs, PATH, properties, separator)
    return fs.read_bytes(PATH)


def read(data: bytes, properties: dict[str, str], separator: str) -> dict[str, str]:
    """The names of `properties` as the file `data` gives them."""
    fs = MemoryFileSystem()
    fs.write_atomic(PATH, data)
    found = read_properties(fs, PATH, separator, tuple(properties))
    return {name: found[name] for name in properties}


@pytest.mark.parametrize(("separator", "properties"), FILES)
def test_round_trip(separator: str, properties: dict[str, str]) -> None:
    """A written file is read, with the checksum and without: older files have none."""
    data = written(properties, separator)
    assert read(data, properties, separator) == properties
    old = b"".join(data.splitlines(keepends=True)[:-1])
    assert b"crc32c" not in old
    assert read(old, properties, separator) == properties


@pytest.mark.parametrize(("separator", "properties"), FILES)
def test_no_flipped_bit_changes_what_is_read(separator: str, properties: dict[str, str]) -> None:
    """A flipped bit in a topic id used to delete the partition's log."""
    data = written(properties, separator)
    refused = 0
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            assert read(bytes(flipped), properties, separator) == properties, flipped
        except PropertiesError:
            refused += 1
    assert refused >= 8 * (len(data) - len("crc32c"))


@pytest.mark.parametrize(("separator", "properties"), FILES)
def test_cut_off_at_any_byte(separator: str, properties: dict[str, str]) -> None:
    """Only a file that lacks no more than its checksum is an older one."""
    data = written(properties, separator)
    old = b"".join(data.splitlines(keepends=True)[:-1])
    for size in range(len(data)):
        if size != len(old):
            with pytest.raises(PropertiesError):
                read(data[:size], properties, separator)


def test_a_file_of_kafka_is_read() -> None:
    """It has a comment, another order, and unknown names."""
    data = b"#\n#Sun Nov 22 03:00:00 UTC 2026\nbroker.id=1\nversion=0\ncluster.id=x\nnew.name=y\n"
    assert read(data, META, "=") == {"version": "0", "broker.id": "1", "cluster.id": "x"}
