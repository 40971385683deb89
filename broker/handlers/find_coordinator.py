"""FindCoordinator (10), versions 0-4: an honest error, for there are no coordinators here.

Consumer groups and transactions are not served. The answer is not retriable, so that a client
says so at once instead of asking for ever; consumers that assign partitions themselves never ask.
v4 (KIP-699) asks for several keys at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.request import Answer, Request
from protocol.errors import ErrorCode
from protocol.registry import Api

if TYPE_CHECKING:
    from broker.broker import Broker

API = Api(key=10, name="find_coordinator", version_min=0, version_max=4, flexible_from=3)

_REASONS = {
    0: "consumer groups are not served; assign partitions instead of subscribing",
    1: "transactions are not served; use an idempotent producer without a transactional id",
}
_UNKNOWN = "this kind of coordinator is not known"


def handle(request: Request, _broker: Broker) -> Answer:
    """INVALID_REQUEST with the reason, for every key asked for."""
    body = request.body
    reason = _REASONS.get(getattr(body, "key_type", 0), _UNKNOWN)
    nobody = {"node_id": -1, "host": "", "port": -1}
    failure = {"error_code": ErrorCode.INVALID_REQUEST, "error_message": reason, **nobody}
    keys = getattr(body, "coordinator_keys", ())
    coordinators = [{"key": key, **failure} for key in keys]
    return {"throttle_time": 0, "coordinators": coordinators, **failure}
