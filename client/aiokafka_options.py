# mypy: disable-error-code="no-untyped-call"
# aiokafka has no annotations.
"""The options by which aiokafka's clients reach a broker as ours do."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka.abc import AbstractTokenProvider

from echoless.client.security import Security, TokenLogin
from echoless.client.tls import tls_context
from echoless.client.tokens import current_token


def security_arguments(security: Security) -> dict[str, Any]:
    """Keyword arguments of `AIOKafkaConsumer` and `AIOKafkaProducer`. Raises `AuthenticationError`."""
    arguments: dict[str, Any] = {"security_protocol": security.protocol}
    if security.tls is not None:
        arguments["ssl_context"] = tls_context(security.tls)
    login = security.login
    if login is not None:
        arguments["sasl_mechanism"] = str(login.mechanism)
    if isinstance(login, TokenLogin):
        arguments["sasl_oauth_token_provider"] = _Tokens(login)
    elif login is not None:
        arguments["sasl_plain_username"] = login.user
        arguments["sasl_plain_password"] = login.password
    return arguments


class _Tokens(AbstractTokenProvider):
    """Hands aiokafka the tokens of a log-in."""

    def __init__(self, login: TokenLogin) -> None:
        super().__init__()
        self._login = login

    async def token(self) -> str:
        return await asyncio.to_thread(current_token, self._login)

    def extensions(self) -> dict[str, str]:
        return dict(self._login.extensions)
