"""The bearer tokens of the admin port, from the file that `admin_token_file` names.

A token a line, then its role (`change`, or `read`) and its principal, both of which may be missing:

    # comment
    q3bVvnsS0lD2Zx8KfWm1uA    change   User:operator
    9tq1XrGhe4wPjDk7LsYc0Q    read     User:monitoring

Errors name the line and never its text. Imports no aiohttp: `serve` reads the file at its start, and commands
take their token from it too.
"""

from __future__ import annotations

import enum
import hmac
import logging
import os
import re
import time
from functools import partial
from typing import Final, NamedTuple

from echoless.broker.config.loading import ConfigError
from echoless.broker.network.request import ANONYMOUS
from echoless.broker.network.turns import in_thread

logger: Final = logging.getLogger(__name__)

TOKEN_LENGTH_MIN: Final = 16
"""Shorter ones can be guessed."""
LOOK_INTERVAL_S: Final = 1.0
"""Interval between looks at the file, while there are requests or followers."""
_FILE_BYTES_MAX: Final = 64 * 1024
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""The characters that RFC 6750 allows in `Authorization: Bearer`."""
_OPTION: Final = "admin_token_file"
_LINE: Final = f"TOKEN [read|change [TYPE:NAME]], a token of {TOKEN_LENGTH_MIN} or more of A-Z a-z 0-9 . _ ~ + / -"


class Role(enum.StrEnum):
    """The rights of a bearer of a token."""

    READ = "read"
    CHANGE = "change"


class Token(NamedTuple):
    """One line of the file."""

    secret: str
    role: Role
    principal: str
    """The principal of its bearers, as ACLs name it."""


def read_tokens(path: str) -> tuple[Token, ...]:
    """The tokens of a file, at least one. Raises `ConfigError`."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib costs 10 ms before the ready line
            data = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{_OPTION}: cannot read {path}: {error.strerror}") from error
    if len(data) > _FILE_BYTES_MAX:
        raise ConfigError(f"{_OPTION}: {path} has more than {_FILE_BYTES_MAX} bytes")
    found: dict[str, Token] = {}
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        words = line.split(maxsplit=2)
        if not words or words[0].startswith("#"):
            continue
        token = _token(words)
        if token is None:
            raise ConfigError(f"{_OPTION}: {path}, line {number}: takes {_LINE}")
        if token.secret in found:
            raise ConfigError(f"{_OPTION}: {path}, line {number}: this token is there twice")
        found[token.secret] = token
    if not found:
        raise ConfigError(f"{_OPTION}: {path} has no token; a line takes {_LINE}")
    return tuple(found.values())


def _token(words: list[str]) -> Token | None:
    secret = words[0]
    role = words[1] if len(words) > 1 else Role.CHANGE
    principal = words[2].strip() if len(words) > 2 else ANONYMOUS
    kind, _, name = principal.partition(":")
    is_token = len(secret) >= TOKEN_LENGTH_MIN and _TOKEN.fullmatch(secret)
    if not is_token or role not in tuple(Role) or not (kind and name and principal.isprintable()):
        return None
    return Token(secret, Role(role), principal)


class Tokens:
    """The tokens of one broker, read again when their file changes. Single owner: the event loop."""

    def __init__(self, path: str) -> None:
        """Raises `ConfigError` if the file cannot be used."""
        self._path = path
        self._stamp = _stamp(path)
        self._tokens = read_tokens(path)
        self._looked_at = time.monotonic()

    async def find(self, secret: str) -> Token | None:
        """The token, if it is one."""
        await self._look_again()
        given, found = secret.encode("utf-8", "replace"), None
        for token in self._tokens:  # all of them: how long it takes tells nothing
            if hmac.compare_digest(token.secret.encode(), given):
                found = token
        return found

    async def has(self, token: Token) -> bool:
        """Whether a token that was found is still there, with the same role and principal."""
        found = await self.find(token.secret)
        return found is not None and found[1:] == (token.role, token.principal)

    async def _look_again(self) -> None:
        """Takes over a changed file; if it cannot be used, says so and keeps the tokens."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_INTERVAL_S:
            return
        self._looked_at = now
        stamp = await in_thread(partial(_stamp, self._path))
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._tokens = await in_thread(partial(read_tokens, self._path))
        except ConfigError as error:
            logger.error("the tokens in use stay: %s", error)  # noqa: TRY400 - the message says all
        else:
            logger.info("the admin port takes the %d tokens of %s", len(self._tokens), self._path)


def _stamp(path: str) -> tuple[int, int, int] | None:
    """When the file was written, its size, and which one it is; None if it is not there."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)
