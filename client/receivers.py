"""Receivers of a broker's answers on a `PipelinedConnection`."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from echoless.protocol.produce_response import ProducedRow


class Receiver(Protocol):
    """Receiver of the answer to one request."""

    def take(self, answer: Any) -> None:
        """Takes kio's entity, or the rows of Produce. Raises `DecodeError` if it is another request's."""

    def fail(self, error: Exception) -> None:
        """Fails the request: there will be no answer."""


class RowReceiver(Protocol):
    """Receiver of one partition's row of the answer to Produce. Neither method raises."""

    def take(self, row: ProducedRow) -> None: ...

    def fail(self, error: Exception) -> None:
        """Fails the batch: there will be no answer."""


class WholeAnswer:
    """Hands the answer over unchanged."""

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self.future = future

    def take(self, answer: Any) -> None:
        if not self.future.done():
            self.future.set_result(answer)

    def fail(self, error: Exception) -> None:
        fail_future(self.future, error)


def fail_future(future: asyncio.Future[Any], error: Exception) -> None:
    """Fails the future, unless it already has an outcome."""
    if not future.done():
        future.set_exception(error)
        future.exception()  # no one may be waiting any more
