"""ApiVersions lists what the handlers declare, in any version a client asks for."""

from __future__ import annotations

import pytest

from echoless.broker.handlers import api_versions
from echoless.protocol.errors import ErrorCode
from tests.broker.handlers.test_dispatch import APIS, listed
from tests.support.raw_client import (
    RawConnection,
    decode_whole,
    message,
)


async def test_api_versions_lists_what_the_handlers_declare(kafka: RawConnection) -> None:
    """ApiVersions is derived from the handlers; Produce lists more than it serves, InitProducerId not its preview."""
    served = {api.key: range(api.version_min, api.version_max + 1) for api in APIS}
    served[0] = range(13 + 1)
    served[22] = range(5 + 1)
    assert await listed(kafka) == served


async def test_an_unknown_version_of_api_versions_is_answered_at_zero(
    kafka: RawConnection,
) -> None:
    """A client that is too new learns what there is: version 0 with UNSUPPORTED_VERSION (KIP-511)."""
    for version in (5, 99, 32767, -1):
        kafka.send(api_versions.API.key, version, b"\xff garbage", flexible=False)
        response = message("api_versions", 0, "Response")
        entity, left_over = decode_whole(response, await kafka.receive())
        assert entity.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert len(entity.api_keys) == len(APIS)
        assert left_over == 0


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("librdkafka", ErrorCode.NONE),
        ("a-1.b", ErrorCode.NONE),
        ("", ErrorCode.INVALID_REQUEST),
        ("-a", ErrorCode.INVALID_REQUEST),
        ("a.", ErrorCode.INVALID_REQUEST),
        ("a b", ErrorCode.INVALID_REQUEST),
        ("ä", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_clients_name_their_software(
    kafka: RawConnection, version: int, name: str, code: ErrorCode
) -> None:
    """A name or a version that Kafka rejects is rejected; the list comes nevertheless (KIP-511)."""
    for software in ((name, "1"), ("raw", name)):
        response = await kafka.call(
            "api_versions",
            version,
            client_software_name=software[0],
            client_software_version=software[1],
        )
        assert (response.error_code, len(response.api_keys)) == (code, len(APIS))
