"""A client's log-in on the Kafka port: which request comes next, and what the answers say.

No I/O but for `exchange_of`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from typing import Any, Final, NamedTuple

from echoless.client.connection_errors import AuthenticationError, ConnectionFailedError
from echoless.client.security import Login, TokenLogin
from echoless.client.tokens import current_token, forget_token
from echoless.protocol.errors import ErrorCode
from echoless.protocol.sasl.client_exchange import ClientExchange
from echoless.protocol.sasl.mechanism import SaslError

RENEWED_AT: Final = 0.85
"""The part of a session after which the log-in is repeated, as in Java's client."""


class LoginRequest(NamedTuple):
    api: str
    fields: Mapping[str, Any]


class LoggingIn:
    """One log-in: send `request` and give the answer to `take`, until `request` is None."""

    def __init__(self, login: Login | TokenLogin, exchange: ClientExchange, address: str) -> None:
        self.session_s = 0.0
        """Seconds until this has to be done again; 0: never. Known at the end."""
        self._login = login
        self._exchange = exchange
        self._address = address
        self._steps = self._run()
        self.request: LoginRequest | None = next(self._steps)

    def take(self, answer: Any) -> None:
        """Takes milliseconds with SCRAM. Raises `AuthenticationError` and `ConnectionFailedError`."""
        try:
            self.request = self._steps.send(answer)
        except StopIteration:
            self.request = None

    def _run(self) -> Generator[LoginRequest, Any, None]:
        login = self._login
        answer = yield LoginRequest("sasl_handshake", {"mechanism": str(login.mechanism)})
        if answer.error_code.value == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(answer.mechanisms) or "none"
            raise self._refused(f"it offers {offered}; set sasl.mechanism")
        self._check(answer)
        exchange = self._exchange
        while exchange.token is not None:
            answer = yield LoginRequest("sasl_authenticate", {"auth_bytes": exchange.token})
            self._check(answer, answer.error_message)
            try:
                exchange.take(answer.auth_bytes)
            except SaslError as error:
                raise self._refused(str(error)) from error
        lifetime = getattr(answer, "session_lifetime", None)  # which version 0 lacks
        self.session_s = 0.0 if lifetime is None else lifetime.total_seconds()

    def _check(self, answer: Any, message: str | None = None) -> None:
        code = answer.error_code
        if code.value == ErrorCode.SASL_AUTHENTICATION_FAILED:
            raise self._refused(message or code.name.upper())
        if code.value != ErrorCode.NONE:
            reason = f"{code.name.upper()} ({message})" if message else code.name.upper()
            raise ConnectionFailedError(f"{self._address}: the log-in failed: {reason}")

    def _refused(self, reason: str) -> AuthenticationError:
        return login_refused(self._address, self._login, reason)


def exchange_of(login: Login | TokenLogin) -> ClientExchange:
    """The exchange of one log-in. May take seconds for a `TokenLogin`, which may have to ask for a token.

    Raises `ConnectionFailedError`; `AuthenticationError` if another attempt would fail, too.
    """
    if isinstance(login, TokenLogin):
        return ClientExchange.by_bearer_token(current_token(login), dict(login.extensions))
    return ClientExchange.by_password(login.mechanism, login.user, login.password)


async def awaited_exchange_of(login: Login | TokenLogin) -> ClientExchange:
    """The same, without holding the event loop."""
    if isinstance(login, TokenLogin):
        return await asyncio.to_thread(exchange_of, login)
    return exchange_of(login)


def login_refused(address: str, login: Login | TokenLogin, reason: str) -> AuthenticationError:
    """The error of a client that is not let in. A token that was refused is not shown again."""
    if isinstance(login, TokenLogin):
        forget_token(login)
    return AuthenticationError(f"{address}: {login} cannot log in by {login.mechanism}: {reason}")
