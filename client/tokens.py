"""Tokens for log-ins by OAUTHBEARER: which one to show now, for all connections of a process.

A token from an endpoint or a callback is shown until `RENEWED_AT` of its time has passed, by one request for all
connections that need it. If no new one can be had then, the old one is shown while it is valid, and a connection
that has none fails; the server is not asked again before a pause, which doubles. Used from several threads.
"""

from __future__ import annotations

import base64
import functools
import json
import math
import re
import threading
import time
from pathlib import Path
from typing import Final

from echoless.client.connection_errors import AuthenticationError, ConnectionFailedError
from echoless.client.security import TokenLogin

RENEWED_AT: Final = 0.8
"""The part of a token's time after which another one is requested, as in Java's client."""
LEFT_S_MIN: Final = 2.0
"""A token that ends sooner is not shown instead of a new one."""
_PAUSE_S_MIN: Final = 0.1
_PAUSE_S_MAX: Final = 10.0
_FILE_BYTES_MAX: Final = 64 * 1024
_LOGINS_MAX: Final = 64
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")


def current_token(login: TokenLogin) -> str:
    """A token to show now. May take seconds.

    Raises `ConnectionFailedError`; `AuthenticationError` if another attempt would fail, too.
    """
    if login.endpoint is None and login.callback is None:
        return _checked(_read(login.file) if login.file else login.token, login)
    return _shared(login).current()


def forget_token(login: TokenLogin) -> None:
    """A broker has refused the token: it is not shown again if there is a way to another."""
    if login.endpoint is not None or login.callback is not None:
        _shared(login).forget()


@functools.lru_cache(maxsize=_LOGINS_MAX)
def _shared(login: TokenLogin) -> _Tokens:
    return _Tokens(login)


class _Tokens:
    """The tokens of one endpoint or callback. Times are those of the monotonic clock."""

    def __init__(self, login: TokenLogin) -> None:
        self._login = login
        self._lock = threading.Lock()
        self._token = ""
        self._renewed_at = 0.0
        self._ends_at = 0.0
        self._failure = ""
        self._pause_s = 0.0
        self._asked_again_at = 0.0

    def current(self) -> str:
        with self._lock:
            now = time.monotonic()
            if self._token and now < self._renewed_at:
                return self._token
            try:
                self._renew(now)
            except AuthenticationError:
                raise
            except ConnectionFailedError as error:
                if now < self._ends_at - LEFT_S_MIN:
                    return self._token
                raise ConnectionFailedError(str(error)) from error
            return self._token

    def forget(self) -> None:
        with self._lock:
            self._token, self._renewed_at, self._ends_at = "", 0.0, 0.0

    def _renew(self, now: float) -> None:
        if now < self._asked_again_at:
            raise ConnectionFailedError(self._failure)
        try:
            issued, valid_s = self._obtain()
            token = _checked(issued, self._login)
        except ConnectionFailedError as error:
            self._pause_s = min(max(self._pause_s * 2, _PAUSE_S_MIN), _PAUSE_S_MAX)
            self._failure, self._asked_again_at = str(error), time.monotonic() + self._pause_s
            raise
        known = (one for one in (valid_s, seconds_left(token)) if one is not None)
        lasts_s = min(known, default=0.0)
        self._token, self._pause_s = token, 0.0
        self._renewed_at, self._ends_at = now + lasts_s * RENEWED_AT, now + lasts_s

    def _obtain(self) -> tuple[object, float | None]:
        if self._login.endpoint is not None:
            from echoless.client.token_endpoint import request_token  # noqa: PLC0415  80 ms that few need

            return request_token(self._login.endpoint)
        assert self._login.callback is not None
        try:
            return self._login.callback(), None
        except Exception as error:  # it is the caller's code
            raise ConnectionFailedError(
                f"the callback for tokens failed: {type(error).__name__}"
            ) from error


def seconds_left(token: str) -> float | None:
    """The time for which a JSON Web Token says that it is valid; None if it does not say, or is another kind of token."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        ends_at = json.loads(base64.urlsafe_b64decode(padded))["exp"]
        left_s = float(ends_at) - time.time()
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    return left_s if math.isfinite(left_s) else None


def _read(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            return file.read(_FILE_BYTES_MAX).decode("ascii", "replace").strip()
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise AuthenticationError(f"cannot read the token in {path}: {reason}") from error


def _checked(token: object, login: TokenLogin) -> str:
    """The token, if it may be sent as one. Raises `AuthenticationError`, without it."""
    if not isinstance(token, str) or _TOKEN.fullmatch(token) is None:
        raise AuthenticationError(
            f"{login} is none: a bearer token has letters, digits and . _ ~ + / - only"
        )
    return token
