"""The administration APIs answer as Apache Kafka 3.9.1 does, row by row."""

from __future__ import annotations

import pytest

from tests.broker.handlers.administration import transcript
from tests.support.apache_kafka import ApacheKafka
from tests.support.raw_client import RawConnection

_DIFFERENCES = {
    "alter [('segment.bytes', 9, '1')] unknown_server_error": (
        "alter [('segment.bytes', 9, '1')] invalid_request"  # an unknown operation, told by name
    ),
    **{
        f"alter broker {broker!r} [('nonsense', 0, '1')] {validate_only} none": (
            f"alter broker {broker!r} [('nonsense', 0, '1')] {validate_only} invalid_config"
        )
        for broker in ("1", "")
        for validate_only in (True, False)
    },  # it would be stored and do nothing
}
"""Kafka's line, and ours where it differs on purpose."""


@pytest.mark.kafka
async def test_both_brokers_tell_the_same_story(
    kafka: RawConnection, apache_kafka: ApacheKafka
) -> None:
    """The same requests get the same codes, numbers and offsets."""
    ours = await transcript(kafka)
    connection = await RawConnection.open(apache_kafka.kafka_address)
    theirs = await transcript(connection)
    await connection.close()
    assert ours == [_DIFFERENCES.get(line, line) for line in theirs]
