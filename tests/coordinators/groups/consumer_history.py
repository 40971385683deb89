"""Random histories of a group of the consumer protocol, and the invariants G1, G2, G4, G5, G6 and G8 after every step.

Clients own what they were last answered, and say so with their next heartbeat; answers get lost, requests of earlier
epochs arrive late, strangers send flawed ones, appends fail, topics change, coordinators die. `calm` then lets every
client behave.
"""

from __future__ import annotations

import random

from echoless.coordinators.groups.config import GroupCoordinatorConfig
from echoless.coordinators.groups.consumer.assignors import ASSIGNORS
from echoless.coordinators.groups.consumer.requests import (
    UNCHANGED,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
)
from echoless.coordinators.groups.consumer.state import ConsumerState
from echoless.coordinators.groups.durable import DurableGroups
from echoless.coordinators.groups.requests import (
    CommittedPartition,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetFetch,
)
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.group_keys import OffsetKey, read_key
from tests.coordinators.groups.consumers import GROUP, ConsumerShell, Partitions
from tests.coordinators.groups.shares import check_shares

CONFIG = GroupCoordinatorConfig(group_consumer_max_size=4, group_consumer_session_timeout_ms=10_000)
REBALANCE_MS = 20_000
FAILURES = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE)
SUBSCRIPTIONS = (("t",), ("t", "u"), ("u",))
NOTHING: Partitions = frozenset()
FLAWS: tuple[dict[str, object], ...] = (
    {"assignor": "x"},
    {"member_id": "x" * 40_000},
    {"instance_id": "€" * 20_000},
    {"topic_regex": "x" * 40_000},
    {"topic_names": ("x" * 2_000_000,)},
    {"rebalance_timeout_ms": -2},
    {"member_epoch": -3},
)
_CALM_ROUNDS = 40


class Client:
    """A consumer: what it believes, and what it waits for."""

    def __init__(self, number: int, instance_id: str | None) -> None:
        self.number = number
        self.instance_id = instance_id
        self.incarnation = 0
        self.topics = SUBSCRIPTIONS[0]
        self.regex = ""
        self.assignor: str | None = None
        self.start()

    def start(self) -> None:
        """Begin as another process."""
        self.incarnation += 1
        self.member_id = f"m{self.number}-{self.incarnation}"
        self.rejoin()

    def rejoin(self) -> None:
        self.epoch = 0
        self.owned = NOTHING
        self.must_send_all = True
        self.waits_for: int | None = None


