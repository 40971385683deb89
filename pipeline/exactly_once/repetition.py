"""Repetition of what a store did not answer, or answered with an error that passes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final, TypeVar

REACHED_WITHIN_S: Final = 60.0
"""Time after which a store counts as unreachable."""
REQUEST_S: Final = 10.0
"""Time that a store has for one answer."""
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0

_Result = TypeVar("_Result")


def repeated(
    ask: Callable[[], _Result],
    errors: type[Exception] | tuple[type[Exception], ...],
    is_final: Callable[[Exception], bool],
) -> _Result:
    """Asks again after `errors` until there is an answer. Raises the error that is final, or the last one."""
    ends = time.monotonic() + REACHED_WITHIN_S
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return ask()
        except errors as error:
            if is_final(error) or time.monotonic() >= ends:
                raise
        time.sleep(pause_s * random.uniform(0.5, 1))  # noqa: S311  not a secret
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
