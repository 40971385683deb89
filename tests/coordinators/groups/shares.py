"""The amounts that a coordinator has to have counted for each sharer, counted anew."""

from __future__ import annotations

from collections import Counter

from echoless.coordinators.groups.classic.member import protocol_bytes
from echoless.coordinators.groups.store import GroupStore
from echoless.coordinators.groups.usage import Usage, total
from echoless.protocol.state_records.offset_value import OffsetValue


def check_shares(store: GroupStore) -> None:
    """Check that no share counts what is not held, or counts something twice."""
    shares, live, durable = store.shares, store.live, store.durable.groups
    assert shares._accounts.keys() <= live.keys() | durable.keys(), "the account of no group"
    assert shares._members.keys() <= live.keys(), "members of no group"
    offsets: Counter[str] = Counter()
    for group_id, group in durable.items():
        offsets[group_id] += sum(map(len, group.offsets.values()))
    for append in store.appends._pending.values():
        offsets[append.group.group_id] += append.usage.offsets
        rows = sum([isinstance(value, OffsetValue) for _, value in append.records])
        assert append.usage.offsets <= rows
    assert store.usage.offsets == offsets.total()
    used: dict[str, list[Usage]] = {}
    for group_id, account in shares._accounts.items():
        assert account.held.offsets == offsets[group_id]
        used.setdefault(account.sharer, []).append(account.held)
    for group_id, members in shares._members.items():
        group = live[group_id]
        known = group.consumer.state.members if group.consumer is not None else group.members
        assert members.keys() <= known.keys()
        for member_id, (sharer, size) in members.items():
            if group.consumer is None:
                assert size == protocol_bytes(group.members[member_id].protocols)
            used.setdefault(sharer, []).append(Usage(members=1, size=size))
    used.pop("", None)
    assert shares._used == {sharer: total(parts) for sharer, parts in used.items()}
    named = {(one.group_id, member) for one in live.values() for member in one.pending_members}
    assert store.ids._holders.keys() == named