class ConsumerHistory:
    """One group and its clients."""

    def __init__(self, choices: random.Random) -> None:
        self.choices = choices
        self.shell = ConsumerShell(CONFIG, t=5, u=2)
        self.shell.sharers = 3
        self.clients = [Client(number, "ij"[number] if number < 2 else None) for number in range(5)]
        self.clients[4].instance_id = "i"  # two processes with one instance id
        self.sent: dict[int, tuple[Client, int, ConsumerHeartbeat]] = {}
        self.late: list[tuple[Client, int, ConsumerHeartbeat]] = []
        """Heartbeats, with the incarnation of their client, of which a copy may arrive later."""
        self.replay = DurableGroups()
        self.log_read = 0
        self.epoch = 0
        self.targets: tuple[int, dict[str, Partitions]] = (0, {})
        self.commits: dict[int, tuple[int, OffsetCommit]] = {}
        self.offset = 0

    # --- what may happen

    def play(self, steps: int) -> None:
        """Take so many random steps, then let everyone behave."""
        actions = (
            *[self.behave] * 14,
            *[self.disturb_client] * 3,
            *[self.pass_time] * 2,
            *[self.finish_append] * 4,
            *[self.hold_appends, self.arrive_late] * 2,
            *(self.fail_over, self.change_topics, self.commit, self.administer, self.send_flawed),
        )
        for _ in range(steps):
            self.choices.choice(actions)()
            self.check()
        self.calm()

    def behave(self, client: Client | None = None) -> None:
        """Heartbeat, unless the client waits for an answer."""
        client = client or self.choices.choice(self.clients)
        if client.waits_for is not None:
            return
        joins = client.epoch == 0
        is_full = joins or client.must_send_all
        request = self.shell.heartbeat_request(
            client.member_id,
            client.epoch,
            client.owned,
            client.topics if is_full else None,
            instance_id=client.instance_id,
            topic_regex=client.regex if is_full else None,
            assignor=client.assignor if is_full else None,
            rebalance_timeout_ms=REBALANCE_MS if is_full else UNCHANGED,
        )
        self.late.append((client, client.incarnation, request))
        self.send(client, request)

    def send(self, client: Client, request: ConsumerHeartbeat) -> None:
        client.waits_for = self.shell.send(request)
        self.sent[client.waits_for] = (client, client.incarnation, request)

    def disturb_client(self) -> None:
        client = self.choices.choice(self.clients)
        match self.choices.randrange(6):
            case 0:
                client.start()
            case 1:
                client.rejoin()
            case 2:  # the answer is lost, or the client gives up waiting
                if client.waits_for is not None and client.waits_for not in self.shell.answers:
                    self.shell.abandon(client.waits_for)
                client.waits_for, client.must_send_all = None, True
            case 3 if client.waits_for is None:
                client.topics = self.choices.choice(SUBSCRIPTIONS)
                client.regex = self.choices.choice(("", "", "u"))
                client.assignor = self.choices.choice((None, *ASSIGNORS))
                client.must_send_all = True
            case _:
                epoch = self.choices.choice((-1, -2)) if client.instance_id else -1
                request = self.shell.heartbeat_request(
                    client.member_id, epoch, instance_id=client.instance_id
                )
                self.shell.send(request)
                client.start()

    def send_flawed(self) -> None:
        """A flawed heartbeat is refused at once, from any sender and whatever the group waits for."""
        client, fields = self.choices.choice(self.clients), self.choices.choice(FLAWS)
        epoch = self.choices.choice((0, client.epoch))
        request = self.shell.heartbeat_request(client.member_id, epoch)._replace(**fields)  # type: ignore[arg-type]
        recoveries = self.shell.recoveries
        code = self.shell.ask(request).error_code
        if self.shell.recoveries == recoveries and not self.shell.is_reloading():
            assert code in (ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_ASSIGNOR)

    def arrive_late(self) -> None:
        """A copy of a heartbeat arrives whose client has come to a later epoch since."""
        old = [
            one[2]
            for one in self.late[-40:]
            if one[0].incarnation == one[1]
            and 0 < one[2].member_epoch < one[0].epoch
            and one[2].topic_names is None
        ]
        if old:
            self.shell.send(self.choices.choice(old))

    def pass_time(self) -> None:
        self.shell.pass_time(self.choices.choice((10, 1_000, 4_000, 10_000, REBALANCE_MS)))

    def hold_appends(self) -> None:
        self.shell.holds_appends = not self.shell.holds_appends
        self.shell.holds_regexes = self.choices.randrange(3) == 0
        if not self.shell.holds_regexes:
            self.shell.resolve_all()
        self.shell.holds_assignments = self.choices.randrange(3) == 0
        if not self.shell.holds_assignments:
            self.shell.assign_all()
        if not self.shell.holds_appends:
            self.shell.commit_all()

    def finish_append(self) -> None:
        """Commit the oldest append, or refuse it, or let it time out and commit all the same."""
        self.shell.finish_append(self.choices, FAILURES, self.check)

    def fail_over(self) -> None:
        """The coordinator dies; what it has not committed is lost, or was in the log already."""
        for append in self.shell.held[: self.choices.randint(0, len(self.shell.held))]:
            self.shell.log += append.records
        self.shell.load()
        for client in self.clients:
            if client.waits_for is not None and client.waits_for not in self.shell.answers:
                client.waits_for, client.must_send_all = None, True

    def change_topics(self) -> None:
        topics, name = self.shell.topics, self.choices.choice(("t", "u"))
        known = topics.find(name)
        if known is None:
            topics.set(name, self.choices.randint(1, 4))
        elif self.choices.randrange(3) == 0:
            topics.delete(name)
        elif known.partitions < 8:
            topics.set(name, known.partitions + 1)

    def administer(self) -> None:
        """Remove a member on request, or let a classic member knock."""
        client = self.choices.choice(self.clients)
        if self.choices.randrange(2):
            self.shell.send(LeaveGroup(GROUP, (LeavingMember(client.member_id),)))
        elif self.state().members:
            self.shell.join("x")

    def commit(self) -> None:
        """Commit as anyone, in any epoch."""
        client = self.choices.choice(self.clients)
        epoch = max(client.epoch - self.choices.randrange(3), 0)
        index = self.choices.randrange(5)
        self.offset += 1
        rows = (CommittedPartition("t", index, self.offset),)
        request = OffsetCommit(
            GROUP,
            epoch,
            client.member_id,
            None,
            rows,
            knows_missing_groups=True,
            sharer=self.shell.sharer,
        )
        known, before = self.known_epoch(client.member_id, index), len(self.shell.log)
        reply = self.shell.send(request)
        self.commits[reply] = (index, request)
        stored = [read_key(record.key) for record in self.shell.log[before:]]
        if OffsetKey(GROUP, "t", index) in stored:
            assert known is not None, "G5: committed by a member that is not in the group"
            assert known[1] <= epoch <= known[0], "G5: committed in an epoch without the partition"

    def known_epoch(self, member_id: str, index: int) -> tuple[int, int] | None:
        """The epoch of a member, and the first one in which it may commit the partition."""
        group = self.shell.live.get(GROUP)
        consumer = group.consumer if group is not None else None
        current = consumer.state.currents.get(member_id) if consumer is not None else None
        topic = self.shell.topics.find("t")
        if current is None:
            return None
        given = {**current.assigned, **current.pending}
        partition = (topic.topic_id, index) if topic is not None else None
        return current.epoch, given.get(partition, current.epoch)

    # --- what is answered

    def read_answers(self) -> None:
        for client in self.clients:
            answer = self.shell.answers.get(client.waits_for or 0)
            if answer is not None:
                assert isinstance(answer, ConsumerHeartbeatAnswer)
                joined = self.sent[client.waits_for or 0][2]
                client.waits_for = None
                self.take(client, answer)
                self.check_join(joined, answer)

    def take(self, client: Client, answer: ConsumerHeartbeatAnswer) -> None:
        match answer.error_code:
            case ErrorCode.NONE:
                assert answer.member_epoch <= self.epoch, "an epoch was answered that is not stored"
                assert answer.member_epoch >= client.epoch, "G2: the epoch of a member fell"
                client.epoch, client.must_send_all = answer.member_epoch, False
                if answer.assignment is not None:
                    client.owned = answer.assignment
            case ErrorCode.FENCED_MEMBER_EPOCH | ErrorCode.UNKNOWN_MEMBER_ID:
                client.rejoin()
            case ErrorCode.GROUP_ID_NOT_FOUND:
                client.rejoin()
            case ErrorCode.FENCED_INSTANCE_ID | ErrorCode.UNRELEASED_INSTANCE_ID:
                client.start()
            case _:
                client.must_send_all = True

    # --- invariants

    def check_join(self, request: ConsumerHeartbeat, answer: ConsumerHeartbeatAnswer) -> None:
        """Who joins with a regular expression is answered when its topics are known, unless that is out of date."""
        state = self.state()
        known = state.members.get(request.member_id)
        pattern = request.topic_regex
        if answer.error_code is ErrorCode.NONE and request.member_epoch == 0 and pattern:
            assert known is None or known.topic_regex != pattern or pattern in state.regexes

    def state(self) -> ConsumerState:
        """The group as the log has it."""
        group = self.replay.groups.get(GROUP)
        return ConsumerState() if group is None or group.consumer is None else group.consumer

    def check(self) -> None:
        self.read_log()
        self.read_answers()
        self.check_replay()
        self.check_owners()
        check_shares(self.shell.coordinator._store)

    def read_log(self) -> None:
        """Replay what was committed; the records of one step belong together."""
        for record in self.shell.log[self.log_read :]:
            assert self.replay.apply(*record) is None
            state = self.state()
            if state.epoch is not None:
                assert state.number >= self.epoch, "G2: the epoch fell"
                self.epoch = state.number
        self.log_read = len(self.shell.log)
        self.check_targets(self.state())

    def check_targets(self, state: ConsumerState) -> None:
        known_epoch, known = self.targets
        found = {
            state.members[member_id].instance_id or member_id: target
            for member_id, target in state.targets.items()
        }
        if state.target_epoch == known_epoch:
            assert found.items() <= known.items(), "G1: two targets of one epoch"
        given = [partition for target in found.values() for partition in target]
        assert len(given) == len(set(given)), "G1: a target has a partition twice"
        self.targets = (state.target_epoch, found)

    def check_replay(self) -> None:
        """G8: what is live is what the log says, unless something is being stored."""
        durable = self.shell.coordinator._store.durable.groups
        assert _shown(durable.get(GROUP)) == _shown(self.replay.groups.get(GROUP))
        group = self.shell.live.get(GROUP)
        consumer = group.consumer if group is not None else None
        if consumer is not None and consumer.token is None and self.state().members:
            assert vars(consumer.state) == vars(self.state()), "G8"
            assert self.shell.coordinator.member_count == len(self.state().members)

    def check_owners(self) -> None:
        """G1: no partition has two owners: in the log, and among the clients that are in their group's epochs."""
        state, owners = self.state(), {}
        for member_id, current in state.currents.items():
            for partition in (*current.assigned, *current.pending):
                assert owners.setdefault(partition, member_id) == member_id, "G1: two members"
        held: dict[tuple[bytes, int], str] = {}
        for client in self.clients:
            current = state.currents.get(client.member_id)
            if current is None or client.epoch not in (current.epoch, current.previous_epoch):
                continue
            for partition in client.owned:
                other = held.setdefault(partition, client.member_id)
                assert other == client.member_id, "G1: two clients own a partition"

    # --- at the end

    def calm(self) -> None:
        """G6: every client behaves from now on, and the group becomes stable."""
        shell = self.shell
        shell.holds_appends = shell.holds_regexes = shell.holds_assignments = False
        shell.resolve_all()
        shell.assign_all()
        shell.commit_all()
        self.clients.pop()  # the other process with the instance id
        for _ in range(_CALM_ROUNDS):
            for client in self.clients:
                self.behave(client)
                self.check()
            shell.pass_time(3_000)
            self.check()
        wanted = self.wanted()
        owned = [partition for client in self.clients for partition in client.owned]
        assert sorted(owned) == sorted(wanted), "G6: not every partition has one owner"
        assert shell.describe().state == "Stable", "G6"
        assert {client.epoch for client in self.clients} == {self.epoch}
        self.check_commits()
        before = vars(self.state())
        shell.load()
        self.check_replay()
        assert vars(shell.live[GROUP].consumer.state) == before, "G8: after a fail-over"

    def wanted(self) -> Partitions:
        topics = self.shell.topics
        names = {name for client in self.clients for name in client.topics}
        names |= {name for client in self.clients if client.regex for name in ("u",)}
        return frozenset().union(*(topics.ids(one) for one in names if topics.find(one)))

    def check_commits(self) -> None:
        """G4: the last commit of each partition that was answered with 0, or a later one, is read back."""
        answered: dict[int, int] = {}
        for reply, (index, request) in self.commits.items():
            answer = self.shell.answers.get(reply)
            if answer is not None and answer.error_codes == (ErrorCode.NONE,):
                answered[index] = request.partitions[0].offset
        found = self.shell.ask(OffsetFetch(GROUP, None)).partitions
        offsets = {row.partition: row.offset for row in found}
        for index, offset in answered.items():
            assert offsets[index] >= offset, "G4"


def _shown(group: object) -> object:
    consumer = getattr(group, "consumer", None)
    return None if consumer is None else vars(consumer)
