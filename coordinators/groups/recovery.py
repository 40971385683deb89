"""The way out of a bug: a step has raised an exception, so the state of its group may be half changed.

1. The group is replaced by one that is DEAD, and named in `GroupStore.reloading`: its requests are refused as while loading.
2. Appends of the step that raised were never carried out, and are forgotten. Earlier ones are waited for; nothing else
   follows them, since what would have belongs to the dropped state.
3. With the last of them the group is served again from what is durable, which changes only with a committed append.

Other groups notice nothing. What counts all groups is counted anew.
"""

from __future__ import annotations

from echoless.coordinators.groups.group import Group, GroupState
from echoless.coordinators.groups.store import GroupStore


def take_out(store: GroupStore, group_id: str, last_token: int) -> Group:
    """Drop the state of a group but for what is durable; `last_token` is that of the last append before the step."""
    group = Group(group_id)
    group.state = GroupState.DEAD
    store.live[group_id] = group
    store.reloading.add(group_id)
    store.appends.hand_over(group, last_token)
    store.unnamed = {
        reply_id: found
        for reply_id, found in store.unnamed.items()
        if found[0].group_id != group_id
    }
    store.parked = {
        reply_id: found for reply_id, found in store.parked.items() if found.group_id != group_id
    }
    store.shares.drop_members(group_id)
    store.ids.discard_group(group_id)
    store.recount()
    return group


def may_load(store: GroupStore, group: Group) -> bool:
    """Whether everything of a group that was taken out is durable; then it is to be loaded."""
    if group.group_id not in store.reloading or group.appends:
        return False
    store.reloading.remove(group.group_id)
    store.drop_live(group)
    return True
