"""Records written by one real client with idempotence are read back by another, byte for byte.

100,000 records per client: 20,000 with each codec, over three partitions, with keys, values and
headers that are null, empty and full. The readers rotate, so that each client's records are read by
five others. The topics are created by the clients themselves, through Metadata.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compatibility.conftest import PARTITIONS
from tests.compatibility.programs import CODECS, PROGRAMS, READERS, Program
from tests.compatibility.round_trip import RoundTrip
from tests.support.apache_kafka import ApacheKafka
from tests.support.echoless import Echoless

_RECORDS_PER_CODEC = 20_000
_RECORDS_WITH_KAFKA = 3_000

pytestmark = [pytest.mark.clients, pytest.mark.slow]


def _reader(writer: Program, codec: str) -> Program:
    others = [reader for reader in READERS if reader is not writer]
    return others[(PROGRAMS.index(writer) + CODECS.index(codec)) % len(others)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", PROGRAMS, ids=lambda program: program.name)
def test_records_come_back_from_echoless(
    broker: Echoless, tmp_path: Path, writer: Program, codec: str
) -> None:
    """Every record is acknowledged at its offset and read once, in order, unchanged."""
    trip = RoundTrip(
        address=broker.kafka_address,
        topic=f"{writer.name}-{codec}",
        count=_RECORDS_PER_CODEC,
        seed=CODECS.index(codec) + 1,
        partitions=PARTITIONS,
        directory=tmp_path,
    )
    trip.check(writer, _reader(writer, codec), codec)


@pytest.mark.kafka
@pytest.mark.parametrize("writer", PROGRAMS, ids=lambda program: program.name)
def test_records_come_back_from_apache_kafka(
    apache_kafka: ApacheKafka, tmp_path: Path, writer: Program
) -> None:
    """The programs themselves are right: Apache Kafka gives back the same bytes."""
    codec = CODECS[PROGRAMS.index(writer) % len(CODECS)]
    trip = RoundTrip(
        address=apache_kafka.kafka_address,
        topic=f"{writer.name}-{codec}",
        count=_RECORDS_WITH_KAFKA,
        seed=1,
        partitions=1,
        directory=tmp_path,
    )
    trip.check(writer, _reader(writer, codec), codec)
