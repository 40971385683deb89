"""Two brokers that replicate to each other, without sockets, disks or a coordinator: real partitions and fetchers, virtual time.

The state nodes are a dictionary, whose changes reach both brokers. Messages go through `Exchange` as bytes; while `is_stormy`
they get lost, repeated, late and reordered, and so do answers. `whole_lists` makes both brokers leaders of an
earlier release, which know no sessions.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

from echoless.broker.cluster.leadership_doubt import LeadershipDoubt
from echoless.broker.config.loading import Address, Config, LogFlush
from echoless.broker.config.topic import TopicConfig
from echoless.broker.metadata.node_data import LeaderAndIsr
from echoless.broker.metadata.topic import StateChange, Topic
from echoless.broker.metrics import Metrics
from echoless.broker.native.exchange import Exchange
from echoless.broker.network.request import Peer
from echoless.broker.partitions.log_changes import LogChanges
from echoless.broker.partitions.partition import Partition
from echoless.broker.partitions.produce_rules import ProduceRules
from echoless.broker.replication.fetcher import FetcherContext
from echoless.broker.replication.fetchers import Fetchers
from echoless.broker.replication.isr_changes import IsrChanges
from echoless.broker.replication.peers import PeerError
from echoless.broker.tree.node_tree import BadVersionError, MultiFailedError
from echoless.protocol.errors import ErrorCode, KafkaError
from echoless.protocol.native.codec import decode_message, encode_message
from echoless.protocol.native.replica_session import SESSION
from echoless.protocol.record_batch import read_header
from echoless.storage.disk_work import one_by_one
from tests.simulation.virtual_loop import VirtualLoop
from tests.storage.log_workload import make_batch
from tests.storage.one_log import NOW_MS, OneLog

TOPIC_ID: Final = UUID(int=7)
BOTH: Final = (1, 2)
LAG_MAX_S: Final = 4.0
SETTLES_S: Final = 14.0
_SESSION_FIELDS: Final = frozenset({SESSION, "session_epoch", "forgotten"})
_CONFIG: Final = Config(log_flush=LogFlush.OS)
_RULES: Final = ProduceRules.of(TopicConfig.of(_CONFIG, {}))


class Brokers:
    """Brokers 1 and 2, and what they share."""

    def __init__(
        self, loop: VirtualLoop, rng: Random, partitions: int, *, whole_lists: bool = False
    ) -> None:
        self.loop = loop
        self.rng = rng
        self.whole_lists = whole_lists
        self.is_stormy = False
        self.session_timeout_s = rng.choice([2.0, 6.0])
        """Half of it is the time after which a doubt is a long one."""
        self.is_cut = False
        """Whether no message arrives."""
        self.epochs = itertools.count(100)
        self.states = {
            index: LeaderAndIsr(leader=1 + index % 2, leader_epoch=0, isr=BOTH)
            for index in range(partitions)
        }
        self.sequence = itertools.count()
        self.committed: dict[int, dict[int, bytes]] = {index: {} for index in self.states}
        """The batches below any high watermark of a leader, by partition and offset."""
        self.findings: list[str] = []
        self.messages = 0
        self.sides = {broker_id: Side(self, broker_id) for broker_id in BOTH}
        for side in self.sides.values():
            side.start()
        for side in self.sides.values():
            side.registered = {one.broker_id: one.broker_epoch for one in self.sides.values()}
        for index in self.states:
            self.publish(index)

    # --- the state nodes ---

    def write(self, index: int, leader: int, isr: Sequence[int], late: int | None = None) -> None:
        """Begins a new leader epoch; the broker `late` learns of it a second later."""
        before = self.states[index]
        self.states[index] = LeaderAndIsr(
            leader=leader,
            leader_epoch=before.leader_epoch + 1,
            isr=tuple(isr),
            node_version=before.node_version + 1,
        )
        self.publish(index, late)

    def publish(self, index: int, late: int | None = None) -> None:
        for side in self.sides.values():
            if side.broker_id == late:
                self.loop.call_later(1.0, side.learn, index)
            else:
                side.learn(index)

    async def change_states(self, changes: Sequence[StateChange]) -> None:
        """The conditional write of ISRs, as `TopicRegistry.change_states`: all or none."""
        await asyncio.sleep(0)
        for place, (_, index, before, _) in enumerate(changes):
            if before is None or self.states[index].node_version != before.node_version:
                raise MultiFailedError(place, BadVersionError(str(index), "is another"))
        for _, index, before, after in changes:
            assert before is not None
            self.states[index] = after._replace(node_version=before.node_version + 1)
            self.publish(index)

    # --- time, and what is looked at ---

    def run(self, seconds: float) -> None:
        self.loop.run_until(self.loop.time() + seconds)
        self.check_claims()

    def check_claims(self) -> None:
        """Finds what a leader counts and its follower does not really have, as the leader's batches."""
        for side in self.sides.values():
            for index, partition in side.partitions.items():
                if (
                    partition.leader_epoch == self.states[index].leader_epoch
                    and partition.is_leader
                ):
                    with contextlib.suppress(IsCutError):
                        self._check(index, partition, self.sides[3 - side.broker_id])

    def _check(self, index: int, partition: Partition, other: Side) -> None:
        assert partition.in_sync is not None
        claimed = partition.in_sync.log_end_offset(other.broker_id)
        if partition.in_sync.broker_epoch(other.broker_id) != other.broker_epoch:
            claimed = -1
        if claimed < 0 and partition.high_watermark == 0:
            return
        copy = other.partitions[index]
        ours, theirs = batches_of(partition), batches_of(copy)
        start = max(partition.log.first_offset, copy.log.first_offset)
        for offset, batch in ours.items():
            if start <= offset < claimed and theirs.get(offset) != batch:
                self.findings.append(f"{index}: {offset} is claimed, not there")
            if offset < partition.high_watermark:
                kept = self.committed[index].setdefault(offset, batch)
                if kept != batch:
                    self.findings.append(f"{index}: {offset} was committed as another batch")

    def picture(self) -> list[Any]:
        """Logs, high watermarks, log starts and ISRs."""
        return [
            (
                index,
                self.states[index].leader,
                sorted(self.states[index].isr),
                [
                    (
                        partition.high_watermark,
                        partition.log.log_start_offset,
                        [*batches_of(partition)],
                    )
                    for partition in (side.partitions[index] for side in self.sides.values())
                ],
            )
            for index in self.states
        ]

    def is_level(self) -> list[str]:
        """Finds what is not as it has to be once all is calm."""
        found = list(self.findings)
        for index, state in self.states.items():
            leader = self.sides[state.leader].partitions[index]
            follower = self.sides[3 - state.leader].partitions[index]
            end = leader.log.log_end_offset
            if set(state.isr) != set(BOTH):
                found.append(f"{index}: in sync are {state.isr}")
            if (follower.log.log_end_offset, leader.high_watermark) != (end, end):
                found.append(
                    f"{index}: {follower.log.log_end_offset} {leader.high_watermark} {end}"
                )
            if follower.high_watermark != end:
                found.append(f"{index}: the follower knows {follower.high_watermark} of {end}")
            if follower.log.log_start_offset < leader.log.log_start_offset:
                found.append(f"{index}: the follower keeps what was deleted")
            ours, theirs = batches_of(leader), batches_of(follower)
            start = max(leader.log.first_offset, follower.log.first_offset)
            found += [
                f"{index}: the logs differ at {offset}"
                for offset in ours.keys() | theirs.keys()
                if offset >= start and ours.get(offset) != theirs.get(offset)
            ]
            for offset, batch in self.committed[index].items():
                if offset >= leader.log.first_offset and ours.get(offset) != batch:
                    found.append(f"{index}: {offset} was committed and is lost")
        for side in self.sides.values():
            held = len(side.fetches.sessions)
            if not self.whole_lists and held != sum(
                state.leader == side.broker_id for state in self.states.values()
            ):
                found.append(f"broker {side.broker_id} holds {held} rows")
        return found

    # --- events ---

    def append(self, index: int) -> None:
        leader = self.sides[self.states[index].leader]
        partition = leader.partitions[index]
        if partition.is_leader and leader.is_proved:
            number = next(self.sequence)
            batch = make_batch(
                producer_id=number, epoch=0, sequence=0, count=1, size=20, timestamp=NOW_MS
            )
            partition.append(batch, read_header(batch), NOW_MS)

    def delete(self, index: int) -> None:
        partition = self.sides[self.states[index].leader].partitions[index]
        if partition.is_leader:
            partition.advance_log_start(partition.high_watermark)

    def move(self, index: int, late: int | None = None) -> None:
        """The other replica leads, if it may."""
        state = self.states[index]
        other = 3 - state.leader
        if other in state.isr:
            self.write(index, other, state.isr, late)

    def lead_again(self, index: int, late: int | None = None) -> None:
        state = self.states[index]
        self.write(index, state.leader, state.isr, late)

    def there_and_back(self, index: int) -> None:
        """A -> B -> A, with a batch in each epoch."""
        self.append(index)
        self.move(index)
        self.append(index)
        self.move(index)
        self.append(index)

    def reassign(self, index: int) -> None:
        """The follower is removed, and added again before it has noticed that."""
        before = self.states[index]
        state = before._replace(isr=(before.leader,), node_version=before.node_version + 1)
        leader = self.sides[state.leader].partitions[index]
        if leader.is_leader and leader.leader_epoch == state.leader_epoch:
            self.states[index] = state
            leader.update(state, (state.leader,))
            self.publish(index)
            leader.update(state, BOTH)

    def restart(self, broker_id: int, lost: int, notified_s: float) -> None:
        """A broker comes back, in a new broker epoch and without the end of its logs."""
        side, other = self.sides[broker_id], self.sides[3 - broker_id]
        side.stop()
        for index, state in self.states.items():
            partition = side.partitions[index]
            end = partition.log.log_end_offset
            if other.broker_id not in state.isr:
                continue  # alone in sync, it has lost nothing
            self.write(index, other.broker_id, [other.broker_id])
            if end > partition.log.first_offset:
                partition.log.truncate_to(max(end - lost, partition.log.first_offset))
        side.start()
        side.registered[other.broker_id] = other.broker_epoch
        self.loop.call_later(notified_s, other.notify, broker_id, side.broker_epoch)
        for index, state in self.states.items():
            if state.leader == broker_id:
                self.write(index, broker_id, state.isr)  # no epoch is led in two lives
            else:
                side.learn(index)

    def doubt(self, broker_id: int) -> None:
        self.sides[broker_id].begin_doubt()
        self.loop.call_later(2.0, self.sides[broker_id].end_doubt)

    def break_connections(self) -> None:
        for side in self.sides.values():
            side.disconnect(0)


