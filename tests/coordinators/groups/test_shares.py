"""The bounds that all share: whoever holds much is refused more, and never the others."""

from __future__ import annotations

import pytest

from echoless.coordinators.groups.config import GroupCoordinatorConfig
from echoless.coordinators.groups.coordinator import GroupCoordinator
from echoless.coordinators.groups.handed_out_ids import HandedOutIds
from echoless.coordinators.groups.requests import (
    CommittedPartition,
    DeleteGroup,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
)
from echoless.coordinators.groups.usage import Usage, total
from echoless.protocol.errors import ErrorCode
from tests.coordinators.groups.consumers import ConsumerShell
from tests.coordinators.groups.shares import check_shares
from tests.coordinators.groups.shell import Shell

MANY, OTHER = "User:many", "User:other"
FULL = ErrorCode.GROUP_MAX_SIZE_REACHED
IN_DOUBT = ErrorCode.NOT_ENOUGH_REPLICAS


def join(shell: Shell, group_id: str, sharer: str, **fields) -> ErrorCode | None:
    """The code of a JoinGroup that knows no ids yet; None while it waits for the group's generation."""
    given = {"group_id": group_id, "sharer": sharer, "requires_known_member_id": False} | fields
    answer = shell.answers.get(shell.join(**given))
    return None if answer is None else answer.error_code


def ask_for_id(shell: Shell, group_id: str, sharer: str) -> str:
    answer = shell.answers[shell.join(group_id=group_id, sharer=sharer)]
    assert answer.error_code is ErrorCode.MEMBER_ID_REQUIRED
    return answer.member_id


def commit(
    shell: Shell, group_id: str, sharer: str, partition: int = 0, metadata: str = ""
) -> ErrorCode:
    rows = (CommittedPartition("t", partition, 1, -1, metadata),)
    request = OffsetCommit(group_id, -1, "", None, rows, sharer=sharer)
    (code,) = shell.ask(request).error_codes
    check_shares(shell.coordinator._store)
    return code


def joined_until_refused(shell: Shell, sharer: str, **fields) -> int:
    count = 0
    while join(shell, f"{sharer}-{count}", sharer, **fields) is None:
        count += 1
    return count


def test_a_sharer_has_half_of_the_members_at_most() -> None:
    """A second one has room, and a third; members that leave make room."""
    shell = Shell(GroupCoordinatorConfig(members_max=60))
    assert joined_until_refused(shell, MANY) == 30
    assert joined_until_refused(shell, OTHER) == 15
    assert join(shell, "third", "User:third") is None
    (member_id,) = shell.live[f"{MANY}-0"].members
    shell.send(LeaveGroup(f"{MANY}-0", (LeavingMember(member_id),)))
    check_shares(shell.coordinator._store)
    assert join(shell, "again", OTHER) is FULL
    assert join(shell, "third", "User:third") is None


@pytest.mark.parametrize("sharers", [30, 100])
def test_a_new_sharer_has_room_however_many_others_are_full(sharers: int) -> None:
    """As with many addresses: the bound of all is exceeded by their least shares and by no more."""
    config = GroupCoordinatorConfig(members_max=2_048, group_max_size=5_000)
    shell = Shell(config)
    for number in range(sharers):
        assert joined_until_refused(shell, f"s{number}") >= 8
    assert join(shell, "new", "User:new") is None
    assert shell.coordinator.usage.members <= 2_048 + 8 * sharers


def test_the_subscriptions_of_one_sharer_leave_room_for_those_of_others() -> None:
    shell = Shell(GroupCoordinatorConfig(bytes_max=10_000))
    large = {"protocols": (("range", bytes(995)),)}
    assert joined_until_refused(shell, MANY, **large) == 5
    assert join(shell, "other", OTHER, **large) is None
    check_shares(shell.coordinator._store)


def test_the_subscriptions_of_the_consumer_protocol_leave_room_for_those_of_others() -> None:
    """In one group as well: a member counts towards who joins with it."""
    shell = ConsumerShell(GroupCoordinatorConfig(bytes_max=200_000))
    names = tuple(f"{n:04}" for n in range(250))
    codes = [shell.code(f"m{n}", 0, topics=names, sharer=MANY) for n in range(20)]
    assert codes.count(FULL) >= 8
    assert shell.code("other", 0, topics=names, sharer=OTHER) is ErrorCode.NONE
    check_shares(shell.coordinator._store)


def test_ids_that_are_never_used_take_no_ones_place() -> None:
    """Whatever the address, there is room for one more, and it can be used."""
    shell = Shell(GroupCoordinatorConfig(ids_max=10, members_max=4))
    for number in range(100):
        ask_for_id(shell, f"g{number % 3}", MANY)
        assert shell.coordinator.usage.ids <= 10
    for sharer in (OTHER, MANY):
        member_id = ask_for_id(shell, f"of {sharer}", sharer)
        for number in range(9):
            ask_for_id(shell, f"g{number % 3}", MANY)
        assert join(shell, f"of {sharer}", sharer, member_id=member_id) is None
    check_shares(shell.coordinator._store)


def test_the_id_that_gives_way_is_one_of_who_has_the_most() -> None:
    """First by sharer, then by group, then by age."""
    ids = HandedOutIds()
    for number in range(3):
        ids.add("few", f"few-{number}", OTHER)
    for number in range(4):
        ids.add(f"g{number % 2}", f"many-{number}", MANY)
    ids.add("g1", "many-4", MANY)
    given_way = []
    while (found := ids.next_to_give_way()) is not None:
        ids.discard(*found)
        given_way.append(found[1])
    assert given_way[:2] == ["many-1", "many-0"]
    assert len(given_way) == 8
    assert len(ids) == 0
    assert not ids._counts


