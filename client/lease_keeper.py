"""Keeps a lease for each partition of a producer: the task that requests those that are due.

All that are due soon are requested in one message. While no broker answers, it keeps retrying; the
current lease is used to its end meanwhile.

The clock keeps running while the machine sleeps, as the brokers' clocks do (`CLOCK_BOOTTIME`; the
event loop's clock does not), and is never set.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from echoless.client.lease import Lease, PartitionLeases
from echoless.client.lease_request import Leased, NoLeasesError
from echoless.client.topic_partition import TopicPartition
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.native.codec import ENTRIES_MAX

RETRY_S: Final = 1.0
LOOK_S_MAX: Final = 60.0
"""Longest pause between two looks at the clock: it may have moved further than the loop's."""
_TOGETHER_S: Final = 60.0
"""Leases due within this time are requested together."""

Request = Callable[[Sequence[TopicPartition], float], Awaitable[Leased]]
"""Partitions and the current time -> leases; `NoLeasesError` (`request_leases`, given addresses).
"""


def elapsed_s() -> float:
    """Seconds, including time asleep."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # Linux has both
    return time.clock_gettime(clock)


class LeaseKeeper:
    """The leases of one producer. Used from one event loop."""

    def __init__(
        self,
        request: Request,
        partitions: Iterable[TopicPartition] = (),
        *,
        now: Callable[[], float] = elapsed_s,
        on_news: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_news` is called when leases have arrived or were refused."""
        self._request = request
        self._now = now
        self._on_news = on_news
        self._looks = asyncio.Event()
        """Set to end a pause early."""
        self._leases = {partition: PartitionLeases() for partition in partitions}
        self._refusals: dict[TopicPartition, KafkaError] = {}
        """Why the last attempt returned nothing for a partition."""
        self._news = asyncio.Event()
        """Set and replaced when leases have arrived, or were refused."""

    def add(self, partition: TopicPartition) -> None:
        """Adds the partition, or drops the leases that it had: another is requested at once."""
        self._leases[partition] = PartitionLeases()
        self.look()

    def look(self) -> None:
        """Checks now whether anything is due: the clock may have moved further than the loop's."""
        self._looks.set()

    def refusal(self, partition: TopicPartition) -> KafkaError | None:
        """Why there will be no lease for the partition; waiting does not help."""
        found = self._refusals.get(partition)
        return None if found is None or found.code.retriable else found

    def may_send(self, partition: TopicPartition, *, has_outstanding: bool) -> Lease | None:
        """Calls `PartitionLeases.for_new_batch`."""
        return self._leases[partition].for_new_batch(self._now(), has_outstanding=has_outstanding)

    def may_resend(self, lease: Lease) -> bool:
        """Whether a batch already sent under the lease may be resent."""
        return lease.may_resend(self._now())

    async def wait_for_lease(self, partition: TopicPartition) -> Lease:
        """A valid lease, with nothing outstanding; `run` must be running.

        Raises `KafkaError` if a broker refused one in a way that waiting does not cure.
        """
        while True:
            news = self._news
            found = self.may_send(partition, has_outstanding=False)
            if found is not None:
                return found
            refusal = self.refusal(partition)
            if refusal is not None:
                raise refusal
            await news.wait()

    async def run(self) -> None:
        """Requests leases until cancelled."""
        while True:
            self._looks.clear()
            due = self._due()
            has_failed = bool(due) and not await self._obtain(due)
            await self._pause(RETRY_S if has_failed else self._idle_s())

    async def _pause(self, seconds: float) -> None:
        """Sleeps; ended early by `look`."""
        try:
            async with asyncio.timeout(seconds):
                await self._looks.wait()
        except TimeoutError:
            return

    def _due(self) -> list[TopicPartition]:
        """The partitions to request now, if one of them cannot wait."""
        now = self._now()
        if not any(leases.wants_lease(now) for leases in self._leases.values()):
            return []
        soon = [
            partition
            for partition, leases in self._leases.items()
            if leases.wants_lease_at <= now + _TOGETHER_S
        ]
        soon.sort(key=lambda partition: self._leases[partition].wants_lease_at)
        return soon[:ENTRIES_MAX]

    async def _obtain(self, partitions: Sequence[TopicPartition]) -> bool:
        """Requests the leases; returns whether each of them was granted."""
        try:
            leased = await self._request(partitions, self._now())
        except NoLeasesError as error:
            if error.is_refused:
                refusal = KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error))
                self._refusals.update(dict.fromkeys(partitions, refusal))
                self._note_news()
            return False
        for partition, granted in leased.items():
            if isinstance(granted, KafkaError):
                self._refusals[partition] = granted
            else:
                self._refusals.pop(partition, None)
                self._leases[partition].grant(granted)
        self._note_news()
        return not any(isinstance(granted, KafkaError) for granted in leased.values())

    def _note_news(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
        self._on_news()

    def _idle_s(self) -> float:
        due_at = min((leases.wants_lease_at for leases in self._leases.values()), default=None)
        if due_at is None:
            return LOOK_S_MAX
        return min(max(due_at - self._now(), 0.0), LOOK_S_MAX)
