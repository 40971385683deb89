"""The copier: reads the partitions that a group assigns to it, and stores what they become once.

    copier = Copier("127.0.0.1:9092", "127.0.0.1:9092", CopierSettings(group="g", topics=("in",)), copy)
    await copier.run()

For each input partition the position (the offset of the next record, and the state of a producer that serves this
partition alone) is one commit of the group, so both change together or not at all. In one generation:

 1. The partitions are assigned.
 2. Their positions are read. A partition without one gets a new producer id, which is committed.
 3. Producers are resumed: they ask what is stored, and skip it.
 4. Records are read from the positions on, and sent.
 5. When everything sent is acknowledged, the new positions are committed; on from 4.

A copier that is killed at any point leaves the last commit, and the next one sends the records from there on under
the same numbers. So does another member that believes to own the partition: whichever comes first, each record is
stored once, and only the current generation moves the position.

Invariant: nothing is sent under a producer id before a commit that names it was confirmed.

Invariant: nothing is sent after an orderly end (`clean`) before a commit that takes it back was confirmed.

With `transactions` the records of an input partition and its offset are one transaction (`transactional_lane.py`), and the
position needs no state.

Invariant: a position is read after the session of its partition's transactional id has begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from echoless.client.batch import now_ms
from echoless.client.cluster import Cluster, NoLeaderError, parse_addresses
from echoless.client.coordinator import Backoff, Coordinator
from echoless.client.copier.id_ages import IdAges
from echoless.client.copier.lane import Lane, unused
from echoless.client.copier.position import Position, PositionError
from echoless.client.copier.positions import CommittedPosition, Positions
from echoless.client.copier.reader import Reader
from echoless.client.copier.records import Copy
from echoless.client.copier.settings import CopierSettings
from echoless.client.copier.transactional_lane import TransactionalLane, ends_generation
from echoless.client.errors import ProducerError
from echoless.client.groups.assignment import Partition
from echoless.client.groups.errors import GenerationOverError
from echoless.client.groups.member import Generation, GroupMember
from echoless.client.lease_keeper import elapsed_s
from echoless.client.producer_ids import new_identity
from echoless.client.security import NO_SECURITY, Security
from echoless.client.settings import DEFAULT_SETTINGS, Settings
from echoless.client.transactions.errors import TransactionError
from echoless.client.transactions.group_metadata import GroupMetadata
from echoless.protocol.errors import ErrorCode

_LOG: Final = logging.getLogger(__name__)
_T = TypeVar("_T")


class _StoppedError(Exception):
    """The copier was stopped while it waited for something that it can do without."""


@dataclasses.dataclass(slots=True)
class CopierFigures:
    """The work of a copier since its start."""

    records: int = 0
    """Output records that are acknowledged, and committed as such."""
    bytes: int = 0
    """Size of their keys and values."""
    commits: int = 0
    generations: int = 0
    """Number of times it has joined the group."""
    generation: int = -1
    """The number of the last one."""
    partitions: int = 0
    """Assigned now."""
    confirmed_at_s: float = 0.0
    """When the group last confirmed this member, by the copier's clock."""


