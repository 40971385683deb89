"""The denial of a request, or of parts of it, before it is handled.

`handlers/gate.py` asks what each API says about a request (`Served.permit`), if the broker has an
authorizer (`Services.access`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from echoless.protocol.errors import KafkaError

IsRefused = Callable[[Any, int], bool]
"""Whether a partition is refused; takes the topic as the request names it, and the partition."""


def everything(_topic: object, _partition: int) -> bool:
    """The `is_refused` of a request that is refused as a whole."""
    return True


class Denial(NamedTuple):
    """The error for what a client may not do."""

    error: KafkaError
    is_refused: IsRefused = everything
    """The partitions to which the error applies."""
