"""Tells a failed request from state that can no longer be trusted.

A bug in a handler or a codec costs only the connection that hit it: nothing was changed, and the
broker goes on. An unexpected exception from a method that changes a log, a role or a high watermark may
have left the change half done; serving on could damage data, so the process ends with exit code 70
(`docs/decisions/failed-requests.md`). Those methods carry `@changes_state`, which draws the line.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from echoless.protocol.errors import KafkaError
from echoless.storage.file_system import StorageError

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class StateInDoubtError(AssertionError):
    """A change to a log or a partition failed in a way that no caller expects."""


def changes_state(
    method: Callable[_Arguments, _Result],
) -> Callable[_Arguments, _Result]:
    """Passes on `KafkaError` and `StorageError`; turns any other exception into `StateInDoubtError`.

    Those two are outcomes: the method has changed nothing, or the log directory goes offline.
    """

    @functools.wraps(method)
    def guarded(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            check_outcome(method, error)
            raise

    return guarded


def check_outcome(method: Callable[..., object], error: Exception) -> None:
    """Raises `StateInDoubtError` unless the error is one that callers of the method expect."""
    if not isinstance(error, KafkaError | StorageError | StateInDoubtError):
        raise StateInDoubtError(f"{method.__qualname__} failed: {error!r}") from error
