"""SaslHandshake: no mechanism is served."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from tests.support.raw_client import RawConnection


@pytest.mark.parametrize("version", [0, 1])
async def test_every_mechanism_is_refused(kafka: RawConnection, version: int) -> None:
    """With an empty list, and the connection goes on."""
    for mechanism in ("PLAIN", "SCRAM-SHA-256", ""):
        response = await kafka.call("sasl_handshake", version, mechanism=mechanism)
        assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert response.mechanisms == ()
