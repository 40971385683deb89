"""The exchanges by which a client logs in, one class per mechanism: tokens in, tokens out, and who it is in the end.

`session.py` makes one for each log-in and gives it the tokens. The exchange of OAUTHBEARER is in `bearer.py`, which
not every broker needs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from echoless.broker.authentication.credentials import Credentials
from echoless.protocol.sasl.mechanism import Mechanism
from echoless.protocol.sasl.plain import read_plain, wrong_password
from echoless.protocol.sasl.scram import fits_password
from echoless.protocol.sasl.scram_server import ScramServer

Check = Callable[[Callable[[], bool]], Awaitable[bool]]
"""Does what takes milliseconds in a thread; the client's address waits for its turn."""


class SaslExchange(Protocol):
    """One log-in."""

    @property
    def user(self) -> str:
        """The claimed name, once it is known; true when `is_complete`."""

    @property
    def is_complete(self) -> bool:
        """Whether the client has logged in."""

    @property
    def lifetime_s(self) -> float | None:
        """The time that the client's proof was still valid for when it was checked; None: it has no end."""

    def take(self, token: bytes) -> bytes | Awaitable[bytes]:
        """The answer to the client's next token, at once or later. Raises `SaslError`."""


class PlainExchange:
    """A password, compared with the user's SCRAM credential in a thread: that takes milliseconds on purpose."""

    def __init__(self, credentials: Credentials, check: Check) -> None:
        self.user = ""
        self.is_complete = False
        self.lifetime_s: float | None = None
        self._credentials = credentials
        self._check = check

    async def take(self, token: bytes) -> bytes:
        """Raises `SaslError`."""
        claimed = read_plain(token)
        self.user = claimed.user
        mechanism, found = self._credentials.strongest(claimed.user)
        fits = await self._check(
            partial(fits_password, mechanism, found.credential, claimed.password)
        )
        if not (fits and found.is_real):
            raise wrong_password()
        self.is_complete = True
        return b""


class ScramExchange:
    """Two tokens, neither of which is the password."""

    def __init__(self, mechanism: Mechanism, credentials: Credentials) -> None:
        self.is_complete = False
        self.lifetime_s: float | None = None
        self._server = ScramServer(mechanism, lambda user: credentials.find(user, mechanism))
        self._has_begun = False

    @property
    def user(self) -> str:
        return self._server.user

    def take(self, token: bytes) -> bytes:
        """Raises `SaslError`."""
        if not self._has_begun:
            self._has_begun = True
            return self._server.first(token)
        answer = self._server.final(token)
        self.is_complete = True
        return answer
