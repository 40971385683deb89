"""SaslAuthenticate where no one has to log in; `tests/broker/authentication/test_sasl.py` has all else."""

from __future__ import annotations

import pytest

from echoless.protocol.errors import ErrorCode
from tests.support.raw_client import RawConnection


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_there_is_nothing_to_log_in_for(kafka: RawConnection, version: int) -> None:
    """34, as in Kafka, and the connection goes on."""
    for token in (b"", b"\0alice\0pw"):
        response = await kafka.call("sasl_authenticate", version, auth_bytes=token)
        assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert response.auth_bytes == b""
