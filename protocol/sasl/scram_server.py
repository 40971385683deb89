"""The server's side of SCRAM, without channel binding.

An unknown user goes through the same steps as a known one and fails at the last: the caller's `find` gives a
credential for any name, and says which is real.

The nonce of the last message must *end with* the one that was sent, as in Kafka: librdkafka up to 2.6.0 puts its
own before it once more.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple

from echoless.protocol.sasl.mechanism import (
    TOKEN_BYTES_MAX,
    Mechanism,
    SaslError,
    failed,
    refused_authorization_id,
)
from echoless.protocol.sasl.scram import (
    ITERATIONS_MIN,
    ScramCredential,
    digest,
    keyed,
    unescaped_name,
    xor,
)

_NONCE_BYTES: Final = 24
_FIRST: Final = re.compile(
    r"(?P<gs2>[ny],(?:a=(?P<authzid>[^,]+))?,)"
    r"(?P<bare>(?:m=[^,\0]*,)?n=(?P<name>[^,]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    r"(?P<extensions>(?:,[A-Za-z]+=[^,\0]+)*))"
)
_FINAL: Final = re.compile(
    r"(?P<bare>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    r"(?:,[A-Za-z]+=[^,\0]+)*),p=(?P<proof>[A-Za-z0-9+/=]+)"
)


class Found(NamedTuple):
    """A credential, or one made up for a user who has none."""

    credential: ScramCredential
    is_real: bool


Find = Callable[[str], Found]


def new_nonce() -> str:
    """A nonce that no one can guess, of printable characters without a comma."""
    return secrets.token_urlsafe(_NONCE_BYTES)


class ScramServer:
    """One exchange: `first`, then `final`; `user` is who it is once `final` has returned."""

    def __init__(
        self, mechanism: Mechanism, find: Find, nonce: Callable[[], str] = new_nonce
    ) -> None:
        self.user = ""
        """The claimed name; true once `final` has returned."""
        self._mechanism = mechanism
        self._find = find
        self._own_nonce = nonce
        self._nonce = ""
        self._binding = b""
        self._auth_message = b""
        self._found: Found | None = None

    def first(self, message: bytes) -> bytes:
        """The answer to the first message. Raises `SaslError`."""
        match = _FIRST.fullmatch(_text(message, self._mechanism))
        user = None if match is None else unescaped_name(match["name"])
        if match is None or user is None or _wants_token(match["extensions"]):
            raise failed(self._mechanism)
        if match["authzid"] is not None and unescaped_name(match["authzid"]) != user:
            raise refused_authorization_id()
        found = self._find(user)
        self.user, self._found = user, found
        self._binding = match["gs2"].encode()
        self._nonce = match["nonce"] + self._own_nonce()
        salt = base64.b64encode(found.credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={found.credential.iterations}"
        self._auth_message = f"{match['bare']},{answer},".encode()
        return answer.encode()

    def final(self, message: bytes) -> bytes:
        """The answer to the last message: the client has proved that it knows the password.

        Raises `SaslError`.
        """
        match, found = _FINAL.fullmatch(_text(message, self._mechanism)), self._found
        if match is None or found is None:
            raise failed(self._mechanism)
        mechanism, credential = self._mechanism, found.credential
        auth_message = self._auth_message + match["bare"].encode()
        signature = keyed(mechanism, credential.stored_key, auth_message)
        proof = _decoded(match["proof"])
        is_proof = len(proof) == len(signature) and hmac.compare_digest(
            digest(mechanism, xor(proof, signature)), credential.stored_key
        )
        if not (
            is_proof
            and found.is_real
            and credential.iterations >= ITERATIONS_MIN
            and match["nonce"].endswith(self._nonce)
            and _decoded(match["binding"]) == self._binding
        ):
            raise failed(mechanism)
        verifier = keyed(mechanism, credential.server_key, auth_message)
        return b"v=" + base64.b64encode(verifier)


def _wants_token(extensions: str) -> bool:
    """Whether it asks to log in by a delegation token, which no one can have."""
    return any(one.lower() == "tokenauth=true" for one in extensions.split(","))


def _text(message: bytes, mechanism: Mechanism) -> str:
    if len(message) > TOKEN_BYTES_MAX:
        raise SaslError("Authentication failed: the token is too long")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise failed(mechanism) from None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""
