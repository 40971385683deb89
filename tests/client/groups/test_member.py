"""A member of a group against a scripted coordinator: what it does with each answer, and with none."""

from __future__ import annotations

import asyncio
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from echoless.client.copier.positions import CommittedPosition, Positions
from echoless.client.groups.assignment import read_assignment, write_assignment, write_subscription
from echoless.client.groups.errors import GenerationOverError, GroupError
from echoless.client.groups.member import Generation, GroupMember, MemberSettings

SETTINGS = MemberSettings(group="g", protocol="p", session_timeout_s=0.03)
LOST = None
"""No answer came."""


class ScriptedCoordinator:
    """Answers each API from a script, the last answer again and again; remembers the requests."""

    key = "g"

    def __init__(self, **scripts: list[Any]) -> None:
        self._scripts = {api: deque(answers) for api, answers in scripts.items()}
        self.asked: list[tuple[str, Any]] = []
        self.forgotten = 0

    async def ask(self, api: str, fields: Any, *, timeout_s: float | None = None) -> Any:
        self.asked.append((api, fields))
        await asyncio.sleep(0)
        script = self._scripts[api]
        return script.popleft() if len(script) > 1 else script[0]

    def forget(self) -> None:
        self.forgotten += 1

    def requests(self, api: str) -> list[Any]:
        return [fields for name, fields in self.asked if name == api]


def joined(
    code: int = 0, *, member_id: str = "m", leader: str = "other", members: Any = ()
) -> SimpleNamespace:
    return SimpleNamespace(
        error_code=ErrorCode(code),
        member_id=member_id,
        leader=leader,
        generation_id=-1 if code else 7,
        members=members,
    )


def answer(code: int = 0, **fields: Any) -> SimpleNamespace:
    return SimpleNamespace(error_code=ErrorCode(code), **fields)


SYNCED = answer(assignment=write_assignment([("t", 0), ("t", 1)]))
FINE = {
    "join_group": [joined()],
    "sync_group": [SYNCED],
    "heartbeat": [answer()],
    "leave_group": [answer()],
}


def member_of(coordinator: ScriptedCoordinator, settings: MemberSettings = SETTINGS) -> GroupMember:
    async def count(topics: Any) -> dict[str, int]:
        return dict.fromkeys(topics, 3)

    return GroupMember(coordinator, settings, count)  # type: ignore[arg-type]


async def join(**scripts: list[Any]) -> tuple[ScriptedCoordinator, GroupMember, Generation]:
    coordinator = ScriptedCoordinator(**{**FINE, **scripts})
    member = member_of(coordinator)
    return coordinator, member, await member.join(["t"])


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("echoless.client.coordinator.Backoff.pause", lambda _: asyncio.sleep(0))


async def test_follower_gets_its_assignment():
    """A follower sends no assignments, and learns its own."""
    coordinator, member, generation = await join()
    assert (generation.number, generation.member_id) == (7, "m")
    assert generation.partitions == [("t", 0), ("t", 1)]
    assert coordinator.requests("sync_group")[0]["assignments"] == []
    await member.leave()


async def test_leader_assigns():
    """The leader gives every partition to one of the members, by their own subscriptions."""
    others = [
        SimpleNamespace(member_id=name, metadata=write_subscription(["t"])) for name in ("m", "n")
    ]
    coordinator, member, _ = await join(join_group=[joined(leader="m", members=others)])
    rows = coordinator.requests("sync_group")[0]["assignments"]
    given = {row["member_id"]: read_assignment(row["assignment"]) for row in rows}
    assert given == {"m": [("t", 0), ("t", 2)], "n": [("t", 1)]}
    await member.leave()


@pytest.mark.parametrize(
    ("script", "ids", "forgotten"),
    [
        ([joined(79, member_id="given"), joined()], ["", "given"], 0),
        ([joined(25), joined()], ["", ""], 0),
        *(([joined(code), joined()], ["", ""], 1) for code in (14, 15, 16)),
        ([joined(27), joined()], ["", ""], 0),
        ([LOST, LOST, joined()], ["", "", ""], 0),
    ],
)
async def test_joining_is_repeated(script, ids, forgotten):
    """With the member id that it was given, or without one; the coordinator is looked for again where it has moved."""
    coordinator, member, _ = await join(join_group=script)
    assert [one["member_id"] for one in coordinator.requests("join_group")] == ids
    assert coordinator.forgotten == forgotten
    await member.leave()


@pytest.mark.parametrize("code", [24, 26, 30, 35, 81, 82])
async def test_joining_is_given_up(code):
    """A code that another attempt does not cure is an error with its name."""
    with pytest.raises(GroupError, match=ErrorCode(code).name.upper()) as raised:
        await join(join_group=[joined(code)])
    assert raised.value.error_code == code


async def test_group_of_another_kind_is_named():
    """23 says that the others have another assignor."""
    with pytest.raises(GroupError, match="members of another kind"):
        await join(join_group=[joined(23)])


@pytest.mark.parametrize("first", [LOST, answer(22), answer(27), answer(14), answer(16)])
async def test_lost_assignment_is_joined_for_again(first):
    """After a lost or refused SyncGroup the member joins again under its id."""
    coordinator, member, generation = await join(sync_group=[first, SYNCED])
    assert [one["member_id"] for one in coordinator.requests("join_group")] == ["", "m"]
    assert generation.partitions == [("t", 0), ("t", 1)]
    await member.leave()


async def test_unknown_member_joins_as_a_new_one():
    """25 to SyncGroup takes the member id away."""
    coordinator, member, _ = await join(sync_group=[answer(25), SYNCED])
    assert [one["member_id"] for one in coordinator.requests("join_group")] == ["", ""]
    await member.leave()


