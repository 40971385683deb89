"""Clients that use fetch sessions (KIP-227) read as they do from Apache Kafka, and are seen to use them."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compatibility.programs import FRANZ_GO, JAVA, KAFKA_PYTHON, LIBRDKAFKA, Program
from tests.compatibility.round_trip import RoundTrip
from tests.support.echoless import Echoless

_PARTITIONS = 40
_RECORDS = 20_000

pytestmark = [pytest.mark.clients, pytest.mark.slow]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Echoless]:
    """A broker that creates topics of many partitions when a client first names them."""
    settings = {"num_partitions": str(_PARTITIONS)}
    echoless = Echoless(tmp_path_factory.mktemp("sessions"), settings)
    echoless.start()
    yield echoless
    echoless.kill()


def _metric(broker: Echoless, name: str) -> int:
    with urllib.request.urlopen(f"http://{broker.admin_address}/metrics") as response:
        found = re.search(rf"^echoless_{name} (\S+)$", response.read().decode(), re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


@pytest.mark.parametrize(
    "reader", [*JAVA, FRANZ_GO, KAFKA_PYTHON], ids=lambda program: str(program.name)
)
def test_records_of_many_partitions_are_read_in_sessions(
    broker: Echoless, tmp_path: Path, reader: Program
) -> None:
    """Every record once, in order, unchanged."""
    opened = _metric(broker, "fetch_sessions_opened_total")
    trip = RoundTrip(
        address=broker.kafka_address,
        topic=f"sessions-{reader.name}",
        count=_RECORDS,
        seed=1,
        partitions=_PARTITIONS,
        directory=tmp_path,
    )
    trip.check(LIBRDKAFKA, reader, "none")
    assert _metric(broker, "fetch_sessions_opened_total") > opened
