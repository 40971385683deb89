"""SaslHandshake where no one has to log in; `tests/broker/authentication/test_sasl.py` has all else."""

from __future__ import annotations

import pytest

from echoless.protocol.errors import ErrorCode
from tests.support.raw_client import RawConnection


@pytest.mark.parametrize("version", [0, 1])
async def test_there_is_nothing_to_log_in_for(kafka: RawConnection, version: int) -> None:
    """34 with an empty list, as in Kafka, and the connection goes on."""
    for mechanism in ("PLAIN", "SCRAM-SHA-256", ""):
        response = await kafka.call("sasl_handshake", version, mechanism=mechanism)
        assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert response.mechanisms == ()
