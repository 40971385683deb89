"""A broker without a disk whose decisions come as fast as a test says."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Self

from echoless.broker.admin.server import AdminServer
from echoless.broker.config.values import Address
from echoless.broker.decisions.events import BatchDecision
from echoless.broker.network.server import bind, bound_address
from echoless.protocol.record_batch import BatchHeader
from tests.broker.admin.fake_broker import FakeBroker

_PER_SECOND = 50


class FloodingBroker:
    """The admin port of a fake broker, on a loop in a thread of its own."""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._broker = FakeBroker()
        listener = bind("admin_listen", Address("127.0.0.1", 0))
        self.url = f"http://{bound_address(listener)}"
        self._server = AdminServer(listener, self._broker)
        self._call(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def pour(self, count: int, *, seconds: float, lost: int) -> None:
        """Decides `count` times within `seconds`, evenly; `lost` more find the reader's queue full."""
        self._call(self._pour(count, seconds, lost))

    def tell_kind(self, kind: str) -> None:
        """Tells of a decision that this version does not make."""
        self._call(self._tell_kind(kind))

    def _call(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _start(self) -> None:
        self._server.start()

    async def _tell_kind(self, kind: str) -> None:
        self._broker.decisions._tell(_outcome(1)._replace(outcome=kind))

    async def _pour(self, count: int, seconds: float, lost: int) -> None:
        decisions = self._broker.decisions
        steps = int(seconds * _PER_SECOND)
        for step in range(steps):
            for number in range(step * count // steps, (step + 1) * count // steps):
                decisions._number = (
                    number + 1
                )  # as `record` does; here no pace bounds what is shown
                decisions._tell(_outcome(number + 1))
            await asyncio.sleep(1 / _PER_SECOND)
        for stream in decisions._streams:
            stream._lost += lost
            stream._has_news.set()


def _outcome(number: int) -> BatchDecision:
    """One appended batch of a producer that sends forever."""
    header = BatchHeader(0, 100, 0, 2, 5, 0, 1, 0, 0, 7, 2, number * 2, 2)
    sender = "billing", "10.0.0.1:5000", "User:ANONYMOUS", 1, number
    return BatchDecision(
        *(number, number, "orders", 0, header, *sender, "append", number * 2),
        window=((0, 1), (2, 3), (4, 5), (6, 7), (8, 9)),
    )
