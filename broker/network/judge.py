"""The judge of a request before it is handled, on either port.

`Services.judge` is one; without one, every client may do everything. `handlers/gate.py` and
`native/exchange.py` ask it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.network.request import Peer
from protocol.errors import KafkaError
from protocol.lean_dataclass import dataclass

IsRefused = Callable[[Any, int], bool]
"""Whether a partition is refused; takes the topic as the request names it, and the partition."""


def everything(_topic: object, _partition: int) -> bool:
    """The `is_refused` of a request that is refused as a whole."""
    return True


@dataclass(slots=True, frozen=True)
class Denial:
    """The error for what a client may not do."""

    error: KafkaError
    is_refused: IsRefused = everything
    """The partitions to which the error applies. A message of the native port is always refused as a whole."""


Judge = Callable[[Peer, str, Any], Denial | None]
"""Takes the client (`Peer.principal`), the name of the API or message, and the decoded body."""
