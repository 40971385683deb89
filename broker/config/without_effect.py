"""Topic names of Kafka 3.9 that are accepted, stored and described, and change nothing here.

An application that creates its topics with them must not fail for that. What a name would promise and Echoless
cannot keep is refused by its value: `remote.storage.enable=true`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from echoless.broker.config.values import (
    INT32_MAX,
    INT64_MAX,
    ConfigType,
    ValueKind,
    any_text,
    boolean,
    duration,
    only,
    size,
)

TIMESTAMP_DIFFERENCE: Final = "message.timestamp.difference.max.ms"


class Ignored(NamedTuple):
    """One name: what it takes, its default, and why it has no effect."""

    kind: ValueKind[Any]
    default: Any
    reason: str


def _no(reason: str) -> str:
    return f"no effect here: {reason}"


_NO_THROTTLE: Final = _no("replication is not throttled")
_NO_TIERS: Final = _no("there is no tiered storage")
_OLD_FORMATS: Final = _no("only record batches of magic 2 are stored")

WITHOUT_EFFECT: Final[Mapping[str, Ignored]] = {
    "file.delete.delay.ms": Ignored(
        duration(0), 60_000, _no("see log_segment_delete_delay_ms; old segments go at once")
    ),
    "follower.replication.throttled.replicas": Ignored(any_text(ConfigType.LIST), "", _NO_THROTTLE),
    "leader.replication.throttled.replicas": Ignored(any_text(ConfigType.LIST), "", _NO_THROTTLE),
    "local.retention.bytes": Ignored(size(-2), -2, _NO_TIERS),
    "local.retention.ms": Ignored(duration(-2), -2, _NO_TIERS),
    "message.downconversion.enable": Ignored(boolean(), True, _OLD_FORMATS),
    "message.format.version": Ignored(any_text(), "3.0-IV1", _OLD_FORMATS),
    TIMESTAMP_DIFFERENCE: Ignored(
        duration(0),
        INT64_MAX,
        "older name of message.timestamp.before.max.ms and message.timestamp.after.max.ms together, which win",
    ),
    "preallocate": Ignored(boolean(), False, _no("files grow as they are written")),
    "remote.log.copy.disable": Ignored(boolean(), False, _NO_TIERS),
    "remote.log.delete.on.disable": Ignored(boolean(), False, _NO_TIERS),
    "remote.storage.enable": Ignored(
        only("false", "there is no tiered storage", ConfigType.BOOLEAN), "false", _NO_TIERS
    ),
    "segment.index.bytes": Ignored(
        size(4, INT32_MAX), 10_485_760, _no("indexes grow as they are written")
    ),
    "segment.jitter.ms": Ignored(duration(0), 0, _no("segments are closed at segment.ms exactly")),
}
