"""Receivers of a broker's answers on a `PipelinedConnection`."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol


class Receiver(Protocol):
    """Receiver of the answer to one request."""

    def take(self, answer: Any) -> None:
        """Takes kio's entity. Raises `DecodeError` if it does not belong to the request."""

    def fail(self, error: Exception) -> None:
        """Fails the request: there will be no answer."""


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