class Copier:
    """One member of a group of copiers (`docs/copier.md`). Used once, from one task."""

    def __init__(
        self,
        source: str,
        target: str,
        settings: CopierSettings,
        copy: Copy,
        *,
        source_security: Security = NO_SECURITY,
        producer_settings: Settings = DEFAULT_SETTINGS,
        on_commit: Callable[[CopierFigures], None] = lambda _: None,
        on_topics: Callable[[Mapping[str, int]], Awaitable[None]] | None = None,
        clock_ms: Callable[[], int] = now_ms,
        clock_s: Callable[[], float] = elapsed_s,
    ) -> None:
        """`source` and `target` are bootstrap servers; the group is kept in the source's cluster.

        `copy` makes the output records of an input record, and runs on the event loop. `on_commit` is called after
        each commit. `on_topics` is awaited with the partition counts of the input's topics before they are read.
        `clock_s` keeps running while the machine sleeps; `clock_ms` is the time of day.
        """
        self.figures = CopierFigures()
        """Its work so far."""
        self._settings = settings
        self._copy = copy
        self._target = target
        # Position and state are one, so a topic that the state does not name is new.
        self._producer_settings = dataclasses.replace(
            producer_settings, resumes_unnamed_topics=True
        )
        self._on_commit = on_commit
        self._on_topics = on_topics
        self._clock_ms = clock_ms
        self._clock_s = clock_s
        self._stopping = asyncio.Event()
        self._ages = IdAges(settings.id_expiration_s)
        self._cluster = Cluster(
            parse_addresses(source),
            timeout_s=settings.rebalance_timeout_s + 2 * settings.request_timeout_s,
            auto_create_topics=False,
            security=source_security,
        )
        self._ids = Cluster(
            parse_addresses(target),
            timeout_s=producer_settings.request_timeout_s,
            security=producer_settings.security,
        )
        coordinator = Coordinator(
            self._cluster, settings.group, timeout_s=settings.request_timeout_s
        )
        self._member = GroupMember(
            coordinator, settings.member, self._count_partitions, clock_s=clock_s
        )
        self._positions = Positions(coordinator, settings.instance_id)
        self._reader = Reader(source, source_security, records_max=settings.commit_records_max)
        self._lanes: dict[Partition, Lane] = {}
        self._owned_since_s: dict[Partition, float] = {}
        self._last_generation = -1
        self._ends: dict[Partition, int] = {}

    def stop(self) -> None:
        """Has `run` finish: it commits what is acknowledged, and leaves the group; also if that no longer answers."""
        self._stopping.set()

    def lag(self) -> dict[Partition, int]:
        """Input records after the last ones that were sent, as far as known, in the assigned partitions."""
        ends = {one: self._reader.known_end(one) for one in self._lanes}
        return {
            one: max(end - self._lanes[one].offset, 0)
            for one, end in ends.items()
            if end is not None
        }

    async def run(self) -> None:
        """Copies until `stop`, or to the end. Raises `ProducerError`, `PositionError`."""
        try:
            await self._unless_stopped(self._start())
            while not self._stopping.is_set():
                generation, topics = await self._unless_stopped(self._join())
                self.figures.generations += 1
                self.figures.generation = generation.number
                try:
                    await self._copy_generation(generation, topics)
                except GenerationOverError:
                    _LOG.info(
                        "group %s: generation %d is over, what was read since its last commit is read again",
                        *(self._settings.group, generation.number),
                    )
                    await self._member.leave()
        except _StoppedError:
            _LOG.info("group %s: stopped before it had read anything", self._settings.group)
        finally:
            await self._close()

    async def _start(self) -> None:
        if self._settings.transactions:
            await self._check_one_cluster()
        await self._reader.start()

    async def _join(self) -> tuple[Generation, Mapping[str, int]]:
        topics = await self._topics()
        if self._on_topics is not None:
            await self._on_topics(topics)
        return await self._member.join(sorted(topics)), topics

    async def _unless_stopped(self, work: Coroutine[Any, Any, _T], patience_s: float = 0.0) -> _T:
        """Does the work. Raises `_StoppedError` if it is not done `patience_s` after `stop`: a broker may be gone for good."""
        working = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                await asyncio.wait((working,), timeout=patience_s)
            if working.done():
                return working.result()
        finally:
            working.cancel()
            stopping.cancel()
            await asyncio.gather(working, stopping, return_exceptions=True)
        raise _StoppedError

    async def _close(self) -> None:
        """Closes everything, also if a part of it fails."""
        async with contextlib.AsyncExitStack() as stack:  # the last goes first
            stack.push_async_callback(self._ids.close)
            stack.push_async_callback(self._cluster.close)
            stack.push_async_callback(self._reader.close)
            stack.push_async_callback(self._member.leave)
            stack.push_async_callback(self._close_lanes)

    # One generation

    async def _copy_generation(self, generation: Generation, topics: Mapping[str, int]) -> None:
        """Raises `GenerationOverError` if the group has refused this member."""
        try:
            await self._open(generation)
            loop = asyncio.get_running_loop()
            commit_at = loop.time() + self._settings.commit_interval_s
            look_at = loop.time() + self._settings.topics_interval_s
            read = 0
            while not (generation.must_rejoin.is_set() or self._stopping.is_set()):
                read += await self._copy_some(generation)
                if read >= self._settings.commit_records_max or loop.time() >= commit_at:
                    await self._commit(generation)
                    read, commit_at = 0, loop.time() + self._settings.commit_interval_s
                    if self._is_at_end():
                        self.stop()
                if loop.time() >= look_at:
                    look_at = loop.time() + self._settings.topics_interval_s
                    with contextlib.suppress(_StoppedError):
                        if await self._unless_stopped(self._topics()) != topics:
                            break
            await self._member.check()
            await self._commit(generation, is_clean=True)
        except TransactionError as error:
            if not ends_generation(error):
                raise
            _LOG.info("group %s: %s", self._settings.group, error)
            generation.end()
            raise GenerationOverError from error
        finally:
            await self._close_lanes()

    async def _copy_some(self, generation: Generation) -> int:
        """Sends what the next records become, and returns how many were read."""
        found = await self._reader.read()
        self.figures.confirmed_at_s = generation.confirmed_at_s
        if self._clock_s() - generation.confirmed_at_s > self._ages.silence_s:
            generation.end()
            raise GenerationOverError
        await self._take_back_ends(generation, found)
        for partition, records in found.items():
            await self._lanes[partition].send(records, self._copy)
        return sum(map(len, found.values()))

    async def _take_back_ends(
        self, generation: Generation, partitions: Iterable[Partition]
    ) -> None:
        """Commits, before the first record is sent in them, that these partitions are not at an orderly end."""
        begun = {
            one: dataclasses.replace(self._lanes[one].committed, is_clean=False)
            for one in partitions
            if self._lanes[one].committed.is_clean
        }
        if begun:
            await self._commit_positions(generation, begun)
            for partition, position in begun.items():
                self._lanes[partition].commit(position)

    async def _open(self, generation: Generation) -> None:
        """Opens a lane for each assigned partition, from a position that is committed."""
        partitions = generation.partitions
        self._note_owned(generation)
        if self._settings.transactions:
            await self._open_transactional(generation)
        else:
            await self._open_stateful(generation)
        self.figures.partitions = len(partitions)
        self._reader.assign({one: lane.offset for one, lane in self._lanes.items()})
        if self._settings.ends:
            new = [one for one in partitions if one not in self._ends]
            self._ends |= await self._reader.ends(new)

    async def _open_transactional(self, generation: Generation) -> None:
        """Fences former owners first, so that the positions that are read then are final."""
        group, settings = self._settings.group, self._producer_settings
        for partition in generation.partitions:
            self._lanes[partition] = await TransactionalLane.begin(
                partition, group, self._target, settings
            )
        committed = await self._committed(generation)
        offsets = {partition: self._exact(partition, one) for partition, one in committed.items()}
        starts = await self._starts([p for p in generation.partitions if p not in committed])
        await self._commit_transactions(generation, starts)
        for partition, offset in {**offsets, **starts}.items():
            self._transactional(partition).start_at(offset)

    async def _committed(self, generation: Generation) -> dict[Partition, CommittedPosition]:
        """The positions of the generation's partitions."""
        return await self._unless_stopped(self._positions.fetch(generation, generation.partitions))

    def _exact(self, partition: Partition, committed: CommittedPosition) -> int:
        """The offset from which on nothing is copied. Raises `PositionError`."""
        if committed.is_exact or (not committed.metadata and self._settings.bare_offsets):
            return committed.offset
        position = committed.position(self._settings.group, partition)
        if not position.is_clean:
            raise PositionError(
                f"group {self._settings.group}, {partition[0]}-{partition[1]}: the last copier wrote without transactions, "
                "and was not stopped in order: start it once as it was, stop it (SIGTERM), and start this one then"
            )
        return position.offset

    def _transactional(self, partition: Partition) -> TransactionalLane:
        lane = self._lanes[partition]
        assert isinstance(lane, TransactionalLane)
        return lane

    async def _open_stateful(self, generation: Generation) -> None:
        positions, fresh = await self._found(generation)
        if fresh:
            await self._commit_positions(generation, fresh)
        now = self._clock_ms()
        for partition, position in {**positions, **fresh}.items():
            self._lanes[partition] = await Lane.open(
                partition,
                position,
                self._target,
                self._producer_settings,
                is_doubtful=self._ages.is_doubtful(position, now),
            )

    def _note_owned(self, generation: Generation) -> None:
        """Remembers since when each partition is this member's without a break."""
        is_next = generation.number == self._last_generation + 1
        before = self._owned_since_s if is_next else {}
        now_s = self._clock_s()
        self._owned_since_s = {one: before.get(one, now_s) for one in generation.partitions}
        self._last_generation = generation.number

    async def _found(
        self, generation: Generation
    ) -> tuple[dict[Partition, Position], dict[Partition, Position]]:
        """The positions to resume from, and those that have to be committed first.

        Raises `PositionError`.
        """
        committed = await self._committed(generation)
        positions: dict[Partition, Position] = {}
        offsets = await self._starts([p for p in generation.partitions if p not in committed])
        now = self._clock_ms()
        for partition, one in committed.items():
            if one.is_exact or (not one.metadata and self._settings.bare_offsets):
                offsets[partition] = one.offset
                continue
            position = one.position(self._settings.group, partition)
            if self._ages.may_replace_at_start(position, now):
                offsets[partition] = position.offset
            else:
                positions[partition] = position
        fresh = {partition: await self._unused(offset) for partition, offset in offsets.items()}
        return positions, fresh

    async def _starts(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """The offsets at which partitions without a position begin. Raises `PositionError`."""
        where = self._settings.starting_offsets
        if partitions and where == "none":
            names = ", ".join(f"{topic}-{index}" for topic, index in sorted(partitions))
            raise PositionError(
                f"group {self._settings.group} has no position for {names}, and starting_offsets is none: "
                "it was never committed, or has expired"
            )
        if where == "latest":
            return await self._reader.ends(partitions)
        return await self._reader.starts(partitions)

    async def _unused(self, offset: int) -> Position:
        """A position with a new producer id. Raises `ProducerError`."""
        identity = await self._patiently(lambda: new_identity(self._ids), "no producer id")
        return unused(identity.producer_id, identity.producer_epoch, offset, self._clock_ms())

    async def _close_lanes(self) -> None:
        self._reader.assign({})
        lanes, self._lanes = self._lanes, {}
        async with contextlib.AsyncExitStack() as stack:
            for lane in lanes.values():
                stack.push_async_callback(lane.close)

    # Committing

    async def _commit(self, generation: Generation, *, is_clean: bool = False) -> None:
        """Commits how far each lane has come, when everything sent is acknowledged.

        Raises `ProducerError`, `PositionError`, `GenerationOverError`.
        """
        moved: dict[Partition, int] = {}
        for partition, lane in self._lanes.items():
            offset = max(lane.offset, await self._reader.next_offset(partition))
            if offset != lane.committed.offset or (is_clean and not self._settings.transactions):
                moved[partition] = offset
        if self._settings.transactions:
            await self._commit_transactions(generation, moved)
            self._on_commit(self.figures)
            return
        now = self._clock_ms()
        found = await asyncio.gather(
            *(
                self._lanes[partition].reached(offset, now, is_clean=is_clean)
                for partition, offset in moved.items()
            )
        )
        reached = dict(zip(moved, found, strict=True))
        if reached:
            await self._commit_positions(generation, reached)
            for partition, position in reached.items():
                lane = self._lanes[partition]
                self.figures.records += lane.sent
                self.figures.bytes += lane.sent_bytes
                lane.commit(position)
        if not is_clean:
            await self._replace_old_ids(generation)
        self._on_commit(self.figures)

    async def _commit_transactions(
        self, generation: Generation, offsets: Mapping[Partition, int]
    ) -> None:
        """Commits each partition's transaction, with its offset. Raises `TransactionError`."""
        settings = self._settings
        group = GroupMetadata(
            settings.group, generation.number, generation.member_id, settings.instance_id
        )
        lanes = {one: self._transactional(one) for one in offsets}
        outcomes = await asyncio.gather(
            *(lane.commit_at(offsets[one], group) for one, lane in lanes.items()),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if outcome is not None:
                raise outcome
        for partition, lane in lanes.items():
            self.figures.records += lane.sent
            self.figures.bytes += lane.sent_bytes
            self.figures.commits += 1
            lane.start_at(offsets[partition])

    async def _commit_positions(
        self, generation: Generation, positions: Mapping[Partition, Position]
    ) -> None:
        most = self._settings.metadata_characters_max
        rows = {
            partition: CommittedPosition(position.offset, position.metadata(most))
            for partition, position in positions.items()
        }
        session_s = self._settings.session_timeout_s
        try:
            await self._unless_stopped(self._positions.commit(generation, rows), session_s)
        except _StoppedError as error:
            raise ProducerError(
                f"group {self._settings.group}: stopped, and no coordinator answers its last commit for {session_s:g} s; "
                "the next copier begins at the one before, and stores nothing twice"
            ) from error
        self.figures.commits += 1

    async def _replace_old_ids(self, generation: Generation) -> None:
        """Gives lanes with an old producer id, all of whose records are acknowledged and committed, a new one."""
        now_s, now = self._clock_s(), self._clock_ms()
        old = [
            partition
            for partition, lane in self._lanes.items()
            if lane.offset == lane.committed.offset
            and self._ages.may_replace(
                (now - lane.committed.born_ms) / 1000, now_s - self._owned_since_s[partition]
            )
        ]
        if not old:
            return
        if generation.unanswered_commits:
            # A late copy of one would bring the old id back: let the group refuse it, as a former member's.
            generation.end()
            raise GenerationOverError
        fresh = {one: await self._unused(self._lanes[one].offset) for one in old}
        await self._commit_positions(generation, fresh)
        for partition, position in fresh.items():
            await self._lanes[partition].close()
            self._lanes[partition] = await Lane.open(
                partition, position, self._target, self._producer_settings
            )

    def _is_at_end(self) -> bool:
        return self._settings.ends and all(
            lane.offset >= self._ends[partition] for partition, lane in self._lanes.items()
        )

    async def _check_one_cluster(self) -> None:
        """Raises `ProducerError` if input and output are not in one cluster, or that is not known."""
        fields = {
            "topics": [],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        answers = [
            await self._patiently(
                lambda one=one: one.ask_any("metadata", fields),  # type: ignore[misc]
                "the cluster is not known",
            )
            for one in (self._cluster, self._ids)
        ]
        source, target = (getattr(answer, "cluster_id", None) for answer in answers)
        if source is None or source != target:
            raise ProducerError(
                f"the input is in cluster {source}, the output in {target}: a transaction has records and offsets of one "
                "cluster. Leave out transactions: each record is stored once without them, too"
            )

    # The input's topics

    async def _topics(self) -> dict[str, int]:
        """The partition counts of the topics to read. Raises `ProducerError`."""
        names, pattern = list(self._settings.topics), self._settings.pattern
        counts = await self._count_partitions(None if pattern is not None else names)
        if pattern is not None:
            return {name: n for name, n in counts.items() if re.fullmatch(pattern, name)}
        return counts

    async def _count_partitions(self, names: Sequence[str] | None) -> dict[str, int]:
        """The partition counts of topics that exist; None: of all that are not internal."""
        fields = {
            "topics": None if names is None else [{"name": one, "topic_id": None} for one in names],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        answer: Any = await self._patiently(
            lambda: self._cluster.ask_any("metadata", fields), "the input's topics are not known"
        )
        return {
            one.name: len(one.partitions)
            for one in answer.topics
            if one.error_code.value == ErrorCode.NONE and not (names is None and one.is_internal)
        }

    async def _patiently(self, ask: Callable[[], Awaitable[_T]], what: str) -> _T:
        """Asks until there is an answer, or no use in asking. Raises `ProducerError`."""
        backoff = Backoff()
        deadline_s = self._clock_s() + self._producer_settings.delivery_timeout_s
        while True:
            try:
                return await ask()
            except NoLeaderError as error:
                if error.final_code or self._clock_s() > deadline_s:
                    raise ProducerError(f"{what}: {error}") from error
            await backoff.pause()
