"""Which API versions the real clients ask for, seen on the wire.

The versions go into the test report as properties (`--junit-xml`), by client.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from tests.compatibility.conftest import PARTITIONS
from tests.compatibility.programs import PROGRAMS, Program
from tests.compatibility.request_recorder import RequestRecorder
from tests.support.echoless import Echoless
from tests.support.raw_client import RawConnection

_PRODUCE, _FETCH, _LIST_OFFSETS, _METADATA, _API_VERSIONS, _INIT_PRODUCER_ID = 0, 1, 2, 3, 18, 22
_NAMES = {
    _PRODUCE: "produce",
    _FETCH: "fetch",
    _LIST_OFFSETS: "list_offsets",
    _METADATA: "metadata",
    9: "offset_fetch",
    10: "find_coordinator",
    _API_VERSIONS: "api_versions",
    _INIT_PRODUCER_ID: "init_producer_id",
}
_RECORDS = 300
_HOUR_MS = 3_600_000

pytestmark = [pytest.mark.clients, pytest.mark.slow]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
async def test_clients_ask_for_what_the_broker_lists(
    start_echoless: Callable[..., Echoless],
    record_property: Callable[[str, object], None],
    program: Program,
) -> None:
    """A client takes idempotence, and no version that ApiVersions does not show."""
    async with RequestRecorder() as recorder:
        broker = start_echoless(
            {"num_partitions": str(PARTITIONS)}, arguments=("--advertise", recorder.address)
        )
        recorder.broker_address = broker.kafka_address
        await asyncio.to_thread(_use, program, recorder.address)
        listed = await _listed_versions(broker.kafka_address)
    needed = {_PRODUCE, _METADATA, _API_VERSIONS, _INIT_PRODUCER_ID, _FETCH, _LIST_OFFSETS}
    assert needed <= {key for key, _ in recorder.requests}
    for key, version in sorted(recorder.requests):
        record_property(f"{program.name} {_NAMES.get(key, key)}", version)
        # ApiVersions is asked before the client can know; the broker answers any version.
        assert key == _API_VERSIONS or version in listed[key], (_NAMES.get(key, key), version)


def _use(program: Program, address: str) -> None:
    where = {"bootstrap": address, "topic": "versions", "partitions": PARTITIONS}
    recent_ms = int(time.time() * 1000) - _HOUR_MS  # older ones fall to retention within seconds
    program.run("produce", **where, count=_RECORDS, seed=1, base_timestamp=recent_ms)
    read = program.run("consume", **where)["partitions"]
    assert sum(partition["count"] for partition in read.values()) == _RECORDS


async def _listed_versions(address: str) -> dict[int, range]:
    connection = await RawConnection.open(address)
    response = await connection.call("api_versions", 0)
    await connection.close()
    return {row.api_key: range(row.min_version, row.max_version + 1) for row in response.api_keys}
