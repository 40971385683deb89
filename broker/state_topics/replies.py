"""The requests that a coordinator has not answered yet, by the number with which it will."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from echoless.broker.network.promise import Promise

Request = TypeVar("Request")
Answer = TypeVar("Answer")


class AwaitedReply(Promise, Generic[Request, Answer]):
    """The answer to a request, once the coordinator has given it."""

    __slots__ = ("_abandoned", "_error", "given", "reply_id", "request")

    def __init__(self, reply_id: int, request: Request, abandoned: Callable[[int], None]) -> None:
        super().__init__()
        self.reply_id = reply_id
        self.request = request
        self.given: Answer | None = None
        self._error: Exception | None = None
        self._abandoned = abandoned

    def give(self, answer: Answer) -> None:
        """Makes the answer ready."""
        self.given = answer
        self._become_ready()

    def fail(self, error: Exception) -> None:
        """Raises the error where the answer is taken."""
        self._error = error
        self._become_ready()

    def abandon(self) -> None:
        """Ends the wait: the client is gone. Does nothing once the answer is given."""
        if not self.is_ready:
            self._abandoned(self.reply_id)

    def _result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self.given


class Replies(Generic[Request, Answer]):
    """The replies that one coordinator owes. Belongs to the event loop."""

    def __init__(self, abandoned: Callable[[int], None]) -> None:
        """`abandoned` is called with the number of a request whose client has gone."""
        self._abandoned = abandoned
        self._awaited: dict[int, AwaitedReply[Request, Answer]] = {}
        self._last_id = 0

    def expect(self, request: Request) -> AwaitedReply[Request, Answer]:
        """Gives the request the next number."""
        self._last_id += 1
        awaited: AwaitedReply[Request, Answer]
        awaited = AwaitedReply(self._last_id, request, self._abandon)
        self._awaited[self._last_id] = awaited
        return awaited

    def take(self, reply_id: int) -> AwaitedReply[Request, Answer] | None:
        """Removes a reply that is about to be given; None if its client has gone."""
        return self._awaited.pop(reply_id, None)

    def take_those(
        self, are_meant: Callable[[Request], bool]
    ) -> list[AwaitedReply[Request, Answer]]:
        """Removes the replies to some requests, the oldest first."""
        found = [one for one in self._awaited.values() if are_meant(one.request)]
        for one in found:
            del self._awaited[one.reply_id]
        return found

    def take_all(self) -> list[AwaitedReply[Request, Answer]]:
        """Removes all of them, the oldest first."""
        awaited, self._awaited = self._awaited, {}
        return list(awaited.values())

    def _abandon(self, reply_id: int) -> None:
        if self._awaited.pop(reply_id, None) is not None:
            self._abandoned(reply_id)
