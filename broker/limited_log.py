"""Limits for log lines that other machines can provoke: on their number per kind and address, and on their length.

A kind is a message without its arguments. An address may cause `BURST` lines of a kind at once and one
a second from then on; every `SUMMARY_S` seconds a line says how many were suppressed. Memory is
bounded: addresses of a kind beyond `ADDRESSES_MAX` share the allowance of a single address.

`RetryLog` has far smaller limits, for what the broker itself tries again and again while the coordinator or
another broker is away: the first lines say what is wrong, and the rest only that it still is.

Anything that must be counted exactly is counted in `metrics.py`, never here. Single owner: the event
loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from typing import Final, NamedTuple

BURST: Final = 100
LINES_PER_S: Final = 1.0
RETRY_BURST: Final = 3
RETRY_LINES_PER_S: Final = 1 / 30
RETRY_SUMMARY_S: Final = 60.0
SUMMARY_S: Final = 10.0
ADDRESSES_MAX: Final = 256
OTHERS: Final = "other addresses"
COORDINATOR: Final = "the coordinator"
ARGUMENT_LENGTH_MAX: Final = 1000
"""Characters of an argument, which may be what a client has sent, in a line."""

_all: Final[weakref.WeakSet[LimitedLog]] = weakref.WeakSet()


class Limits(NamedTuple):
    """The allowance of an address for a kind of line, and the seconds between summaries."""

    burst: int
    lines_per_s: float
    summary_s: float


class _Allowance:
    """The allowance of one address for one kind of line."""

    __slots__ = ("left", "suppressed", "updated_s")

    def __init__(self, now_s: float, burst: int) -> None:
        self.left = float(burst)
        self.suppressed = 0
        self.updated_s = now_s


class LimitedLog:
    """A logger for one module's lines about other machines."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._kinds: dict[str, dict[str, _Allowance]] = {}
        self._is_summary_due = False
        _all.add(self)

    @property
    def _limits(self) -> Limits:
        return Limits(BURST, LINES_PER_S, SUMMARY_S)

    def log(
        self,
        level: int,
        host: str,
        message: str,
        *arguments: object,
        exc_info: BaseException | None = None,
    ) -> None:
        """Logs the line unless this host has used up its allowance for this `message`."""
        if not self._logger.isEnabledFor(level):
            return
        allowance = self._allowance(message, host)
        if allowance.left >= 1:
            allowance.left -= 1
            self._logger.log(level, message, *map(_short, arguments), exc_info=exc_info)
        else:
            allowance.suppressed += 1
            self._plan_summary()

    def _allowance(self, message: str, host: str) -> _Allowance:
        now_s = time.monotonic()
        addresses = self._kinds.setdefault(message, {})
        if host not in addresses and len(addresses) >= ADDRESSES_MAX:
            self._forget_the_quiet(addresses, now_s)
            if len(addresses) >= ADDRESSES_MAX:
                host = OTHERS
        found = addresses.get(host)
        if found is None:
            found = addresses[host] = _Allowance(now_s, self._limits.burst)
        self._refill(found, now_s)
        return found

    def _refill(self, allowance: _Allowance, now_s: float) -> None:
        limits = self._limits
        more = (now_s - allowance.updated_s) * limits.lines_per_s
        allowance.left = min(allowance.left + more, limits.burst)
        allowance.updated_s = now_s

    def _forget_the_quiet(self, addresses: dict[str, _Allowance], now_s: float) -> None:
        """Drops the addresses that have been quiet long enough to have their full allowance again."""
        for host, allowance in list(addresses.items()):
            self._refill(allowance, now_s)
            if allowance.left >= self._limits.burst and not allowance.suppressed:
                del addresses[host]

    def _plan_summary(self) -> None:
        if not self._is_summary_due:
            self._is_summary_due = True
            asyncio.get_running_loop().call_later(self._limits.summary_s, self.summarise)

    def summarise(self) -> None:
        """Logs how many lines were suppressed, by kind and address."""
        self._is_summary_due = False
        for message, addresses in self._kinds.items():
            for host, allowance in addresses.items():
                if allowance.suppressed:
                    self._logger.warning(
                        "%d more lines about %s were left out: %s",
                        allowance.suppressed,
                        host,
                        message,
                    )
                    allowance.suppressed = 0

    def forget(self) -> None:
        """Resets everything, as after a start."""
        self._kinds.clear()
        self._is_summary_due = False


class RetryLog(LimitedLog):
    """A logger for what this broker tries again until it succeeds; the other machine stands for the address."""

    @property
    def _limits(self) -> Limits:
        return Limits(RETRY_BURST, RETRY_LINES_PER_S, RETRY_SUMMARY_S)


def _short(argument: object) -> object:
    if isinstance(argument, int | float):
        return argument
    text = str(argument)
    left_out = len(text) - ARGUMENT_LENGTH_MAX
    return text if left_out <= 0 else f"{text[:ARGUMENT_LENGTH_MAX]}... ({left_out} more)"


def forget_all() -> None:
    """Resets every module's limits: for tests, which share a process."""
    for one in _all:
        one.forget()
