"""One thread that opens records when there are too many to open on the event loop.

A batch of a few KB may hold a million records. Decompression releases the interpreter; the walk over
records does not, but yields it every `SWITCH_INTERVAL_S` (set by `serve.py`). There is one thread,
because each further one would make the loop wait for one more turn, and so that only one batch at a
time is expanded in memory. The queue is bounded by the connections: each has one request here at a
time (`produce_turn.py`).
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

SWITCH_INTERVAL_S: Final = 0.0005
"""How long the loop waits for the interpreter while the thread works; Python's default is 5 ms."""

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class RecordThread:
    """The thread, started by the first call."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None

    async def run(
        self,
        function: Callable[_Arguments, _Result],
        *args: _Arguments.args,
        **kwargs: _Arguments.kwargs,
    ) -> _Result:
        """Returns or raises what `function` does. It must touch nothing that the loop changes."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, "records")
        call = functools.partial(function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    def stop(self) -> None:
        """Drops calls that have not started; their callers are gone."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None