@pytest.mark.parametrize(("code", "is_over"), [(27, False), (22, True), (25, True)])
async def test_heartbeat_ends_the_generation(code, is_over):
    """A rebalance lets the member commit and join; an unknown member has nothing left to commit."""
    _, member, generation = await join(heartbeat=[answer(), LOST, answer(16), answer(code)])
    await generation.must_rejoin.wait()
    assert generation.is_over is is_over
    await member.check()
    await member.leave()


async def test_refused_heartbeat_is_an_error():
    """A right that was taken away, and an instance id that another process uses, end the copier."""
    _, member, generation = await join(heartbeat=[answer(82)])
    await generation.must_rejoin.wait()
    with pytest.raises(GroupError, match="FENCED_INSTANCE_ID"):
        await member.check()
    assert generation.is_over


async def test_leaving_member_joins_as_a_new_one():
    """Requests that the old one has under way must not count for the new one."""
    coordinator, member, _ = await join(leave_group=[answer(members=())])
    await member.leave()
    await member.join(["t"])
    assert [one["member_id"] for one in coordinator.requests("join_group")] == ["", ""]
    assert coordinator.requests("leave_group")[0]["member_id"] == "m"
    await member.leave()


async def test_a_member_leaves_a_group_that_nobody_finds():
    """Its session ends anyway."""
    coordinator = ScriptedCoordinator(**FINE)
    settings = MemberSettings(group="g", protocol="p", request_timeout_s=0.05)
    member = member_of(coordinator, settings)
    await member.join(["t"])
    coordinator.ask = lambda *_: asyncio.Event().wait()
    async with asyncio.timeout(30):
        await member.leave()


async def test_static_member_does_not_leave():
    """It keeps its partitions until its session ends, or until it is back."""
    coordinator = ScriptedCoordinator(**FINE)
    member = member_of(coordinator, MemberSettings(group="g", protocol="p", instance_id="i"))
    await member.join(["t"])
    await member.leave()
    assert not coordinator.requests("leave_group")


def commit_answer(code: int) -> SimpleNamespace:
    row = SimpleNamespace(partition_index=0, error_code=ErrorCode(code))
    return SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=[row])])


GENERATION = {"number": 7, "member_id": "m", "partitions": [("t", 0)], "confirmed_at_s": 0.0}
ROWS = {("t", 0): CommittedPosition(5, "state")}


def positions_of(coordinator: ScriptedCoordinator) -> Positions:
    return Positions(coordinator, None)  # type: ignore[arg-type]


async def test_commit_is_not_repeated_in_a_later_generation():
    """Every attempt has the generation's number and member id; when it is over there is no other attempt."""
    generation = Generation(**GENERATION)
    coordinator = ScriptedCoordinator(
        offset_commit=[LOST, *map(commit_answer, (16, 14, 7)), LOST, commit_answer(0)]
    )
    await positions_of(coordinator).commit(generation, ROWS)
    assert generation.unanswered_commits == 2
    sent = coordinator.requests("offset_commit")
    assert len(sent) == 6
    assert {(one["generation_id_or_member_epoch"], one["member_id"]) for one in sent} == {(7, "m")}
    generation.end()
    with pytest.raises(GenerationOverError):
        await positions_of(coordinator).commit(generation, ROWS)
    assert len(coordinator.requests("offset_commit")) == 6


@pytest.mark.parametrize("code", [22, 25, 27, 82, 69, 3])
async def test_refused_commit_ends_the_generation(code):
    """A former member commits nothing."""
    generation = Generation(**GENERATION)
    coordinator = ScriptedCoordinator(offset_commit=[commit_answer(code)])
    with pytest.raises(GenerationOverError):
        await positions_of(coordinator).commit(generation, ROWS)
    assert generation.is_over


def fetched(version: int, code: int = 0, row_code: int = 0, offset: int = 5) -> Any:
    row = SimpleNamespace(
        partition_index=0, error_code=ErrorCode(row_code), committed_offset=offset, metadata="state"
    )
    topics = [SimpleNamespace(name="t", partitions=[row])]
    group = {"topics": topics, "error_code": ErrorCode(code)}
    kind = type("Answer", (SimpleNamespace,), {"__version__": version})
    return kind(groups=[SimpleNamespace(**group)]) if version >= 8 else kind(**group)


@pytest.mark.parametrize("version", [7, 8, 9])
async def test_positions_are_read_when_they_are_stable(version):
    """88 and a coordinator that loads are waited for; only stable offsets are asked for."""
    coordinator = ScriptedCoordinator(
        offset_fetch=[
            *(LOST, fetched(version, row_code=88), fetched(version, code=14)),
            fetched(version),
        ]
    )
    found = await positions_of(coordinator).fetch(Generation(**GENERATION), [("t", 0)])
    assert found == {("t", 0): CommittedPosition(5, "state")}
    assert all(one["require_stable"] for one in coordinator.requests("offset_fetch"))


async def test_none_is_no_position():
    """Offset -1 means that nothing was committed."""
    coordinator = ScriptedCoordinator(offset_fetch=[fetched(9, offset=-1)])
    assert await positions_of(coordinator).fetch(Generation(**GENERATION), [("t", 0)]) == {}


async def test_old_broker_is_refused():
    """One that cannot say whether commits are under way would let two members begin."""
    coordinator = ScriptedCoordinator(offset_fetch=[fetched(6)])
    with pytest.raises(Exception, match=r"Apache Kafka can from 2\.5 on"):
        await positions_of(coordinator).fetch(Generation(**GENERATION), [("t", 0)])
