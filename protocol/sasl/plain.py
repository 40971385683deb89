"""PLAIN (RFC 4616): the user and the password in one token."""

from __future__ import annotations

from typing import NamedTuple

from echoless.protocol.sasl.mechanism import (
    TOKEN_BYTES_MAX,
    SaslError,
    refused_authorization_id,
)


class PlainToken(NamedTuple):
    """The claim of a client, not checked yet."""

    user: str
    password: str

    def __repr__(self) -> str:
        """Leaves the password out."""
        return f"PlainToken({self.user!r})"


def wrong_password() -> SaslError:
    """The failure for an unknown user and for a wrong password alike."""
    return SaslError("Authentication failed: Invalid username or password")


def read_plain(token: bytes) -> PlainToken:
    """Raises `SaslError` unless it is `[authzid] NUL user NUL password`, with no authzid but the user."""
    if len(token) > TOKEN_BYTES_MAX:
        raise SaslError("Authentication failed: the token is too long")
    try:
        parts = token.decode().split("\0")
    except UnicodeDecodeError:
        raise SaslError("Authentication failed: the token is not UTF-8") from None
    if len(parts) != 3:
        raise SaslError(
            f"Authentication failed: Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
        )
    authorization_id, user, password = parts
    if not user:
        raise SaslError("Authentication failed: username not specified")
    if not password:
        raise SaslError("Authentication failed: password not specified")
    if authorization_id not in {"", user}:
        raise refused_authorization_id()
    return PlainToken(user, password)


def plain_token(user: str, password: str) -> bytes:
    """The client's only token."""
    return f"\0{user}\0{password}".encode()