class Side:
    """One broker. It is its own `Peers`, `PartitionRegistry` and membership, as far as they are asked."""

    takes_records = True

    def __init__(self, brokers: Brokers, broker_id: int) -> None:
        self.brokers = brokers
        self.broker_id = broker_id
        self.is_proved = True
        self.registered: dict[int, int] = {}
        self._logs = {index: OneLog() for index in brokers.states}
        self._calls: dict[asyncio.Future[Any], Side] = {}
        self._topic = Topic("orders", TOPIC_ID, dict.fromkeys(brokers.states, BOTH), {}, {})
        self.ends: dict[asyncio.Future[Any], asyncio.Task[None] | None] = {}
        """Calls that this broker answers, with the tasks that do."""

    def start(self) -> None:
        """Begins a new life with the logs of the one before."""
        brokers = self.brokers
        self.broker_epoch = next(brokers.epochs)
        self.registered = {self.broker_id: self.broker_epoch}
        self.partitions = {index: self._open(index) for index in brokers.states}
        self.changes = LogChanges(
            run_all=one_by_one, update=self._update, on_failure=lambda error: None
        )
        self.fetchers = Fetchers(
            FetcherContext(
                broker_id=self.broker_id,
                broker_epoch=lambda: self.broker_epoch,
                address_of=lambda _: Address("other", 1),
                peers=self,
                log_changes=self.changes,
                now_ms=lambda: NOW_MS,
                metrics=Metrics(),
                on_failure=lambda error: None,
            )
        )
        self.isr_changes = IsrChanges(
            self,  # type: ignore[arg-type]
            {("orders", index): one for index, one in self.partitions.items()},
            lag_max_s=LAG_MAX_S,
            is_proved=lambda: self.is_proved,
            registered_epoch=self.registered_epoch,
            read_epoch=self._read_epoch,
            metrics=Metrics(),
        )
        self.doubts = LeadershipDoubt(
            {("orders", index): one for index, one in self.partitions.items()},
            self.isr_changes,
            Metrics(),
            session_timeout_s=lambda: self.brokers.session_timeout_s,
        )
        self._looking = brokers.loop.create_task(self.isr_changes.run())
        services: Any = SimpleNamespace(
            metrics=Metrics(),
            access=None,
            quotas=SimpleNamespace(limits=None),
            partitions=self,
            cluster=SimpleNamespace(registered_epoch=self.registered_epoch, brokers=BOTH),
            stopping=asyncio.Event(),
            fail_storage=lambda error: None,
            config=_CONFIG,
            clock=SimpleNamespace(steady_ms=lambda: NOW_MS),
        )
        self.exchange = Exchange(services)
        self.fetches = self.exchange.handlers["replica_fetch"][1].__self__  # type: ignore[attr-defined]

    def _open(self, index: int) -> Partition:
        return Partition(
            "orders",
            index,
            TOPIC_ID,
            self._logs[index].log,
            config=replace(_CONFIG, broker_id=self.broker_id),
            rules=_RULES,
            high_watermark=0,
            fencing=self,
            on_dirty=lambda _: None,
        )

    def stop(self) -> None:
        self.disconnect(0)
        for call in list(self.ends):
            _resolve(call, PeerError("the broker is gone"))
        self.isr_changes.end()
        self.doubts.close()
        self._looking.cancel()
        self.brokers.loop.create_task(self.fetchers.close())
        self.fetchers.end()

    # --- roles ---

    def learn(self, index: int) -> None:
        partition, state = self.partitions[index], self.brokers.states[index]
        if not self.changes.defers(partition, state, BOTH):
            self._update(partition, state, BOTH)

    def _update(self, partition: Partition, state: LeaderAndIsr, replicas: tuple[int, ...]) -> None:
        before = partition.leader_id, partition.leader_epoch
        partition.update(state, replicas)
        if (partition.leader_id, partition.leader_epoch) != before:
            if partition.is_leader:
                self.fetchers.led(partition, partition.leader_epoch)
            else:
                self.fetchers.lost(partition)

    def find(self, topic_id: UUID, index: int) -> Partition:
        if topic_id != TOPIC_ID:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return self.partitions[index]

    @property
    def topics(self) -> Mapping[str, Topic]:
        return {"orders": self._topic._replace(states=self.brokers.states)}

    async def change_states(self, changes: Sequence[StateChange]) -> None:
        await self.brokers.change_states(changes)

    # --- membership ---

    def registered_epoch(self, broker_id: int) -> int | None:
        return self.registered.get(broker_id)

    async def _read_epoch(self, broker_id: int) -> int | None:
        return self.brokers.sides[broker_id].broker_epoch

    def isr_may_change(self, partition: Partition) -> None:
        self.isr_changes.consider_progress(partition)

    def notify(self, broker_id: int, epoch: int) -> None:
        """This broker learns of another one's registration."""
        self.registered[broker_id] = max(epoch, self.registered.get(broker_id, 0))
        self.fetchers.wake()
        self.isr_changes.consider_all()

    def begin_doubt(self) -> None:
        self.is_proved = False
        self.doubts.begin()

    def end_doubt(self) -> None:
        self.is_proved = True
        self.doubts.end()

    # --- messages ---

    async def call(
        self, broker_id: int, address: Address, message: Mapping[str, Any], *, timeout_s: float
    ) -> dict[str, Any]:
        del address
        brokers, target = self.brokers, self.brokers.sides[broker_id]
        brokers.messages += 1
        if brokers.whole_lists:
            message = {name: one for name, one in message.items() if name not in _SESSION_FIELDS}
        frame = encode_message({"correlation_id": 0, **message})
        answered: asyncio.Future[Any] = brokers.loop.create_future()
        self._calls[answered] = target
        target.ends[answered] = None
        rng = brokers.rng
        chance = rng.random() if brokers.is_stormy else 1.0
        loses_answer = chance < 0.05
        if not (0.05 <= chance < 0.1 or brokers.is_cut):
            target.deliver(frame, rng.uniform(0.0001, 0.002), None if loses_answer else answered)
        if chance > 0.85 and brokers.is_stormy:
            target.deliver(frame, rng.uniform(0, 5), None)
        try:
            async with asyncio.timeout(timeout_s):
                found: dict[str, Any] = await answered
        except TimeoutError:
            raise PeerError("no answer") from None
        finally:
            del self._calls[answered], target.ends[answered]
        return found

    def deliver(self, frame: bytes, delay_s: float, answered: asyncio.Future[Any] | None) -> None:
        def arrive() -> None:
            task = self.brokers.loop.create_task(self._serve(frame, answered))
            if answered in self.ends:
                self.ends[answered] = task

        self.brokers.loop.call_later(delay_s, arrive)

    async def _serve(self, frame: bytes, answered: asyncio.Future[Any] | None) -> None:
        outcome = self.exchange.answer(frame, Peer(1, "other:1"))
        self.brokers.check_claims()
        buffers: Any = await outcome if isinstance(outcome, Awaitable) else outcome
        await asyncio.sleep(0.0005)
        if answered is not None:
            _resolve(answered, decode_message(b"".join(buffers)[4:]))

    def disconnect(self, broker_id: int) -> None:
        del broker_id
        for call, target in list(self._calls.items()):
            serving = target.ends[call]
            if serving is not None:
                serving.cancel()
            _resolve(call, PeerError("disconnected"))

    async def close(self) -> None: ...


class IsCutError(Exception):
    """A thread is changing the log."""


def batches_of(partition: Partition) -> dict[int, bytes]:
    """The batches of its log by their offsets; nothing of a log that is being cut."""
    log, found = partition.log, {}
    offset = log.first_offset
    while offset < log.log_end_offset:
        data = log.read_for_replica(offset, 2**20)
        if not data:
            raise IsCutError
        while data:
            header = read_header(data)
            found[header.base_offset] = data[: header.size]
            data = data[header.size :]
            offset = header.next_offset
    return found


def _resolve(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
        future.exception()
    else:
        future.set_result(result)
