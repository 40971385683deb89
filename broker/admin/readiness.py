"""Whether a broker could acknowledge a record now: what `/ready`, the metric and their alert are based on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from echoless.broker.admin.view import BrokerView


class Unready(NamedTuple):
    """Why a broker acknowledges nothing."""

    status: str
    """For strangers too: `storage failed` or `not ready`."""
    reason: str


def unready(broker: BrokerView) -> Unready | None:
    """None for a broker that could acknowledge a record now, if it led the record's partition.

    What a single partition lacks (in-sync replicas, a leader) is no reason: its metrics say so.
    """
    failure = broker.logs.failure
    if failure is not None:
        return Unready("storage failed", str(failure))
    reason = broker.membership.unready_reason
    return None if reason is None else Unready("not ready", reason)
