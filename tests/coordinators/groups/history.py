"""Random histories of a group: clients that join, commit, stall and come back, appends that fail, coordinators that die.

`History` checks the invariants G1 to G8 of the groups specification after every step, from what clients were answered
and from the committed log; it knows nothing of how the coordinator decides. `calm` then lets everyone behave, and
checks that the group becomes stable. The same source of choices gives the same history.
"""

from __future__ import annotations

import random
from collections import defaultdict

from echoless.coordinators.groups.answers import (
    DeleteAnswer,
    HeartbeatAnswer,
    JoinAnswer,
    LeaveAnswer,
    OffsetCommitAnswer,
    SyncAnswer,
)
from echoless.coordinators.groups.config import GroupCoordinatorConfig
from echoless.coordinators.groups.durable import DurableGroups
from echoless.coordinators.groups.effects import TimerKey, TimerKind
from echoless.coordinators.groups.requests import (
    CommittedPartition,
    DeleteGroup,
    DescribeGroup,
    GroupRequest,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    SyncGroup,
)
from echoless.coordinators.groups.usage import value_size
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.classic_group_value import GroupValue, read_group_value
from echoless.protocol.state_records.group_keys import GroupKey, OffsetKey, read_key
from echoless.protocol.state_records.offset_value import read_offset_value
from tests.coordinators.groups.shares import check_shares
from tests.coordinators.groups.shell import Shell

CONFIG = GroupCoordinatorConfig(group_max_size=4, group_initial_rebalance_delay_ms=1_000)
SESSION_MS = 10_000
REBALANCE_MS = 20_000
TAGS = tuple((("range", b"\x00\x01\x00\x00\x00\x01\x00\x01" + topic),) for topic in (b"t", b"u"))
FAILURES = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.MESSAGE_TOO_LARGE,
)
PARTITIONS = (("t", 0), ("t", 1), ("u", 0))


class Client:
    """A consumer: what it believes, and what it waits for."""

    def __init__(self, instance_id: str | None, *, is_old: bool) -> None:
        self.instance_id = instance_id
        self.is_old = is_old
        """It knows JoinGroup v3 at most."""
        self.member_id = ""
        self.generation_id = -1
        self.protocols = TAGS[0]
        self.members: tuple[str, ...] = ()
        """The members that it has to assign to: it leads."""
        self.must_join = True
        self.assignment: bytes | None = None
        self.waits_for: int | None = None

    def restart(self) -> None:
        """Begin again as another process."""
        self.__init__(self.instance_id, is_old=self.is_old)

    def rejoin(self) -> None:
        self.must_join, self.assignment, self.members = True, None, ()


