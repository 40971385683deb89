"""One thread that opens records when there are too many to open on the event loop.

A batch of a few KB may hold a million records. Decompression releases the interpreter; the walk over
records does not, but yields it every `SWITCH_INTERVAL_S` (set by `serve.py`). There is one thread,
because each further one would make the loop wait for one more turn, and so that only one batch at a
time is expanded in memory. The queue is bounded by the connections: each has one request here at a
time (`produce_turn.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from broker.threads import Workers

SWITCH_INTERVAL_S: Final = 0.0005
"""How long the loop waits for the interpreter while the thread works; Python's default is 5 ms."""

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class RecordThread:
    """The thread of one broker."""

    def __init__(self) -> None:
        self._thread = Workers("records", 1)

    def start(self) -> None:
        """Starts the thread; otherwise the first call does. Raises `OutOfThreadsError`."""
        self._thread.start()

    async def run(
        self,
        function: Callable[_Arguments, _Result],
        *args: _Arguments.args,
        **kwargs: _Arguments.kwargs,
    ) -> _Result:
        """Returns or raises what `function` does. It must touch nothing that the loop changes."""
        return await self._thread.run(functools.partial(function, *args, **kwargs))

    def stop(self) -> None:
        """Drops calls that have not started; their callers are gone."""
        self._thread.stop()
