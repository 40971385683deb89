"""Refusals: a request, or parts of it, answered with an error in the response of its API.

Each API's file has a `refuse` function that builds its response from a `Refusal`. It is used for every
error that is not the handler's own: fault rules, unsupported versions, and what the gate rejects (`gate.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from echoless.broker.handlers.request_topics import topics_of
from echoless.broker.network.denial import IsRefused, everything
from echoless.broker.network.request import Request
from echoless.protocol.errors import KafkaError


class Refusal(NamedTuple):
    """The parts of a request to answer with an error."""

    request: Request
    error: KafkaError
    is_refused: IsRefused = everything

    @property
    def rows(self) -> Iterator[tuple[Any, list[int]]]:
        """Each topic as the request names it, with its refused partitions."""
        for key, indexes, _ in topics_of(self.request.body):
            refused = [index for index in indexes if self.is_refused(key, index)]
            if refused or not indexes:
                yield key, refused

    @property
    def is_before_login(self) -> bool:
        """Whether the client has yet to log in: it may learn nothing that the request does not name."""
        login = self.request.peer.login
        return login is not None and not login.is_open

    @property
    def row(self) -> dict[str, Any]:
        """The error as most rows and responses carry it."""
        return {"error_code": self.error.code, "error_message": self.error.message or None}


def refused_partitions(
    refusal: Refusal, *, topic: str = "name", partition: str = "partition_index", **more: Any
) -> list[dict[str, Any]]:
    """Rows by topic and partition, with `more` in each.

    `topic`, `partition`: the fields of the response that name them.
    """
    row = {**refusal.row, **more}
    return [
        {topic: key, "partitions": [{partition: index, **row} for index in indexes]}
        for key, indexes in refusal.rows
    ]
