"""The throttle time in the answers of the Kafka port: how long the client should pause.

It is set at the gate (`metered.py`) or where answers are encoded, not by handlers. Answers that are packed already,
by hand (`protocol/`) or in a thread, have a 0 in its place, which is overwritten.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from echoless.broker.network.request import Answer, NoResponse
from echoless.broker.network.turns import ManyRows
from echoless.protocol.headers import NO_TAGS
from echoless.protocol.registry import Api

NOT_THROTTLED: Final = 0
"""Milliseconds."""
_INT32: Final = struct.Struct(">i")
THROTTLE_TIME_SINCE: Final = {
    "produce": 1,
    "fetch": 1,
    "list_offsets": 2,
    "metadata": 3,
    "offset_fetch": 3,
    "find_coordinator": 1,
    "api_versions": 1,
    "create_topics": 2,
    "delete_topics": 1,
    "offset_for_leader_epoch": 2,
    "offset_commit": 3,
    "join_group": 2,
    "heartbeat": 1,
    "leave_group": 1,
    "sync_group": 1,
    "describe_groups": 1,
    "list_groups": 1,
}
"""The first version whose response has the field; those that are not listed here always have it."""
WITHOUT_THROTTLE_TIME: Final = frozenset(
    {"sasl_handshake", "sasl_authenticate", "write_txn_markers"}
)
AT_THE_END: Final = frozenset({"produce", "api_versions"})
"""APIs that have it in the end, before tagged fields; all others have it in front."""
AFTER_ERROR_CODE: Final = frozenset({"offset_delete"})
"""APIs that have it after two bytes."""


def with_throttle_time(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The answer as it is encoded; versions without a throttle time leave it out."""
    return {"throttle_time": NOT_THROTTLED, **answer}


def throttled(api: Api, version: int, answer: Answer, throttle_ms: int) -> Answer:
    """The answer with this throttle time, if the version has one."""
    if isinstance(answer, NoResponse) or api.name in WITHOUT_THROTTLE_TIME:
        return answer
    if isinstance(answer, Mapping):
        fields = {**answer, "throttle_time": throttle_ms}
        return ManyRows(fields) if isinstance(answer, ManyRows) else fields
    if version < THROTTLE_TIME_SINCE.get(api.name, 0):
        return answer
    packed = _INT32.pack(throttle_ms)
    if not isinstance(answer, bytes):
        return [packed + answer[0][len(packed) :], *answer[1:]]
    if api.name in AFTER_ERROR_CODE:
        return answer[:2] + packed + answer[2 + len(packed) :]
    if api.name not in AT_THE_END:
        return packed + answer[len(packed) :]
    end = packed + NO_TAGS if api.is_flexible(version) else packed
    return answer[: -len(end)] + end


def size_of(answer: Answer) -> int:
    """Bytes of the packed answer; 0 if it is not packed yet."""
    if isinstance(answer, bytes):
        return len(answer)
    if isinstance(answer, (Mapping, NoResponse)):
        return 0
    return sum(map(len, answer))
