"""The promises of the coordinator's nodes: epochs only grow, one leader for each, ids used once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

_STATE: Final = re.compile(r"/brokers/topics/([^/]+)/partitions/(\d+)/state")
NO_LEADER: Final = -1


def unique_ids(handed_out: Iterable[tuple[float, str, int]]) -> Iterator[str]:
    """No producer id leaves any broker twice."""
    first: dict[int, tuple[float, str]] = {}
    for at, node, producer_id in handed_out:
        if producer_id in first:
            yield f"producer id {producer_id} from {node} at {at:.3f} and {first[producer_id]}"
        first.setdefault(producer_id, (at, node))


def sound_states(changes: Iterable[tuple[float, str, bytes | None]]) -> Iterator[str]:
    """Each state node: epochs never fall, an epoch has one leader, who is in sync."""
    latest: dict[str, dict[str, Any]] = {}
    controller_epoch = 0
    for at, path, data in changes:
        if path == "/controller_epoch" and data:
            controller_epoch = int(data)
        if not _STATE.fullmatch(path):
            continue
        if data is None:
            latest.pop(path, None)
            continue
        after = json.loads(data)
        for fault in _faults(latest.get(path), after, controller_epoch):
            yield f"{path} at {at:.3f}: {fault}: {latest.get(path)} -> {after}"
        latest[path] = after


def _faults(
    before: dict[str, Any] | None, after: dict[str, Any], controller_epoch: int
) -> Iterator[str]:
    if not after["isr"]:
        yield "no replica is in sync"
    if after["leader"] != NO_LEADER and after["leader"] not in after["isr"]:
        yield "the leader is not in sync"
    if before is None:
        return
    if after["leader_epoch"] < before["leader_epoch"]:
        yield "the leader epoch fell"
    if after["controller_epoch"] < before["controller_epoch"]:
        yield "the controller epoch fell"
    same_epoch = after["leader_epoch"] == before["leader_epoch"]
    if same_epoch and after["leader"] != before["leader"]:
        yield "two leaders in one epoch"
    if after["controller_epoch"] not in {before["controller_epoch"], controller_epoch}:
        yield f"written by a controller of another epoch than {controller_epoch}"
    if (
        not same_epoch
        and after["leader"] != NO_LEADER
        and (after["controller_epoch"] != controller_epoch)
    ):
        yield f"elected by a controller of another epoch than {controller_epoch}"
    if not same_epoch and not set(after["isr"]) <= set(before["isr"]):
        yield "a new epoch came with a replica that was not in sync"
