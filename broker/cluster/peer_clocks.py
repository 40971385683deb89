"""The clocks of the other brokers, beside this one's: may this broker delete by the time of day?

A broker whose clock is ahead takes fresh records and offsets for old ones, and deletes them on all replicas. So its
clock is compared with those of all registered brokers in each round of housekeeping, by the hello of the native port; a
broker that has been compared once counts for an hour, for it may be down just now. Being behind deletes too late, which
does no harm, and is logged by the broker that is ahead.

Invariant: a broker deletes nothing by time whose clock is known to be further ahead than `DIFFERENCE_MS_MAX`.

A broker with a new data directory, whose clock nothing vouches for, waits for the first comparison, for an hour at most.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final

from echoless.broker.clock import CONFIRMATION_MS, NOT_COMPARED, Clock
from echoless.broker.cluster.view import ClusterView
from echoless.broker.replication.peer_connection import PEER_CLIENT_ID, PeerError
from echoless.broker.replication.peers import Peers
from echoless.protocol.errors import DecodeError, KafkaError
from echoless.protocol.native.messages import VERSION_MAX
from echoless.protocol.native.replication import read_clock_of_hello

DIFFERENCE_MS_MAX: Final = 60_000
"""A clock that is further ahead of another broker's is in doubt: one of the two is wrong."""
ANSWER_S: Final = 1.0


class PeerClocks:
    """The comparisons of one broker."""

    def __init__(
        self, broker_id: int, view: ClusterView, peers: Peers, *, is_new_directory: bool
    ) -> None:
        self._broker_id = broker_id
        self._view = view
        self._peers = peers
        self._needs_one = is_new_directory
        """Whether nothing vouches for the clock before the first comparison."""
        self._began_ms: int | None = None
        self._ahead: dict[int, tuple[int, int]] = {}
        """By how much this broker's clock is ahead of another's, and when that was found, by broker id."""

    async def doubt(self, clock: Clock) -> str | None:
        """Compares the clocks; says why nothing may be deleted by time, None if it may."""
        others = [one for one in self._view.live.brokers if one != self._broker_id]
        await asyncio.gather(*(self._compare(one, clock) for one in others))
        now_ms = clock.steady_ms()
        self._began_ms = now_ms if self._began_ms is None else self._began_ms
        for broker_id, (_, found_ms) in list(self._ahead.items()):
            if now_ms - found_ms > CONFIRMATION_MS:
                del self._ahead[broker_id]
        if others and not self._ahead and self._needs_one:
            self._needs_one = now_ms - self._began_ms < CONFIRMATION_MS
            return NOT_COMPARED if self._needs_one else None
        self._needs_one = False
        return self._disagreement()

    @property
    def ahead_ms(self) -> dict[int, int]:
        """Milliseconds that this broker's clock is ahead of each other one's, by broker id; negative where it is behind.

        The way of the question counts as being behind, up to `ANSWER_S`.
        """
        return {one: ahead for one, (ahead, _) in self._ahead.items()}

    def _disagreement(self) -> str | None:
        wrong = {one: ahead for one, ahead in self.ahead_ms.items() if ahead > DIFFERENCE_MS_MAX}
        if not wrong:
            return None
        most = max(wrong, key=wrong.__getitem__)
        return (
            f"this broker's clock is {timedelta(milliseconds=wrong[most])} ahead of that of broker {most}, "
            f"{len(wrong)} in all; set the clocks right, so that they differ by no more than "
            f"{DIFFERENCE_MS_MAX // 1000} s"
        )

    async def _compare(self, broker_id: int, clock: Clock) -> None:
        """An older broker does not say what its clock shows, one that is down nothing at all."""
        address = self._view.native_address(broker_id)
        if address is None:
            return
        hello = {"type": "hello", "version": VERSION_MAX, "client_id": PEER_CLIENT_ID}
        asked_ms = clock.trusted_wall_ms()
        try:
            answer = await self._peers.call(broker_id, address, hello, timeout_s=ANSWER_S)
            clock_ms = read_clock_of_hello(answer)
        except (PeerError, KafkaError, DecodeError):
            return
        if (
            clock_ms is not None
        ):  # asked before it was read: a slow answer does not put this clock ahead
            self._ahead[broker_id] = asked_ms - clock_ms, clock.steady_ms()
