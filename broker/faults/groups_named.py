"""The consumer groups that a request names, whatever its API and version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

NAMING_GROUPS: Final = frozenset(
    {
        *("find_coordinator", "join_group", "sync_group", "heartbeat", "leave_group"),
        *("offset_commit", "offset_fetch", "offset_delete", "describe_groups", "delete_groups"),
        *("consumer_group_heartbeat", "consumer_group_describe"),
        *("add_offsets_to_txn", "txn_offset_commit"),
    }
)
"""APIs whose requests name groups."""
_GROUP_KEY: Final = 0
"""FindCoordinator: the keys are groups."""


def groups_of(api: str, body: Any) -> Iterator[str]:
    """Yields group ids; none for a request about something else."""
    if api == "find_coordinator":
        if getattr(body, "key_type", _GROUP_KEY) == _GROUP_KEY:
            yield from getattr(body, "coordinator_keys", None) or [body.key]
        return
    group_id = getattr(body, "group_id", None)
    if isinstance(group_id, str):
        yield group_id
    # OffsetFetch has objects, DescribeGroups and its like have ids.
    for name in ("groups", "group_ids", "groups_names"):
        for one in getattr(body, name, None) or ():
            yield one if isinstance(one, str) else one.group_id
