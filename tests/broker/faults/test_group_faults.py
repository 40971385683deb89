"""Rules about consumer groups: lost answers, ended sessions, and what cannot be done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from echoless.broker.faults.fields import RuleError
from echoless.broker.faults.groups_named import groups_of
from echoless.broker.faults.reading_rules import read_rules
from echoless.client.cluster import Cluster, parse_addresses
from echoless.client.coordinator import Coordinator
from echoless.client.copier.positions import CommittedPosition, Positions
from echoless.client.groups.member import Generation, GroupMember, MemberSettings
from tests.broker.faults.lab import Lab

GROUP = "billing"
WITHOUT_WAITING = 0.2
"""Seconds after which a lost answer is given up."""


@asynccontextmanager
async def member(lab: Lab) -> AsyncIterator[tuple[GroupMember, Coordinator]]:
    cluster = Cluster(parse_addresses(lab.kafka_address), timeout_s=10)
    coordinator = Coordinator(cluster, GROUP, timeout_s=WITHOUT_WAITING)

    async def counts(topics: Any) -> dict[str, int]:
        return dict.fromkeys(topics, 2)

    settings = MemberSettings(
        group=GROUP,
        protocol="p",
        session_timeout_s=6,
        rebalance_timeout_s=0.5,
        request_timeout_s=WITHOUT_WAITING,
    )
    made = GroupMember(coordinator, settings, counts)
    try:
        yield made, coordinator
    finally:
        await made.leave()
        await cluster.close()


@pytest.mark.parametrize(
    ("api", "body", "groups"),
    [
        ("join_group", SimpleNamespace(group_id="a"), ["a"]),
        ("offset_fetch", SimpleNamespace(groups=[SimpleNamespace(group_id="a")]), ["a"]),
        ("describe_groups", SimpleNamespace(groups=("a", "b")), ["a", "b"]),
        ("consumer_group_describe", SimpleNamespace(group_ids=("a",)), ["a"]),
        ("delete_groups", SimpleNamespace(groups_names=("a",)), ["a"]),
        ("find_coordinator", SimpleNamespace(key="a"), ["a"]),
        ("find_coordinator", SimpleNamespace(key_type=0, coordinator_keys=("a", "b")), ["a", "b"]),
        ("find_coordinator", SimpleNamespace(key_type=1, key="transaction"), []),
        ("produce", SimpleNamespace(topic_data=()), []),
    ],
)
def test_groups_of_a_request(api, body, groups):
    """Every API that is about groups says which, in its own field."""
    assert list(groups_of(api, body)) == groups


@pytest.mark.slow
@pytest.mark.parametrize("api", ["join_group", "sync_group"])
async def test_lost_answer_to_a_join_is_asked_for_again(lab: Lab, api: str) -> None:
    """The member joins again, and owns its partitions once."""
    rule = lab.add("drop_response", {"api": api, "group": GROUP}, times=1)
    async with member(lab) as (one, _):
        generation = await asyncio.wait_for(one.join(["t"]), 30)
        assert generation.partitions == [("t", 0), ("t", 1)]
    assert lab.counts(rule)[1] == 1


@pytest.mark.slow
async def test_lost_answer_to_a_commit_changes_nothing(lab: Lab) -> None:
    """The offsets are stored once more, and read back; a rule for another group does not act."""
    other = lab.add("drop_response", {"api": "offset_commit", "group": "another"})
    rule = lab.add("drop_response", {"api": "offset_commit", "group": GROUP}, times=1)
    async with member(lab) as (one, coordinator):
        generation = await one.join(["orders"])
        positions = Positions(coordinator, None)
        await positions.commit(generation, {("orders", 0): CommittedPosition(7, "state")})
        assert generation.unanswered_commits == 1
        found = await positions.fetch(generation, [("orders", 0)])
        assert found == {("orders", 0): CommittedPosition(7, "state")}
    assert lab.counts(rule)[1] == 1
    assert lab.counts(other) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["member", "client", "all"])
async def test_expired_member_is_unknown_at_once(lab: Lab, by: str) -> None:
    """Its commit is refused, and it joins as a new one; the rule is listed, and has acted once."""
    async with member(lab) as (one, coordinator):
        generation = await one.join(["orders"])
        who = {"member": generation.member_id, "client": "echoless"}.get(by)
        action = {"type": "expire_member", "group": GROUP, **({"member": who} if who else {})}
        rule = lab.add(action)
        assert lab.counts(rule) == (1, 1)
        await refused(coordinator, generation)
        again = await one.join(["orders"])
        assert again.number > generation.number
    assert [hit.address for hit in lab.hits()] == [GROUP]


async def refused(coordinator: Coordinator, generation: Generation) -> None:
    from echoless.client.groups.errors import GenerationOverError

    with pytest.raises(GenerationOverError):
        await Positions(coordinator, None).commit(
            generation, {("orders", 0): CommittedPosition(1, "")}
        )


@pytest.mark.slow
async def test_what_cannot_be_done_is_refused(lab: Lab) -> None:
    """An unknown group or member, and a coordinator that no other broker could be; no rule is added."""
    async with member(lab) as (one, _):
        await one.join(["orders"])
        for action, reason in (
            ({"type": "expire_member", "group": GROUP, "member": "m"}, "no member, instance or"),
            ({"type": "expire_member", "group": "unknown"}, "'unknown' has no member"),
            ({"type": "move_coordinator", "group": GROUP}, "no other replica in sync"),
        ):
            with pytest.raises(RuleError, match=reason):
                lab.add(action)
    assert lab.broker.faults.documents() == []


async def test_broker_without_groups_refuses(lab: Lab) -> None:
    """Before the first group there is no coordinator."""
    with pytest.raises(RuleError, match="does not coordinate 'billing'"):
        lab.add({"type": "expire_member", "group": GROUP})


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ({"action": "expire_member"}, "action.group"),
        ({"action": {"type": "move_coordinator", "group": 5}}, "action.group"),
        (
            {"action": {"type": "expire_member", "group": "g"}, "match": {"group": "g"}},
            "the group is in the action",
        ),
        (
            {"action": {"type": "move_coordinator", "group": "g"}, "schedule": {"times": 2}},
            "done once and at once",
        ),
    ],
)
def test_impossible_rules_are_refused(rule, reason):
    """The reason names the field."""
    with pytest.raises(RuleError, match=reason):
        read_rules(rule)
