"""Log-ins by OAUTHBEARER: whether a token is valid, and whose it is.

Fails closed: whatever is missing, unknown or cannot be read makes a token invalid, and the client learns no more than
that; the log says why. Loaded only if the mechanism is enabled, since PyJWT (the extra `oauth`) takes 300 ms.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import jwt

from echoless.broker.authentication.key_set import KeySet
from echoless.broker.authentication.token_keys import TokenKeys
from echoless.broker.config.loading import Config
from echoless.broker.limited_log import LimitedLog
from echoless.protocol.sasl.mechanism import refused_authorization_id
from echoless.protocol.sasl.oauthbearer import (
    REFUSED_TOKEN,
    BearerMessage,
    read_bearer,
    refused_token,
)

limited: Final = LimitedLog(logging.getLogger(__name__))

_UNREADABLE: Final = (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError)
"""Raised by PyJWT for tokens of an attacker; the last two for their numbers and their nesting."""


class Bearer(NamedTuple):
    """The owner of a valid token."""

    name: str
    expires_at_s: float


class InvalidTokenError(Exception):
    """The token admits no one; the message, for the log alone, says why."""


class UnknownKeyError(InvalidTokenError):
    """The token names a key that is not in the key set, yet."""


Run = Callable[[Callable[[], Bearer]], Awaitable[Bearer]]


class TokenCheck(Protocol):
    """Checks tokens of one kind."""

    async def check(self, token: str, run: Run) -> Bearer:
        """The owner; `run` does the work in a thread. Raises `InvalidTokenError`."""


class SignedTokens:
    """Tokens that one issuer has signed for this broker."""

    def __init__(self, config: Config, keys: TokenKeys) -> None:
        self._config = config
        self._keys = keys

    async def check(self, token: str, run: Run) -> Bearer:
        """Raises `InvalidTokenError`."""
        try:
            return await self._checked(token, run)
        except UnknownKeyError:
            if not await self._keys.read_again():
                raise
        return await self._checked(token, run)

    async def _checked(self, token: str, run: Run) -> Bearer:
        keys = self._keys.current()
        if keys is None:
            raise InvalidTokenError("there are no keys to check it with")
        return await run(partial(signed_by, self._config, keys, token))


class UnsecuredTokens:
    """Tokens that no one has signed: a client is who it says. For tests, as in Kafka."""

    def __init__(self, config: Config) -> None:
        self._config = config

    async def check(self, token: str, run: Run) -> Bearer:
        """Raises `InvalidTokenError`."""
        return await run(partial(claimed_in, self._config, token))


def signed_by(config: Config, keys: KeySet, token: str) -> Bearer:
    """The owner of a token that one of these keys has signed. Raises `InvalidTokenError`."""
    try:
        header = jwt.get_unverified_header(token)
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in config.sasl_oauthbearer_algorithms:
            raise InvalidTokenError(f"its algorithm {algorithm!r} is not allowed")
        if "crit" in header:
            raise InvalidTokenError("its header demands what is not known here (crit)")
        key = keys.find(key_id, algorithm)
        if key is None:
            raise UnknownKeyError(f"no key {key_id!r} for {algorithm}")
        claims = jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            audience=config.sasl_oauthbearer_expected_audience,
            issuer=config.sasl_oauthbearer_expected_issuer,
            leeway=config.sasl_oauthbearer_clock_skew_seconds,
            options={"require": ["exp", "iss", "aud"]},
        )
        return _bearer(config, claims)
    except _UNREADABLE as error:
        raise InvalidTokenError(_reason(error)) from error


def claimed_in(config: Config, token: str) -> Bearer:
    """The owner of an unsecured token. Raises `InvalidTokenError`."""
    try:
        header = jwt.get_unverified_header(token)
        if header.get("alg") != "none" or not token.endswith("."):
            raise InvalidTokenError("it is signed, but oauthbearer_unsecured takes only alg none")
        claims = jwt.decode(
            token,
            options={
                "verify_signature": False,
                "verify_exp": True,
                "verify_nbf": True,
                "verify_iat": True,
                "require": ["exp"],
            },
            leeway=config.sasl_oauthbearer_clock_skew_seconds,
        )
        for begin in ("nbf", "iat"):
            if begin in claims and float(claims[begin]) >= float(claims["exp"]):
                raise InvalidTokenError(f"its {begin} is not before its exp")
        return _bearer(config, claims)
    except _UNREADABLE as error:
        raise InvalidTokenError(_reason(error)) from error


def _bearer(config: Config, claims: Mapping[str, Any]) -> Bearer:
    name = claims.get(config.sasl_oauthbearer_sub_claim_name)
    if not isinstance(name, str) or not name.strip():
        raise InvalidTokenError(f"its {config.sasl_oauthbearer_sub_claim_name} names no one")
    name.encode()  # JSON can have halves of characters, which no answer and no file takes; a ValueError
    scope = claims.get(config.sasl_oauthbearer_scope_claim_name, "")
    if not isinstance(scope, str) and not (
        isinstance(scope, list) and all(isinstance(one, str) and one.strip() for one in scope)
    ):
        raise InvalidTokenError(f"its {config.sasl_oauthbearer_scope_claim_name} is no scope")
    return Bearer(name, float(int(claims["exp"])))


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


class BearerExchange:
    """One log-in by a token."""

    def __init__(self, tokens: TokenCheck, run: Run, host: str) -> None:
        self.user = ""
        self.is_complete = False
        self.lifetime_s: float | None = None
        self._tokens = tokens
        self._run = run
        self._host = host
        self._is_refused = False

    async def take(self, message: bytes) -> bytes:
        """Raises `SaslError`."""
        if self._is_refused:
            raise refused_token()
        claimed = read_bearer(message)
        try:
            return await self._admit(claimed)
        except InvalidTokenError as error:
            self._is_refused = True
            line = "refusing a bearer token from %s: %s"
            limited.log(logging.WARNING, self._host, line, self._host, error)
            return REFUSED_TOKEN

    async def _admit(self, claimed: BearerMessage) -> bytes:
        bearer = await self._tokens.check(claimed.token, self._run)
        self.user = bearer.name
        if claimed.authorization_id not in {"", bearer.name}:
            raise refused_authorization_id()
        self.lifetime_s = bearer.expires_at_s - time.time()
        self.is_complete = True
        return b""
