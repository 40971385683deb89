"""Errors of requests that a fault has detached from their clients."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from echoless.broker.doubt import StateInDoubtError
from echoless.broker.essential_task import report_error
from echoless.broker.network.request import CloseConnectionError
from echoless.protocol.errors import DecodeError, KafkaError

logger = logging.getLogger(__name__)

_EXPECTED = (DecodeError, CloseConnectionError, KafkaError)
"""Errors that a client would have been sent, or would have lost its connection for."""


def report_unexpected(task: asyncio.Future[Any]) -> None:
    """Reports what the request raised, whether or not its client is still there: a done callback."""
    error = None if task.cancelled() else task.exception()
    if isinstance(error, StateInDoubtError):
        report_error(task)
    elif error is not None and not isinstance(error, _EXPECTED):
        logger.error("a request under a fault failed; this is a bug", exc_info=error)
