"""The groups of one partition of `__consumer_offsets`, while this broker leads it in one leader epoch.

Drives a `GroupCoordinator` (`coordinators/groups/`), which is pure: requests, timers and the fate of appends go
in as events; answers, timers and records come out as effects. Between an event and its effects there is
no `await`.

A shard loads the partition first (`state_topics/loader.py`); requests that arrive meanwhile are held for a short
time, and take turns then (`held_requests.py`). It answers only while this broker certainly leads (hazard H1), and keeps
nothing once it does not. An exception out of the coordinator is a bug: its state may be half changed, so it is dropped
and loaded again.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from echoless.broker.essential_task import reported_task
from echoless.broker.groups.held_requests import Answered, HeldRequests
from echoless.broker.groups.timers import Timers
from echoless.broker.limited_log import LimitedLog
from echoless.broker.network.promise import Promise
from echoless.broker.network.turns import in_thread, work_in_turns
from echoless.broker.partitions.partition import Partition
from echoless.broker.state_topics.append_parts import AppendParts
from echoless.broker.state_topics.appends import Appends
from echoless.broker.state_topics.loader import check_still_led, is_still_led, load
from echoless.coordinators.effects import AppendRecords, CancelTimer, LogLine, Reply, SetTimer
from echoless.coordinators.events import (
    Abandoned,
    AppendCommitted,
    AppendFailed,
    Now,
    Requested,
    TimerFired,
)
from echoless.coordinators.groups.answers import GroupAnswer, OffsetCommitAnswer, refusal
from echoless.coordinators.groups.effects import GroupEffect, MakeTarget, ResolveRegex, TimerKey
from echoless.coordinators.groups.events import GroupEvent, RegexResolved, TargetMade
from echoless.coordinators.groups.requests import GroupRequest
from echoless.protocol.errors import DecodeError, ErrorCode, KafkaError
from echoless.storage.file_system import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from echoless.broker.groups.cluster_topics import ClusterTopics
    from echoless.coordinators.groups.coordinator import GroupCoordinator

logger = logging.getLogger(__name__)
limited: Final = LimitedLog(logger)

LATE_S: Final = 10.0
"""A shard that has been loading for so long is worth a warning, and another one after each further interval."""
_UNREADABLE: Final = (
    "the groups of %s cannot be served, its log cannot be read: %s; "
    "see `echoless verify`, or let another replica lead; "
    "a record of a newer version is read by the release that wrote it"
)
_NOT_LOADED: Final = (
    "the groups of %s cannot be served, loading them failed with %s; let another replica lead, "
    "and report the traceback"
)


class ShardState(enum.Enum):
    """How far a shard is."""

    LOADING = "loading"
    SERVING = "serving"
    FAILED = "failed"
    """Its partition cannot be read."""
    LOST = "lost"


class Unserved(NamedTuple):
    """Groups that no one serves, though this broker should."""

    partition: int
    state: str
    reason: str


class ShardParts(NamedTuple):
    """The parts of the broker that all shards share."""

    new_coordinator: Callable[[], GroupCoordinator]
    """Called in a thread: it imports the coordinator when it is first needed."""
    appends: AppendParts
    reload: Callable[[Shard], None]
    """Replaces a shard whose state is in doubt."""
    topics: ClusterTopics


class _Waiting(Promise):
    """The answer to a request, once the coordinator has given it."""

    __slots__ = ("_abandoned", "_reply_id", "given", "request")

    def __init__(
        self, reply_id: int, request: GroupRequest, abandoned: Callable[[int], None]
    ) -> None:
        super().__init__()
        self.request = request
        self.given: GroupAnswer | None = None
        self._reply_id = reply_id
        self._abandoned = abandoned

    def give(self, answer: GroupAnswer) -> None:
        self.given = answer
        self._become_ready()

    def abandon(self) -> None:
        """Ends the wait: the client is gone. Does nothing once the answer is given."""
        if not self.is_ready:
            self._abandoned(self._reply_id)

    def _result(self) -> GroupAnswer | None:
        return self.given


class Shard:
    """One leader epoch's groups. Belongs to the event loop."""

    def __init__(self, partition: Partition, parts: ShardParts) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.state = ShardState.LOADING
        self.load_s = 0.0
        """How long it took to load."""
        self.problem: str | None = None
        """Why it does not serve: it has failed, or it has been loading for long."""
        self._parts = parts
        self._appends = Appends(partition, self, parts.appends)
        self._timers = Timers(self._fired)
        self._fired_early: list[TimerKey] = []
        """Timers that fired while the coordinator began with one group after the other."""
        self._coordinator: GroupCoordinator | None = None
        self._held = HeldRequests(self._ask_now)
        self._waiting: dict[int, _Waiting] = {}
        self._last_reply_id = 0
        self._working: set[asyncio.Task[None]] = set()
        self._began_at = asyncio.get_running_loop().time()
        self._late = asyncio.get_running_loop().call_later(LATE_S, self._note_late)
        self._loading = reported_task(self._load(), f"loading {partition.name}")

    # --- the way from LOADING to SERVING, and out of it ---

    async def _load(self) -> None:
        try:
            coordinator = await in_thread(self._parts.new_coordinator)
            count = await load(self.partition, self.leader_epoch, coordinator.apply)
            await work_in_turns(map(self._perform, coordinator.start(self._now())))
            check_still_led(self.partition, self.leader_epoch)
        except Exception as error:  # noqa: BLE001 - it would be loading for ever
            self._not_loaded(error)
            return
        self._coordinator = coordinator
        self.state = ShardState.SERVING
        self._in_time()
        self.load_s = asyncio.get_running_loop().time() - self._began_at
        metrics = self._parts.appends.metrics
        metrics.group_loads_total += 1
        metrics.group_load_ms_total += round(self.load_s * 1000)
        logger.log(
            logging.INFO if count else logging.DEBUG,
            "coordinating the groups of %s in leader epoch %d: loaded %d records in %.3f s",
            self.partition.name,
            self.leader_epoch,
            count,
            self.load_s,
        )
        early, self._fired_early = self._fired_early, []
        for key in early:
            self._step(TimerFired(key))
        await work_in_turns(self._held.turns())

    def _not_loaded(self, error: Exception) -> None:
        name = self.partition.name
        match error:
            case StorageError():
                self._parts.appends.fail_storage(error)
                self._fail(_UNREADABLE, name, error)
            case DecodeError():
                self._fail(_UNREADABLE, name, error)
            case KafkaError() if not is_still_led(self.partition, self.leader_epoch):
                logger.info("%s is not loaded: %s", name, error)
            case _:
                self._fail(_NOT_LOADED, name, type(error).__name__, cause=error)

    def _fail(self, message: str, *arguments: object, cause: Exception | None = None) -> None:
        self._parts.appends.metrics.group_load_failures_total += 1
        logger.critical(message, *arguments, exc_info=cause)
        self._end(ShardState.FAILED)
        self.problem = message % arguments

    def _note_late(self) -> None:
        """Says now and then that the shard is still loading: its groups wait, whatever the reason."""
        loop, log = asyncio.get_running_loop(), self.partition.log
        self._late = loop.call_later(LATE_S, self._note_late)
        self.problem = (
            f"the groups of {self.partition.name} have been loading for {loop.time() - self._began_at:.0f} s; "
            f"the log ends at {log.log_end_offset}, its high watermark is {self.partition.high_watermark}, "
            f"in-sync replicas are {list(self.partition.isr)}"
        )
        logger.warning("%s", self.problem)

    def _in_time(self) -> None:
        self._late.cancel()
        self.problem = None

    def lose(self) -> None:
        """Forgets everything: this broker does not lead the partition in this epoch any more."""
        self._end(ShardState.LOST)

    def _end(self, state: ShardState) -> None:
        if self.state is ShardState.LOST:
            return
        self.state = state
        self._in_time()
        self._coordinator = None
        self._timers.cancel_all()
        self._appends.close()
        if self._loading is not asyncio.current_task():
            self._loading.cancel()
        self._held.process_all()
        for task in self._working:
            task.cancel()
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            self._answer(one, refusal(one.request, ErrorCode.NOT_COORDINATOR))

    # --- requests ---

    def ask(self, request: GroupRequest) -> Answered:
        """Has the coordinator process a request: once it is loaded, unless that takes long, and after those before it."""
        if self.state is ShardState.LOADING:
            return self._held.hold(request)
        return self._held.join(request) if self._held else self._ask_now(request)

    def _ask_now(self, request: GroupRequest) -> GroupAnswer | Promise:
        coordinator = self._coordinator
        if coordinator is None:
            return refusal(request, self._absence())
        if not self._certainly_leads():
            return refusal(request, ErrorCode.NOT_COORDINATOR)
        self._last_reply_id = reply_id = self._last_reply_id + 1
        waiting = self._waiting[reply_id] = _Waiting(reply_id, request, self._abandon)
        self._step(Requested(reply_id, request))
        return waiting if waiting.given is None else waiting.given

    def _absence(self) -> ErrorCode:
        is_lost = self.state is ShardState.LOST
        return ErrorCode.NOT_COORDINATOR if is_lost else ErrorCode.COORDINATOR_NOT_AVAILABLE

    def _abandon(self, reply_id: int) -> None:
        if self._waiting.pop(reply_id, None) is not None:
            self._step(Abandoned(reply_id))

    def _certainly_leads(self) -> bool:
        try:
            self.partition.check_leader(self.leader_epoch)
        except KafkaError:
            return False
        return True

    def perform_in_turn(
        self, effects_of: Callable[[GroupCoordinator, Now], Iterator[list[GroupEffect]]]
    ) -> Iterator[None]:
        """Performs long work of the coordinator item by item, while it serves.

        Does nothing as long as requests are held, for a commit of a deleted topic's offsets may be one of them.
        """
        coordinator = self._coordinator
        if coordinator is None or self._held:
            return
        for effects in effects_of(coordinator, self._now()):
            self._perform(effects)
            yield
            if self._coordinator is not coordinator:
                return

    def expire_sessions(self, group_id: str, member: str | None) -> None:
        """Ends the sessions of a member (its member, instance or client id; None: of all), for a fault rule."""
        coordinator = self._coordinator
        if coordinator is not None:
            keys = coordinator.sessions_of(group_id, member)
            coordinator.end_sessions(keys, self._now())
            for key in keys:
                self._step(TimerFired(key))

    @property
    def unserved(self) -> Unserved | None:
        """Why it does not serve its groups; None if it does, or will in a moment."""
        if self.problem is None:
            return None
        return Unserved(self.partition.index, self.state.value, self.problem)

    @property
    def coordinator(self) -> GroupCoordinator | None:
        """The coordinator while it serves."""
        return self._coordinator

    # --- events and effects ---

    def committed(self, token: int) -> None:
        self._step(AppendCommitted(token))

    def failed(self, token: int, code: ErrorCode, *, may_commit: bool) -> None:
        self._step(AppendFailed(token, code, may_commit))

    def _fired(self, key: TimerKey) -> None:
        if self.state is ShardState.LOADING:
            self._fired_early.append(key)
        else:
            self._step(TimerFired(key))

    def _step(self, event: GroupEvent) -> None:
        coordinator = self._coordinator
        if coordinator is None:
            return
        try:
            self._perform(coordinator.step(event, self._now()))
        except Exception:
            logger.exception(
                "the groups of %s are loaded again: %s", self.partition.name, type(event).__name__
            )
            self._parts.reload(self)

    def _now(self) -> Now:
        monotonic_ms = round(asyncio.get_running_loop().time() * 1000)
        return Now(monotonic_ms, self._parts.appends.wall_ms())

    def _perform(self, effects: list[GroupEffect]) -> None:
        for effect in effects:
            match effect:
                case Reply(reply_id, answer):
                    waiting = self._waiting.pop(reply_id, None)
                    if waiting is not None:
                        self._answer(waiting, answer)
                case AppendRecords(token, records):
                    self._appends.append(token, records)
                case SetTimer(key, at_ms):
                    self._timers.set(key, at_ms)
                case CancelTimer(key):
                    self._timers.cancel(key)
                case ResolveRegex():
                    self._begin(self._resolve(effect), "matching topics")
                case MakeTarget():
                    self._begin(self._assign(effect), "assigning partitions")
                case LogLine(message):
                    name = self.partition.name
                    limited.log(logging.INFO, name, "groups of %s: %s", name, message)

    def _begin(self, work: Coroutine[Any, Any, None], what: str) -> None:
        task = reported_task(work, what)
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _assign(self, wanted: MakeTarget) -> None:
        try:
            await work_in_turns(wanted.steps)
        except Exception:
            logger.exception("the groups of %s are loaded again: MakeTarget", self.partition.name)
            self._parts.reload(self)
            return
        self._step(TargetMade(wanted.group_id, wanted.steps))

    async def _resolve(self, wanted: ResolveRegex) -> None:
        topics, version = await self._parts.topics.matching(wanted.pattern, wanted.may_describe)
        self._step(RegexResolved(wanted.group_id, wanted.pattern, topics, version))

    def _answer(self, waiting: _Waiting, answer: GroupAnswer) -> None:
        """Gives the answer, unless another broker may lead by now."""
        if not self._certainly_leads():
            answer = refusal(waiting.request, ErrorCode.NOT_COORDINATOR)
        if isinstance(answer, OffsetCommitAnswer):
            self._parts.appends.metrics.note_commit(answer.error_codes)
        waiting.give(answer)