class History:
    """One group, its clients, and what was promised to them."""

    def __init__(self, choices: random.Random) -> None:
        self.choices = choices
        self.shell = Shell(CONFIG)
        self.shell.sharers = 3
        self.clients = [
            Client(None, is_old=False),
            Client(None, is_old=True),
            Client("i", is_old=False),
            Client("i", is_old=False),
            Client("j", is_old=False),
        ]
        self.sent: dict[int, GroupRequest] = {}
        self.lost: set[int] = set()
        """Requests that no answer can reach: the coordinator died, or the connection ended."""
        self.checked: set[int] = set()
        self.syncs = 0
        self.commits = 0
        self.incarnation = 0
        self.log_read = 0
        self.stored: GroupValue | None = None
        """The group in the committed log."""
        self.replay = DurableGroups()
        self.stored_generation = 0
        self.tags: dict[tuple[int, int], set[bytes]] = defaultdict(set)
        self.stored_tags: dict[tuple[int, int], set[bytes]] = defaultdict(set)
        self.stored_members: dict[tuple[int, int], set[str]] = defaultdict(set)
        self.leaders: dict[tuple[int, int], set[str]] = defaultdict(set)
        self.generation_answered = 0
        self.issued: set[tuple[str, int]] = set()
        self.gone: set[str] = set()
        """Ids that have left, or gave way to another member with their instance id."""
        self.acknowledged: dict[tuple[str, int], int] = {}
        self.deleted_at = 0
        """How many commits had been sent when something was deleted last."""

    # --- what may happen

    def play(self, steps: int) -> None:
        """Take so many random steps, then let everyone behave."""
        actions = (
            *[self.client_acts] * 12,
            *[self.pass_time] * 3,
            *[self.finish_append] * 4,
            *[self.hold_appends, self.fail_over] * 2,
            *(self.abandon, self.administer, self.fetch),
        )
        for _ in range(steps):
            self.choices.choice(actions)()
            self.check()
        self.calm()

    def client_acts(self) -> None:
        client = self.choices.choice(self.clients)
        action = self.choices.randrange(10)
        if action < 6:
            self.behave(client)
        elif action == 6:
            client.restart()
        elif action == 7:
            client.protocols = self.choices.choice(TAGS)
            client.rejoin()
        elif action == 8 and client.member_id:
            self.leave(client)
        else:
            self.commit_as_anyone(client)

    def behave(self, client: Client) -> None:
        """Do what a consumer does next."""
        if client.waits_for is not None:
            return
        if client.must_join:
            self.join(client)
        elif client.assignment is None:
            self.sync(client)
        elif self.choices.randrange(2):
            self.commit(client.member_id, client.generation_id, client.instance_id)
        else:
            self.heartbeat(client)

    def join(self, client: Client) -> None:
        request = self.shell.join_request(
            client.member_id,
            group_instance_id=client.instance_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocols=client.protocols,
            requires_known_member_id=not client.is_old,
            can_skip_assignment=not client.is_old,
        )
        client.waits_for = self.send(request)

    def sync(self, client: Client) -> None:
        self.syncs += 1
        tag = b"sync %d" % self.syncs
        assignments = tuple((member_id, tag) for member_id in client.members)
        request = SyncGroup(
            "g", client.generation_id, client.member_id, client.instance_id, assignments
        )
        client.waits_for = self.send(request)

    def heartbeat(self, client: Client) -> None:
        request = Heartbeat("g", client.generation_id, client.member_id, client.instance_id)
        client.waits_for = self.send(request)

    def leave(self, client: Client) -> None:
        self.send(LeaveGroup("g", (LeavingMember(client.member_id, client.instance_id),)))
        client.restart()

    def commit(self, member_id: str, generation_id: int, instance_id: str | None) -> None:
        topic, partition = self.choices.choice(PARTITIONS)
        self.commits += 1
        rows = (CommittedPartition(topic, partition, self.commits),)
        had_members = self.has_members()
        before = self.appended()
        sharer = self.shell.sharer
        self.send(OffsetCommit("g", generation_id, member_id, instance_id, rows, sharer=sharer))
        if self.appended() != before:
            self.check_commit(member_id, generation_id, had_members=had_members)

    def commit_as_anyone(self, client: Client) -> None:
        """Commit as a zombie, a stranger, or a tool."""
        ids = [*sorted({member_id for member_id, _ in self.issued}), "", client.member_id]
        generation_id = self.generation_answered
        if self.choices.randrange(3):
            generation_id = self.choices.randint(-1, self.generation_answered + 1)
        instance_id = self.choices.choice((None, client.instance_id))
        self.commit(self.choices.choice(ids), generation_id, instance_id)

    def pass_time(self) -> None:
        self.shell.pass_time(self.choices.choice((10, 1_000, 4_000, SESSION_MS, REBALANCE_MS)))

    def hold_appends(self) -> None:
        self.shell.holds_appends = not self.shell.holds_appends
        if not self.shell.holds_appends:
            self.shell.commit_all()

    def finish_append(self) -> None:
        """Commit the oldest append, or refuse it, or let it time out and commit all the same."""
        self.shell.finish_append(self.choices, FAILURES, self.check)

    def fail_over(self) -> None:
        """The coordinator dies; what it has not committed is lost, or was in the log already."""
        if self.shell.held and self.choices.randrange(2):
            for append in self.shell.held[: self.choices.randint(1, len(self.shell.held))]:
                self.shell.log += append.records
        self.lost |= self.sent.keys() - self.shell.answers.keys()
        self.shell.load()
        self.read_log()
        if self.stored is not None:  # one that has left is back if that was not stored
            self.gone -= {one.member_id for one in self.stored.members}
        for client in self.clients:
            if client.waits_for in self.lost:
                client.waits_for = None

    def abandon(self) -> None:
        """A connection ends: its client does not hear the answer."""
        client = self.choices.choice(self.clients)
        if client.waits_for is not None and client.waits_for not in self.shell.answers:
            self.lost.add(client.waits_for)
            self.shell.abandon(client.waits_for)
            client.waits_for = None

    def administer(self) -> None:
        match self.choices.randrange(5):
            case 0:
                self.deleted_at = self.commits
                self.send(DeleteGroup("g"))
            case 1:
                self.deleted_at = self.commits
                self.send(OffsetDelete("g", (self.choices.choice(PARTITIONS),)))
            case 2:
                self.shell.wall_skew_ms += CONFIG.offsets_retention_ms // 3
                self.deleted_at = self.commits
                self.shell.expire()
            case 3:
                self.deleted_at = self.commits
                self.shell.forget("u")
            case 4:
                self.send(DescribeGroup("g"))

    def fetch(self) -> None:
        """Read all offsets, and compare them with what was acknowledged."""
        is_stable = bool(self.choices.randrange(2))
        pending = {read_key(record.key) for append in self.shell.held for record in append.records}
        reply_id = self.send(OffsetFetch("g", None, require_stable=is_stable))
        answer = self.shell.answers[reply_id]
        if self.shell.recoveries and answer.error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return
        found = {}
        for row in answer.partitions:
            is_pending = OffsetKey("g", row.topic, row.partition) in pending
            if row.error_code is ErrorCode.NONE:
                assert not (is_stable and is_pending), "an unstable offset was answered as stable"
                found[row.topic, row.partition] = row.offset
            else:
                assert is_stable
                found[row.topic, row.partition] = self.commits
        for place, offset in self.acknowledged.items():
            if offset > self.deleted_at:
                assert found.get(place, -1) >= offset, f"G4: {place} lost offset {offset}"

    def send(self, request: GroupRequest) -> int:
        reply_id = self.shell.send(request)
        self.sent[reply_id] = request
        return reply_id

    # --- what has to hold

    def check(self) -> None:
        """Check all that has happened since the last time."""
        self.read_log()
        for reply_id in list(self.shell.answers)[len(self.checked) :]:
            self.checked.add(reply_id)
            if reply_id not in self.lost:
                self.check_answer(self.sent[reply_id], self.shell.answers[reply_id])
        for client in self.clients:
            self.absorb(client)
        groups = self.shell.coordinator._store
        assert groups.durable.groups == self.replay.groups, "G8: a replay gives another state"
        self.check_bookkeeping()

    def read_log(self) -> None:
        for key, value in self.shell.log[self.log_read :]:
            assert self.replay.apply(key, value) is None
            read = read_key(key)
            if isinstance(read, OffsetKey) and value is not None:
                assert 0 < read_offset_value(value).offset <= self.commits, "G3"
            if isinstance(read, GroupKey):
                self.stored = None if value is None else read_group_value(value)
                self.note_stored()
        self.log_read = len(self.shell.log)

    def note_stored(self) -> None:
        if self.stored is None:
            self.incarnation += 1
            self.stored_generation = self.generation_answered = 0
            self.issued.clear()
            return
        generation_id = self.stored.generation_id
        assert generation_id >= self.stored_generation, "G2: a generation falls"
        if self.stored.is_rebalancing:
            assert generation_id > self.stored_generation, "G2: a generation is used again"
        self.stored_generation = generation_id
        self.stored_members[self.incarnation, generation_id] |= {
            one.member_id for one in self.stored.members
        }
        tags = {one.assignment for one in self.stored.members} - {b""}
        self.stored_tags[self.incarnation, generation_id] |= tags

    def check_answer(self, request: GroupRequest, answer: object) -> None:
        match request, answer:
            case JoinGroup(), JoinAnswer(error_code=ErrorCode.NONE):
                self.check_join(request, answer)
            case SyncGroup(), SyncAnswer(error_code=ErrorCode.NONE) if answer.assignment:
                place = (self.incarnation, request.generation_id)
                self.tags[place].add(answer.assignment)
                assert len(self.tags[place]) == 1, f"G1: two assignments in {place}"
                assert answer.assignment in self.stored_tags[place], "G7: not stored yet"
            case LeaveGroup(), LeaveAnswer():
                for row in answer.members:
                    if row.error_code is ErrorCode.NONE and row.member_id:
                        self.gone.add(row.member_id)
            case DeleteGroup(), DeleteAnswer(error_code=ErrorCode.NONE):
                assert "g" not in self.replay.groups, "a deleted group is still stored"
            case OffsetCommit(), OffsetCommitAnswer(error_codes=(ErrorCode.NONE,)):
                (row,) = request.partitions
                place = (row.topic, row.partition)
                self.acknowledged[place] = max(self.acknowledged.get(place, 0), row.offset)

    def check_join(self, request: JoinGroup, answer: JoinAnswer) -> None:
        generation_id, member_id = answer.generation_id, answer.member_id
        assert generation_id >= self.generation_answered, "G2: an older generation is answered"
        assert generation_id <= self.stored_generation, "G2: a generation is not stored yet"
        stored_members = self.stored_members[self.incarnation, generation_id]
        assert member_id in stored_members, "G7: a member is not stored yet"
        self.generation_answered = generation_id
        self.issued.add((member_id, generation_id))
        if answer.leader == member_id and not answer.skip_assignment:
            leaders = self.leaders[self.incarnation, generation_id]
            leaders.add(member_id)
            assert len(leaders) == 1, "G1: two leaders of one generation"
        assert member_id not in self.gone, "a member that has gone was answered"
        if request.group_instance_id is not None:
            prefix = f"{request.group_instance_id}-"
            known = {one for one, _ in self.issued if one.startswith(prefix)}
            self.gone |= known - {member_id}

    def check_commit(self, member_id: str, generation_id: int, *, had_members: bool) -> None:
        if generation_id < 0:
            assert not had_members, "G5: a stranger's commit was accepted by a group with members"
            return
        assert generation_id >= self.generation_answered, "G5: a commit of an older generation"
        if generation_id == self.generation_answered:
            assert (member_id, generation_id) in self.issued, "G5: a commit of a stranger"
        assert member_id not in self.gone, "G5: a commit of a member that has gone"

    def absorb(self, client: Client) -> None:
        """Let a client read the answer that it waits for."""
        answer = self.shell.answers.get(client.waits_for or 0)
        if answer is None:
            return
        client.waits_for = None
        match answer:
            case JoinAnswer(error_code=ErrorCode.NONE):
                client.member_id, client.generation_id = answer.member_id, answer.generation_id
                client.must_join, client.assignment = False, None
                is_leader = not answer.skip_assignment
                client.members = tuple(one.member_id for one in answer.members if is_leader)
            case JoinAnswer(error_code=ErrorCode.MEMBER_ID_REQUIRED):
                client.member_id = answer.member_id
            case SyncAnswer(error_code=ErrorCode.NONE):
                client.assignment = answer.assignment
            case JoinAnswer() | SyncAnswer() | HeartbeatAnswer():
                if answer.error_code in (
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    ErrorCode.FENCED_INSTANCE_ID,
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                ):
                    client.member_id = ""
                if answer.error_code is not ErrorCode.NONE:
                    client.rejoin()

    def check_bookkeeping(self) -> None:
        """Check what no client sees: counts that are kept, and timers that must be set."""
        groups = self.shell.coordinator._store
        assert groups.members == sum(len(one.members) for one in groups.live.values())
        check_shares(groups)
        assert groups.protocol_bytes == sum(one.protocol_bytes for one in groups.live.values())
        stored = groups.durable.groups.values()
        rows = [row for one in stored for rows in one.offsets.values() for row in rows.values()]
        size = sum(value_size(one.value) for one in stored) + sum(map(value_size, rows))
        appended = [value for one in groups.appends._pending.values() for _, value in one.records]
        assert groups.durable.size == size
        pending = sum(map(value_size, appended))
        assert groups.usage.size == size + groups.protocol_bytes + pending
        for group in groups.live.values():
            members = group.members.values()
            assert group.waiting_joins == sum(one.join_reply is not None for one in members)
            assert group.static_members == {
                one.group_instance_id: one.member_id for one in members if one.is_static
            }
            assert group.pending_syncs <= group.members.keys()
            assert not group.members or group.leader in group.members
            assert len(group.members) <= 2 * CONFIG.group_max_size
            for member_id in group.members:
                key = TimerKey(TimerKind.SESSION, group.group_id, member_id)
                assert key in self.shell.timers, f"{member_id} has no session timer"
            if group.state.value == "PreparingRebalance" and group.generation_token is None:
                key = TimerKey(TimerKind.REBALANCE, group.group_id)
                assert key in self.shell.timers, "a join phase has no timer"
            is_idle = group.state.value == "Empty" and not group.pending_members
            stored_members = self.stored is not None and self.stored.members
            assert not is_idle or group.appends or stored_members, "an idle group is kept"

    def has_members(self) -> bool:
        group = self.shell.live.get("g")
        return group is not None and bool(group.members)

    def appended(self) -> tuple[int, int]:
        return len(self.shell.held), len(self.shell.log)

    # --- the end

    def calm(self) -> None:
        """G6: once no one disturbs them, all clients share one assignment within two timeouts."""
        self.shell.holds_appends = False
        self.shell.commit_all()
        self.clients = [self.clients[index] for index in (0, 1, 2, 4)]  # one client per instance id
        for _ in range((SESSION_MS + REBALANCE_MS) * 2 // 1_000):
            self.check()
            for client in self.clients:
                if client.waits_for is None:
                    self.advance(client)
                self.check()
            self.shell.pass_time(1_000)
        self.check()
        assert self.shell.state() == "Stable", f"G6: the group is {self.shell.state()}"
        assignments = {(one.generation_id, one.assignment) for one in self.clients}
        assert len(assignments) == 1, f"G6: assignments {assignments}"
        assert (self.clients[0].assignment or b"").startswith(b"sync "), "G6: no assignment"
        self.fetch()
        waiting = self.sent.keys() - self.shell.answers.keys() - self.lost
        assert waiting <= {one.waits_for for one in self.clients}, f"{waiting} are never answered"

    def advance(self, client: Client) -> None:
        if client.must_join:
            self.join(client)
        elif client.assignment is None:
            self.sync(client)
        else:
            self.heartbeat(client)
