"""The bytes of answers that wait in memory because clients are slow to read them.

Consumers may leave large fetch answers unread. An address may use at most half of the room, so that
one that reads nothing does not shrink the fetches of others; and once `_CROWDED_PART` of the room is
used, connections that read nothing for `SILENCE_S` are closed, those of the address with most unsent
first, so what is left is always enough for large answers.

Connections report what they hold; fetches ask `room` before they read. Single owner: the event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Final, Protocol

UNSENT_BYTES_MAX: Final = 220 * 1024 * 1024
"""About 27 of the largest fetch answers; near the limit, fetches get one batch each."""
SILENCE_S: Final = 1.0
SWEEP_INTERVAL_S: Final = 0.25
_CROWDED_PART: Final = 3 / 8
"""One answer of the largest size may stay unread for as long as its client likes."""


class Recipient(Protocol):
    """A connection with answers that its client has not read."""

    @property
    def host(self) -> str: ...

    @property
    def untaken_bytes(self) -> int:
        """Bytes that are unsent now; falls as the client reads them."""

    def give_up(self, reason: str) -> None:
        """Closes the connection at once and counts its answers as gone."""


class _Account:
    """The bytes that one recipient has not read, and when it last read some."""

    __slots__ = ("bytes", "seen", "taken_s")

    def __init__(self, now_s: float) -> None:
        self.bytes = 0
        self.seen = 0
        self.taken_s = now_s


class UnsentAnswers:
    """The answers of all connections of one broker."""

    def __init__(self, bytes_max: int, now_s: Callable[[], float] = time.monotonic) -> None:
        self.bytes_max = bytes_max
        self.total = 0
        self.evicted_total = 0
        """Connections closed because they read no answers while much was unsent."""
        self._now_s = now_s
        self._accounts: dict[Recipient, _Account] = {}
        self._by_host: defaultdict[str, int] = defaultdict(int)
        self._is_sweep_due = False

    def room(self, host: str) -> int:
        """Bytes that the next answer for this host may have; can be negative."""
        return min(self.bytes_max // 2 - self._by_host.get(host, 0), self.bytes_max - self.total)

    def count(self, recipient: Recipient, change: int) -> None:
        """Notes that the recipient has `change` bytes more, or fewer if negative."""
        if not change:
            return
        account = self._accounts.get(recipient)
        if account is None:
            account = self._accounts[recipient] = _Account(self._now_s())
        account.bytes += change
        self.total += change
        self._by_host[recipient.host] += change
        assert account.bytes >= 0, "more answers were taken than given"
        if not account.bytes:
            del self._accounts[recipient]
        if not self._by_host[recipient.host]:
            del self._by_host[recipient.host]
        if self._is_crowded and not self._is_sweep_due:
            self._is_sweep_due = True
            asyncio.get_running_loop().call_later(SWEEP_INTERVAL_S, self._sweep_again)

    @property
    def _is_crowded(self) -> bool:
        return self.total > self.bytes_max * _CROWDED_PART

    def _sweep_again(self) -> None:
        self._is_sweep_due = False
        self.sweep()
        if self._is_crowded and not self._is_sweep_due:
            self._is_sweep_due = True
            asyncio.get_running_loop().call_later(SWEEP_INTERVAL_S, self._sweep_again)

    def sweep(self) -> None:
        """Closes connections that read nothing, until at most `_CROWDED_PART` of the room is used."""
        now_s = self._now_s()
        silent = []
        for number, (recipient, account) in enumerate(self._accounts.items()):
            left = recipient.untaken_bytes
            if left < account.seen:
                account.taken_s = now_s
            account.seen = left
            if account.taken_s + SILENCE_S <= now_s:
                silent.append((-self._by_host[recipient.host], account.taken_s, number, recipient))
        for *_, recipient in sorted(silent):
            if not self._is_crowded:
                return
            unsent = self._accounts[recipient].bytes
            self.evicted_total += 1
            recipient.give_up(
                f"it took none of its {unsent} bytes of answers for {SILENCE_S:g} s, "
                "and they leave too little memory for others"
            )
