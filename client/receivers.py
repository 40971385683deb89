"""Who gets what a broker answers to a request on a `PipelinedConnection`."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol


class Receiver(Protocol):
    """Of one request."""

    def take(self, answer: Any) -> None:
        """kio's entity. Raises `DecodeError` where it does not belong to the request."""

    def fail(self, error: Exception) -> None:
        """There will be no answer. Whoever waits is told; it may be nobody."""


class WholeAnswer:
    """Hands the answer over as it is."""

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self.future = future

    def take(self, answer: Any) -> None:
        if not self.future.done():
            self.future.set_result(answer)

    def fail(self, error: Exception) -> None:
        fail_future(self.future, error)


def fail_future(future: asyncio.Future[Any], error: Exception) -> None:
    """Unless it has its outcome already."""
    if not future.done():
        future.set_exception(error)
        future.exception()  # nobody may be waiting any more
