"""Receivers of what a broker answers to a request on a `PipelinedConnection`."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol


class Receiver(Protocol):
    """Receiver of the answer to one request."""

    def take(self, answer: Any) -> None:
        """kio's entity. Raises `DecodeError` where it does not belong to the request."""

    def fail(self, error: Exception) -> None:
        """Tells the caller, if one still waits, that there will be no answer."""


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
        future.exception()  # no one may be waiting any more
