"""Requests that arrive while a shard cannot answer, and their turns once it can: it loads, or its lead is in doubt.

Processed in one step of the event loop, a thousand commits would hold it for 32 ms. So they take turns, and what arrives
meanwhile goes behind them: overtaken by a later commit, one would take back what that stored.

Invariant: requests are processed in the order in which they came.

Invariant: once the shard answers again, each arrival leaves one request fewer than it found: it adds itself and has two
processed. So the queue ends however fast others come.

Used by `Shard`, which decides what processing means, and what is answered to those that wait too long.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, Generic, TypeAlias, TypeVar

from echoless.broker.network.promise import Promise

HELD_MAX: Final = 1000
"""Requests of one shard that may wait until it can answer."""
HELD_S: Final = 1.0
"""Time that a request waits for that."""

Request = TypeVar("Request")
Answer = TypeVar("Answer")
Answered: TypeAlias = Answer | Awaitable[Answer]
"""An answer, at once or later."""


class _Held(Promise, Generic[Request, Answer]):
    """The answer to a held request: what processing returns, once that is ready."""

    __slots__ = ("_answered", "_error", "_forget", "request")

    def __init__(
        self, request: Request, forget: Callable[[_Held[Request, Answer]], object]
    ) -> None:
        super().__init__()
        self.request = request
        self._forget = forget
        self._answered: Answer | Promise | None = None
        self._error: Exception | None = None

    @property
    def answered(self) -> Answered[Answer]:
        """The answer if there is one, else the promise of it."""
        return self.answer() if self.is_ready else self

    def give(self, answered: Answer | Promise) -> None:
        self._answered = answered
        if isinstance(answered, Promise):
            answered.watch(self._become_ready)
        else:
            self._become_ready()

    def fail(self, error: Exception) -> None:
        """Raises the error where the answer is taken."""
        self._error = error
        self._become_ready()

    def abandon(self) -> None:
        """Ends the wait: the client is gone. A request that has not been processed never is."""
        if isinstance(self._answered, Promise):
            self._answered.abandon()
        else:
            self._forget(self)

    def _result(self) -> Any:
        if self._error is not None:
            raise self._error
        answered = self._answered
        return answered.answer() if isinstance(answered, Promise) else answered


class HeldRequests(Generic[Request, Answer]):
    """The requests of one shard that are not processed yet, oldest first. Belongs to the event loop."""

    def __init__(
        self,
        process: Callable[[Request], Answer | Promise],
        refuse: Callable[[Request], Answer],
    ) -> None:
        """`refuse` answers requests for which there is no room, or no more time."""
        self._process = process
        self._refuse = refuse
        self.is_closed = True
        """Whether requests have to wait; `hold` and `turns` change it."""
        self.waiting: OrderedDict[_Held[Request, Answer], None] = OrderedDict()
        """Others only look whether there are any."""

    def __len__(self) -> int:
        return len(self.waiting)

    def hold(self, request: Request) -> Answered[Answer]:
        """Keeps a request until `turns`, unless they come late or many wait already."""
        self.is_closed = True
        if len(self.waiting) >= HELD_MAX:
            return self._refuse(request)
        held = self._add(request)
        asyncio.get_running_loop().call_later(HELD_S, self._give_up, held)
        return held

    def join(self, request: Request) -> Answered[Answer]:
        """Puts a request behind those that wait for their turns, and has two processed."""
        held = self._add(request)
        for _ in range(2):
            self._process_oldest()
        return held.answered

    def turns(self) -> Iterator[None]:
        """The shard can answer: processes one request at each step, until none is left or `hold` closes the queue again."""
        self.is_closed = False
        while self.waiting and not self.is_closed:
            self._process_oldest()
            yield

    def process_all(self) -> None:
        """The shard has ended, and all will be refused: in this step."""
        for _ in self.turns():
            pass

    def _add(self, request: Request) -> _Held[Request, Answer]:
        held: _Held[Request, Answer] = _Held(request, self._forget)
        self.waiting[held] = None
        return held

    def _forget(self, held: _Held[Request, Answer]) -> bool:
        """Returns whether it was not processed yet."""
        if held not in self.waiting:
            return False
        del self.waiting[held]
        return True

    def _give_up(self, held: _Held[Request, Answer]) -> None:
        if self.is_closed and self._forget(held):
            held.give(self._refuse(held.request))

    def _process_oldest(self) -> None:
        if not self.waiting:
            return
        held, _ = self.waiting.popitem(last=False)
        try:
            held.give(self._process(held.request))
        except Exception as error:  # noqa: BLE001 - it is raised where the answer is taken
            held.fail(error)
