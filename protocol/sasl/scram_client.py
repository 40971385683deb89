"""The client's side of SCRAM. Checks that the server knows the user as well, and bounds what it may demand."""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Callable
from typing import Final

from echoless.protocol.sasl.mechanism import Mechanism, SaslError
from echoless.protocol.sasl.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    credential_of,
    digest,
    escaped_name,
    keyed,
    salted_password,
    xor,
)
from echoless.protocol.sasl.scram_server import new_nonce

_GS2: Final = "n,,"
_FIRST: Final = re.compile(r"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/=]+),i=([0-9]{1,9})(?:,.*)?")


class ScramClient:
    """One exchange: send `first`, then `final` of the answer, then `check` the last answer."""

    def __init__(
        self,
        mechanism: Mechanism,
        user: str,
        password: str,
        nonce: Callable[[], str] = new_nonce,
    ) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce()
        self._bare = f"n={escaped_name(user)},r={self._nonce}"
        self._verifier = b""

    def first(self) -> bytes:
        """The first message."""
        return f"{_GS2}{self._bare}".encode()

    def final(self, answer: bytes) -> bytes:
        """The last message. Takes milliseconds. Raises `SaslError` if the answer makes no sense."""
        text = answer.decode(errors="replace")
        match = _FIRST.fullmatch(text)
        if match is None or not match[1].startswith(self._nonce) or match[1] == self._nonce:
            raise SaslError(f"the server's first {self._mechanism} message makes no sense")
        iterations = int(match[3])
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise SaslError(
                f"the server asks for {iterations} iterations; "
                f"{ITERATIONS_MIN} to {ITERATIONS_MAX} are allowed"
            )
        mechanism, salt = self._mechanism, _decoded(match[2])
        salted = salted_password(mechanism, self._password, salt, iterations)
        credential = credential_of(mechanism, salted, salt, iterations)
        binding = base64.b64encode(_GS2.encode()).decode()
        last = f"c={binding},r={match[1]}"
        auth_message = f"{self._bare},{text},{last}".encode()
        client_key = keyed(mechanism, salted, b"Client Key")
        assert digest(mechanism, client_key) == credential.stored_key
        proof = xor(client_key, keyed(mechanism, credential.stored_key, auth_message))
        self._verifier = keyed(mechanism, credential.server_key, auth_message)
        return f"{last},p={base64.b64encode(proof).decode()}".encode()

    def check(self, answer: bytes) -> None:
        """Raises `SaslError` unless the server has proved that it knows the user."""
        text = answer.decode(errors="replace")
        found = _decoded(text.removeprefix("v=").partition(",")[0])
        if not text.startswith("v=") or not hmac.compare_digest(found, self._verifier):
            raise SaslError("the server does not know the password: it may be another server")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""
