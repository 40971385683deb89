"""Every API and version that ApiVersions lists is served, and nothing else."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from echoless.broker.handlers import api_versions
from echoless.broker.handlers.apis import APIS
from tests.support.in_process import Running
from tests.support.kio_requests import smallest_request
from tests.support.raw_client import (
    ConnectionEndedError,
    RawConnection,
    decode_whole,
    message,
)

PRODUCE_REFUSED = range(3)
"""Listed for librdkafka's sake (KAFKA-18659), refused when used."""
SERVED = [
    pytest.param(api.name, version, id=f"{api.name}-{version}")
    for api in APIS
    for version in range(api.version_min, api.version_max + 1)
]


async def listed(kafka: RawConnection) -> dict[int, range]:
    """Versions by API key, from ApiVersions."""
    response = await kafka.call(
        "api_versions", 4, client_software_name="raw", client_software_version="1"
    )
    return {row.api_key: range(row.min_version, row.max_version + 1) for row in response.api_keys}


@pytest.mark.parametrize("elements", [0, 1])
async def test_every_listed_version_is_answered(kafka: RawConnection, elements: int) -> None:
    """Each version takes a request that kio wrote and gives an answer that kio reads to its end."""
    keys = {api.key: api.name for api in APIS}
    for key, versions in (await listed(kafka)).items():
        for version in versions:
            if key == 0 and version in PRODUCE_REFUSED:
                continue
            name = keys[key]
            kafka.send_request(smallest_request(name, version, elements=elements))
            response: Any = message(name, version, "Response")
            entity, left_over = decode_whole(response, await kafka.receive())
            assert isinstance(entity, response)
            assert left_over == 0, f"{name} v{version}: {left_over} bytes left over"


@pytest.mark.parametrize(("name", "version"), SERVED)
def test_flexible_versions_are_the_schemas(name: str, version: int) -> None:
    """`Api.flexible_from` agrees with Kafka's message definitions."""
    api = next(api for api in APIS if api.name == name)
    schema = message(name, version, "Request")
    assert schema.__api_key__ == api.key
    assert schema.__flexible__ == api.is_flexible(version)


async def end_of(running: Running, api_key: int, version: int, body: bytes) -> None:
    """Sends one request on a separate connection and expects the broker to close it."""
    connection = await RawConnection.open(running.kafka_address)
    connection.send(api_key, version, body, flexible=False)
    with pytest.raises(ConnectionEndedError):
        await connection.receive()
    await connection.close()


async def test_what_is_not_served_ends_the_connection(running: Running) -> None:
    """An API or a version that is not listed closes the connection, as with Kafka."""
    others = [api for api in APIS if api is not api_versions.API]
    above = [(api.key, api.version_max + 1) for api in others]
    below = [(api.key, api.version_min - 1) for api in others]
    for api_key, version in [*above, *below, (93, 0), (999, 0), (-1, 0)]:
        await end_of(running, api_key, version, b"\0" * 16)


async def test_a_request_that_cannot_be_read_ends_the_connection(running: Running) -> None:
    """Bytes that are no request close their connection, and no other."""
    for body in (b"", b"\x7f\xff\xff\xff", b"\xff" * 40):
        await end_of(running, 3, 12, body)


async def test_a_frame_without_a_whole_header_ends_the_connection(
    running: Running,
) -> None:
    """A request needs at least its fixed header."""
    connection = await RawConnection.open(running.kafka_address)
    connection.send_bytes(struct.pack(">i", 3) + b"\0\0\0")
    with pytest.raises(ConnectionEndedError):
        await connection.receive()
    await connection.close()
