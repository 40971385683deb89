"""The options by which aiokafka's clients reach a broker as ours do."""

from __future__ import annotations

from typing import Any

from client.security import Security
from client.tls import tls_context


def security_arguments(security: Security) -> dict[str, Any]:
    """Keyword arguments of `AIOKafkaConsumer` and `AIOKafkaProducer`. Raises `AuthenticationError`."""
    arguments: dict[str, Any] = {"security_protocol": security.protocol}
    if security.tls is not None:
        arguments["ssl_context"] = tls_context(security.tls)
    if security.login is not None:
        arguments["sasl_mechanism"] = str(security.login.mechanism)
        arguments["sasl_plain_username"] = security.login.user
        arguments["sasl_plain_password"] = security.login.password
    return arguments
