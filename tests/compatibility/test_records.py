"""The records that all client programs agree on."""

from __future__ import annotations

import hashlib

from tests.compatibility.clients.python.records import BASE_TIMESTAMP_MS, Series

_SERIES = Series(seed=7, partitions=3)


def test_first_record_has_the_documented_bytes() -> None:
    """The canonical form is the one that the programs in other languages were written to."""
    record = _SERIES.record(0)
    assert (record.partition, record.timestamp - BASE_TIMESTAMP_MS) == (0, 978)
    assert record.canonical().hex() == (
        "0000018bcfe56bd2000000086b65792d3332313200000059361923e0361923e0361923e0361923e0"
        "348eb6e3348eb6e3348eb6e3348eb6e38cf6727c8cf6727c8cf6727c8cf6727c7d9ccf767d9ccf76"
        "7d9ccf767d9ccf767da54f2d7da54f2d7da54f2d7da54f2d2d58ede52d58ede52d00000002000000"
        "016e00000001300000000368c3a900000005a8313e0ba8"
    )


def test_golden_digests() -> None:
    """Java, Go and Python gave these digests for 5,000 records of seed 7; they never change."""
    assert _SERIES.digests(range(5000)) == {
        "0": "742a77d6177ab72423cd715e37205dcdcc8c8b91b24a694d99e10bba54417e51",
        "1": "0ba6c15fe1ddad098d6e3dedf04b1bb5e514ba2c9dfe3699b4fb69c43e5ede4f",
        "2": "87ccb1d357bd6ba1e2068e7547cc78078b286639d7508936fe96d9d1ed728674",
    }


def test_every_kind_of_field_occurs() -> None:
    """Keys, values and header values are null, empty and full, each more than once."""
    records = [_SERIES.record(number) for number in range(500)]
    contents = {
        "key": [record.key for record in records],
        "value": [record.value for record in records],
        "header": [content for record in records for _, content in record.headers],
    }
    for field, found in contents.items():
        assert found.count(None) > 1, field
        assert found.count(b"") > 1, field
        assert sum(bool(content) for content in found) > 1, field


def test_key_and_value_are_never_both_null() -> None:
    """Some clients refuse such a record."""
    records = (_SERIES.record(number) for number in range(2000))
    assert not any(record.key is None and record.value is None for record in records)


def test_only_null_headers_differ_for_clients_without_them() -> None:
    """A client that cannot write a null header writes the same record with an empty one."""
    plain = Series(seed=7, partitions=3, null_headers=False)
    for number in range(200):
        full = _SERIES.record(number)
        headers = [(name, content or b"") for name, content in full.headers]
        assert plain.record(number) == full._replace(headers=headers)


def test_digest_is_sha256_over_the_partitions_records() -> None:
    """Partition 1 of 3 holds records 1, 4, 7, ... and its digest covers their canonical bytes."""
    content = b"".join(_SERIES.record(number).canonical() for number in (1, 4, 7))
    assert _SERIES.digests(range(9))["1"] == hashlib.sha256(content).hexdigest()
