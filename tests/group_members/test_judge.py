"""The judge of groups finds every kind of fault, and nothing in a run without fault."""

from __future__ import annotations

from collections.abc import Sequence

from echoless.protocol.state_records.classic_group_value import ClassicMemberValue, GroupValue
from tests.group_members.events import (
    Assigned,
    Committed,
    Committing,
    Event,
    Read,
    Revoked,
    parse,
    parse_kcat,
)
from tests.group_members.judge import Evidence, Life, judge

PRODUCED = {(0, offset): 10 + offset for offset in range(4)}
FIRST: Sequence[Event] = [
    Assigned(1, 1, (0,)),
    Read(0, 0, 10),
    Read(0, 1, 11),
    Committing({0: 2}),
    Committed(5, {0: 2}),
    Revoked((0,)),
]
SECOND: Sequence[Event] = [Assigned(9, 2, (0,)), Read(0, 2, 12), Read(0, 3, 13)]


def member(name: str, *partitions: int) -> ClassicMemberValue:
    numbers = b"".join(one.to_bytes(4, "big") for one in partitions)
    assignment = b"\0\0\0\0\0\1\0\1t" + len(partitions).to_bytes(4, "big") + numbers
    return ClassicMemberValue(name, None, "c", "/h", 1, 1, b"", assignment)


def group(generation: int, *members: ClassicMemberValue) -> GroupValue:
    return GroupValue("consumer", generation, "range", members[0].member_id, 1, members)


STORED = [group(1, member("a", 0)), group(2, member("b", 0))]


def problems(
    first: Sequence[Event] = FIRST,
    second: Sequence[Event] = SECOND,
    stored: Sequence[GroupValue] = STORED,
    committed: Sequence[dict[int, int]] = (),
    *,
    says_all: bool = True,
) -> list[str]:
    lives = [Life("a", first), Life("b", second, says_all=says_all)]
    return judge(Evidence(PRODUCED, lives, stored, committed)).problems


def test_kcat_may_drop_one_record_at_its_end_and_no_other_client_may() -> None:
    """The record after the last one that it printed: it is committed."""
    second = [Assigned(9, 2, (0,)), Read(0, 3, 13)]
    found = []
    for logs_commits in (True, False):
        lives = [Life("a", FIRST, logs_commits=logs_commits), Life("b", second, says_all=False)]
        found.append(judge(Evidence(PRODUCED, lives, STORED)).problems)
    assert "partition 0 offset 2 reached no member" in found[0]
    assert found[1] == []
    lives = [Life("a", FIRST[:2], logs_commits=False), Life("b", second, says_all=False)]
    dropped_two = judge(Evidence(PRODUCED, lives, STORED)).problems
    assert dropped_two == ["partition 0 offset 2 reached no member"]


def test_a_group_without_fault_is_acquitted() -> None:
    """One member follows the other where it committed; a repeat of what was not committed is no fault."""
    assert problems(committed=[{0: 2}, {0: 4}]) == []
    assert problems(second=[Assigned(4, 2, (0,)), *(Read(0, n, 10 + n) for n in range(4))]) == []


def test_a_record_that_reaches_no_member_is_found() -> None:
    """Even the last one."""
    assert problems(second=SECOND[:-1]) == ["partition 0 offset 3 reached no member"]


def test_order_and_content_are_looked_at() -> None:
    """Offsets follow each other while a partition is owned, and hold what was acknowledged there."""
    assert "read offset 3 of partition 0 after 1" in problems([*FIRST[:3], Read(0, 3, 13)])[0]
    assert "number 99" in problems([*FIRST[:2], Read(0, 1, 99)])[0]


def test_a_partition_that_is_not_owned_is_not_read() -> None:
    """Unless the client says too little to know."""
    late = [*SECOND, Revoked((0,)), Read(0, 3, 13)]
    assert problems(second=late) == ["b read (0, 3) without owning the partition"]
    assert problems(second=late, says_all=False) == []


def test_an_answered_commit_must_not_be_forgotten() -> None:
    """Neither by the next owner nor by a later coordinator."""
    early = [Assigned(9, 2, (0,)), *(Read(0, n, 10 + n) for n in range(4))]
    assert "began partition 0 at 0, though a commit of 2" in problems(second=early)[0]
    assert problems(committed=[{0: 1}]) == [
        "a commit of 2 in partition 0 was answered, and later 1 is read"
    ]


def test_a_position_that_no_one_committed_is_found() -> None:
    """It would leave records out, or come from another group."""
    found = problems(second=[Assigned(9, 2, (0,)), Read(0, 3, 13)])
    assert "b began partition 0 at 3, which no member committed" in found


def test_a_generation_has_one_assignment_and_each_partition_one_owner() -> None:
    """Both in what was stored, and in what the members say."""
    twice = [*STORED, group(2, member("c", 0, 1))]
    assert problems(stored=twice) == ["generation 2 has two assignments"]
    assert problems(stored=[STORED[1], STORED[0]]) == ["generation 1 is stored after 2"]
    shared = [STORED[0], group(2, member("b", 0), member("c", 0, 1))]
    assert problems(stored=shared) == ["generation 2 gives a partition to two members"]
    both = [Assigned(9, 1, (0,)), *SECOND[1:]]
    assert problems(second=both) == ["partition 0 has several owners in generation 1: ['a', 'b']"]
    foreign = [Assigned(9, 2, (0, 1)), *SECOND[1:]]
    assert problems(second=foreign) == ["b says that generation 2 gave it [0, 1]"]


def test_the_lines_of_the_programs_are_read() -> None:
    """Every kind of line, and those of kcat."""
    assert parse("7 assigned -1 0 2") == Assigned(7, -1, (0, 2))
    assert parse("7 revoked") == Revoked(())
    assert parse("7 record 1 2 3") == Read(1, 2, 3)
    assert parse("7 committing 0 5 1 6") == Committing({0: 5, 1: 6})
    assert parse("8 committed 0 5") == Committed(8, {0: 5})
    assert parse_kcat("1 2 3") == Read(1, 2, 3)
