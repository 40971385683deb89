"""OAUTHBEARER (RFC 7628): a signed token in one message.

Knows how the token travels, not what it says: the caller checks it. A token that is refused is answered with
`REFUSED_TOKEN` and no error; the client then sends one more message, and that is what fails.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from echoless.protocol.sasl.mechanism import TOKEN_BYTES_MAX, SaslError
from echoless.protocol.sasl.scram import escaped_name, unescaped_name

REFUSED_TOKEN: Final = b'{"status":"invalid_token"}'
"""The answer to a token that is not accepted; it tells no one why."""
REFUSAL_READ: Final = b"\x01"
"""The message of a client that has read the answer to a token that is refused."""
_MESSAGE: Final = re.compile(
    r"[ny],(?:a=(?P<authzid>[^\0\x01,]+))?,\x01"
    r"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_SHOWN_MAX: Final = 10
_SHOWN_LENGTH_MAX: Final = 50
"""Extensions that a refusal names, and characters of each."""
_CREDENTIAL: Final = re.compile(r"bearer +(?P<token>[A-Za-z0-9._-]+)", re.IGNORECASE)


class BearerMessage(NamedTuple):
    """The claim of a client, not checked yet."""

    authorization_id: str
    """Empty if the client names no one."""
    token: str

    def __repr__(self) -> str:
        """Leaves the token out."""
        return f"BearerMessage({self.authorization_id!r})"


def refused_token() -> SaslError:
    """The failure after `REFUSED_TOKEN`, in Kafka's words."""
    return SaslError(REFUSED_TOKEN.decode())


def read_bearer(message: bytes) -> BearerMessage:
    """The client's first message. Raises `SaslError`, also for extensions: none is known here."""
    if len(message) > TOKEN_BYTES_MAX:
        raise SaslError("Authentication failed: the token is too long")
    try:
        match = _MESSAGE.fullmatch(message.decode())
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise SaslError("Authentication failed: Invalid OAUTHBEARER client first message")
    pairs = [one.split("=", 1) for one in match["pairs"].split("\x01")[:-1]]
    names = [name for name, _ in pairs]
    if names.count("auth") != 1:
        raise SaslError("Authentication failed: Invalid OAUTHBEARER client first message: one auth")
    if len(names) > 1:
        extensions = sorted(set(names) - {"auth"})
        raise SaslError(
            f"Authentication failed: {len(extensions)} extensions are invalid: "
            f"{', '.join(one[:_SHOWN_LENGTH_MAX] for one in extensions[:_SHOWN_MAX])}"
        )
    credential = _CREDENTIAL.fullmatch(pairs[0][1])
    if credential is None:
        raise SaslError("Authentication failed: auth is no bearer token")
    authorization_id = ""
    if match["authzid"] is not None:
        found = unescaped_name(match["authzid"])
        if found is None:
            raise SaslError("Authentication failed: Invalid OAUTHBEARER authorization id")
        authorization_id = found
    return BearerMessage(authorization_id, credential["token"])


def bearer_message(
    token: str, authorization_id: str = "", extensions: Mapping[str, str] | None = None
) -> bytes:
    """The client's first message."""
    name = f"a={escaped_name(authorization_id)}" if authorization_id else ""
    pairs = {"auth": f"Bearer {token}", **(extensions or {})}
    fields = "".join(f"{key}={value}\x01" for key, value in pairs.items())
    return f"n,{name},\x01{fields}\x01".encode()
