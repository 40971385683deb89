"""Limits for log lines that other machines can provoke: on their number per kind and address, and on their length.

A kind is a message without its arguments. An address may cause `BURST` lines of a kind at once and one
a second from then on; every `SUMMARY_S` seconds a line says how many were suppressed. Memory is
bounded: addresses of a kind beyond `ADDRESSES_MAX` share the allowance of a single address.

Anything that must be counted exactly is counted in `metrics.py`, never here. Single owner: the event
loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from typing import Final

BURST: Final = 100
LINES_PER_S: Final = 1.0
SUMMARY_S: Final = 10.0
ADDRESSES_MAX: Final = 256
OTHERS: Final = "other addresses"
ARGUMENT_LENGTH_MAX: Final = 1000
"""Characters of an argument, which may be what a client has sent, in a line."""

_all: Final[weakref.WeakSet[LimitedLog]] = weakref.WeakSet()


class _Allowance:
    """The allowance of one address for one kind of line."""

    __slots__ = ("left", "suppressed", "updated_s")

    def __init__(self, now_s: float) -> None:
        self.left = float(BURST)
        self.suppressed = 0
        self.updated_s = now_s

    def refill(self, now_s: float) -> None:
        self.left = min(self.left + (now_s - self.updated_s) * LINES_PER_S, BURST)
        self.updated_s = now_s


class LimitedLog:
    """A logger for one module's lines about other machines."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._kinds: dict[str, dict[str, _Allowance]] = {}
        self._is_summary_due = False
        _all.add(self)

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
            found = addresses[host] = _Allowance(now_s)
        found.refill(now_s)
        return found

    @staticmethod
    def _forget_the_quiet(addresses: dict[str, _Allowance], now_s: float) -> None:
        """Drops the addresses that have been quiet long enough to have their full allowance again."""
        for host, allowance in list(addresses.items()):
            allowance.refill(now_s)
            if allowance.left >= BURST and not allowance.suppressed:
                del addresses[host]

    def _plan_summary(self) -> None:
        if not self._is_summary_due:
            self._is_summary_due = True
            asyncio.get_running_loop().call_later(SUMMARY_S, self.summarise)

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