def test_a_group_whose_ids_give_way_goes_on() -> None:
    """It has waited for the member that was to join with the id."""
    shell = Shell(GroupCoordinatorConfig(ids_max=1))
    (member_id,) = shell.stable(sharer=OTHER)
    ask_for_id(shell, "g", MANY)
    again = shell.join(member_id, sharer=OTHER)
    assert again not in shell.answers
    ask_for_id(shell, "h", MANY)
    assert shell.answers[again].error_code is ErrorCode.NONE


def test_groups_of_one_sharer_leave_room_for_those_of_others() -> None:
    shell = Shell(GroupCoordinatorConfig(groups_max=10))
    codes = [commit(shell, f"g{number}", MANY) for number in range(10)]
    assert codes == [ErrorCode.NONE] * 5 + [ErrorCode.POLICY_VIOLATION] * 5
    assert commit(shell, "other", OTHER) is ErrorCode.NONE
    assert join(shell, "more", MANY) is ErrorCode.POLICY_VIOLATION
    shell.ask(DeleteGroup("g0"))
    check_shares(shell.coordinator._store)
    shell.ask(DeleteGroup("g1"))
    assert commit(shell, "more", MANY) is ErrorCode.NONE


def test_offsets_are_bounded_without_metadata_too() -> None:
    """Stored ones can be committed again; new ones of the same sharer are refused, others' are taken."""
    shell = Shell(GroupCoordinatorConfig(offsets_max=100))
    codes = [commit(shell, "g", MANY, number) for number in range(60)]
    assert codes == [ErrorCode.NONE] * 50 + [ErrorCode.POLICY_VIOLATION] * 10
    assert commit(shell, "g", MANY, 7) is ErrorCode.NONE
    assert commit(shell, "other", OTHER) is ErrorCode.NONE
    shell.load()
    assert shell.coordinator.usage.offsets == 51
    shell.ask(DeleteGroup("g"))
    assert shell.coordinator.usage == Usage(groups=1, offsets=1)


def test_metadata_of_one_sharer_leaves_room_for_that_of_others_and_for_members() -> None:
    """Not a single JoinGroup is refused on account of what was committed."""
    shell = Shell(GroupCoordinatorConfig(metadata_bytes_max=10_000))
    codes = [commit(shell, "g", MANY, number, "x" * 1_000) for number in range(10)]
    assert codes == [ErrorCode.NONE] * 5 + [ErrorCode.OFFSET_METADATA_TOO_LARGE] * 5
    assert commit(shell, "other", OTHER, 0, "x" * 1_000) is ErrorCode.NONE
    assert join(shell, "new", MANY) is None


def test_a_group_of_one_that_is_full_goes_over_to_another_that_uses_it() -> None:
    """So no one can occupy the group of another by being the first to use its name."""
    shell = Shell(GroupCoordinatorConfig(metadata_bytes_max=10_000))
    for number in range(5):
        commit(shell, "taken", MANY, number, "x" * 500)
        commit(shell, "own", MANY, number, "x" * 500)
    assert commit(shell, "taken", OTHER, 7, "x" * 1_000) is ErrorCode.NONE
    assert commit(shell, "own", MANY, 7, "x" * 1_000) is ErrorCode.NONE
    assert shell.coordinator.used_by(OTHER).metadata == 3_500


def test_after_a_load_what_is_stored_is_its_users_again() -> None:
    """Until it is used it counts for no one, and towards the bounds of all."""
    shell = Shell(GroupCoordinatorConfig(metadata_bytes_max=10_000))
    commit(shell, "g", MANY, 0, "x" * 4_000)
    shell.load()
    assert shell.coordinator.used_by(MANY) == Usage()
    assert shell.coordinator.usage.metadata == 4_000
    commit(shell, "g", MANY, 1)
    assert shell.coordinator.used_by(MANY) == Usage(groups=1, metadata=4_000, offsets=2)


def test_what_could_not_be_stored_counts_no_longer() -> None:
    shell = Shell(GroupCoordinatorConfig(metadata_bytes_max=10_000))
    shell.holds_appends = True
    rows = (CommittedPartition("t", 0, 1, -1, "x" * 4_000),)
    shell.send(OffsetCommit("g", -1, "", None, rows, sharer=MANY))
    assert shell.coordinator.used_by(MANY) == Usage(groups=1, metadata=4_000, offsets=1)
    shell.refuse(IN_DOUBT)
    assert shell.coordinator.used_by(MANY) == Usage()
    check_shares(shell.coordinator._store)


def test_the_coordinators_of_a_broker_share_the_shares() -> None:
    """More partitions of `__consumer_offsets` do not give a sharer more."""
    config = GroupCoordinatorConfig(members_max=20)
    shells = [Shell(config), Shell(config)]
    for shell in shells:
        shell.coordinator = GroupCoordinator(
            config,
            lambda: total([one.coordinator.usage for one in shells]),
            used_by=lambda sharer: total([one.coordinator.used_by(sharer) for one in shells]),
        )
    assert sum(joined_until_refused(shell, MANY) for shell in shells) == 10
    assert joined_until_refused(shells[1], OTHER) == 5
