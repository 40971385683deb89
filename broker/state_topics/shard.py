"""The state of one partition of an internal topic, while this broker leads it in one leader epoch.

Drives a coordinator (`coordinators/`), which is pure: requests, timers and the outcome of appends go in as events; answers,
timers and records come out as effects. Between an event and its effects there is no `await`.

A shard loads the partition first (`loader.py`); requests that arrive meanwhile are held for a short time, and take turns
then (`held_requests.py`); so are those that arrive while the lead is in doubt. It answers only while this broker certainly
leads (hazard H1), and keeps nothing once it does not. An exception out of the coordinator is a bug: what its step was about
may be half changed, and is dropped and loaded again, a single group for instance. Only if that is unknown is the whole
coordinator.

Each kind of state has a subclass, which knows its coordinator, what is answered without one, and the effects that only
that coordinator has: `broker/groups/shard.py`.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator
from typing import Any, ClassVar, Final, Generic, TypeVar

from echoless.broker.essential_task import reported_task
from echoless.broker.limited_log import LimitedLog
from echoless.broker.network.promise import Promise
from echoless.broker.network.turns import in_thread, work_in_turns
from echoless.broker.partitions.partition import Partition
from echoless.broker.state_topics.append_parts import AppendParts
from echoless.broker.state_topics.appends import Appends
from echoless.broker.state_topics.held_requests import Answered, HeldRequests
from echoless.broker.state_topics.leadership import Leadership
from echoless.broker.state_topics.loader import LOADED, ReplayReceiver, load
from echoless.broker.state_topics.replies import AwaitedReply, Replies
from echoless.broker.state_topics.shard_state import ShardState, Unserved
from echoless.broker.state_topics.timers import Timers
from echoless.coordinators.coordinator import CoordinatorCore
from echoless.coordinators.effects import AppendRecords, CancelTimer, LogLine, Reply, SetTimer
from echoless.coordinators.events import (
    Abandoned,
    AppendCommitted,
    AppendFailed,
    Now,
    Requested,
    TimerFired,
    TransactionEnded,
)
from echoless.protocol.errors import DecodeError, ErrorCode, KafkaError
from echoless.storage.file_system import StorageError

Core = TypeVar("Core", bound=CoordinatorCore)
Request = TypeVar("Request")
Answer = TypeVar("Answer")

logger = logging.getLogger(__name__)
limited: Final = LimitedLog(logger)

LATE_S: Final = 10.0
"""A shard that has been loading for so long is worth a warning, and another one after each further interval."""
_LOOK_S: Final = 0.02
"""Time between two looks whether a doubt about the lead has ended, while requests wait for that."""
_UNREADABLE: Final = (
    "the %s of %s cannot be served, its log cannot be read: %s; "
    "see `echoless verify`, or let another replica lead; "
    "a record of a newer version is read by the release that wrote it"
)
_NOT_LOADED: Final = (
    "the %s of %s cannot be served, loading them failed with %s; let another replica lead, "
    "and report the traceback"
)


class Shard(ABC, Generic[Core, Request, Answer]):
    """One leader epoch's state. Belongs to the event loop."""

    what: ClassVar[str]
    """The kind of state, in the plural, for the log."""

    def __init__(
        self, partition: Partition, parts: AppendParts, reload: Callable[[Any], None]
    ) -> None:
        """Begins to load. `reload` replaces a shard whose state is in doubt."""
        self.partition = partition
        self.state = ShardState.LOADING
        self.problem: str | None = None
        """Why it does not serve: it has failed, or it has been loading for long."""
        self.parts = parts
        self._reload = reload
        self._leadership = Leadership.of(partition)
        self._appends = Appends(self._leadership, self, parts)
        self._timers: Timers[Hashable] = Timers(self._fired)
        self._early: list[Any] = []
        """Events that came while the coordinator began with one item after the other."""
        self._coordinator: Core | None = None
        self._held = HeldRequests(self._process_held, self._refuse_held)
        self._replies: Replies[Request, Answer] = Replies(self._abandoned)
        self._working: set[asyncio.Task[None]] = set()
        self._began_at = asyncio.get_running_loop().time()
        self._late = asyncio.get_running_loop().call_later(LATE_S, self._note_late)
        self._loading = reported_task(self._load(), f"loading {partition.name}")

    # --- what depends on the kind of state ---

    @abstractmethod
    def new_coordinator(self) -> Core:
        """Called in a thread: it imports the coordinator when it is first needed."""

    @abstractmethod
    def refusal(self, request: Request, code: ErrorCode) -> Answer:
        """The answer that carries `code` and nothing else."""

    @abstractmethod
    def refusal_while_loading(self, request: Request) -> Answer:
        """The answer to a request that has waited too long for the end of the loading."""

    @abstractmethod
    def name_in(self, request: Request) -> str:
        """The name of what a request is about, a group's for instance."""

    @abstractmethod
    def perform_own(self, effect: Any) -> None:
        """Carries out an effect that only this kind of coordinator has."""

    def replayed(self, coordinator: Core) -> ReplayReceiver:
        """The receiver of what is replayed; state without transactions has no other."""
        return ReplayReceiver(coordinator.apply)

    def note_answer(self, answer: Answer) -> None:
        """Counts an answer of the coordinator."""

    def note_load(self, seconds: float | None) -> None:
        """Counts a load: how long it took, None if it has failed."""

    # --- the way from LOADING to SERVING, and out of it ---

    async def _load(self) -> None:
        try:
            coordinator = await in_thread(self.new_coordinator)
            count = await load(self._leadership, self.replayed(coordinator))
            await work_in_turns(map(self._perform, coordinator.start(self._now())))
            LOADED.made(count)
            self._leadership.check_held()
        except Exception as error:  # noqa: BLE001 - it would be loading for ever
            self._not_loaded(error)
            return
        self._coordinator = coordinator
        self.state = ShardState.SERVING
        self._in_time()
        load_s = asyncio.get_running_loop().time() - self._began_at
        self.note_load(load_s)
        logger.log(
            logging.INFO if count else logging.DEBUG,
            "coordinating the %s of %s in leader epoch %d: loaded %d records in %.3f s",
            self.what,
            self.partition.name,
            self._leadership.leader_epoch,
            count,
            load_s,
        )
        early, self._early = self._early, []
        for event in early:
            self.step(event)
        await work_in_turns(self._held.turns())

    def _not_loaded(self, error: Exception) -> None:
        name = self.partition.name
        match error:
            case StorageError():
                self.parts.fail_storage(error)
                self._fail(_UNREADABLE, name, error)
            case DecodeError():
                self._fail(_UNREADABLE, name, error)
            case KafkaError() if not self._leadership.is_held:
                logger.info("%s is not loaded: %s", name, error)
            case _:
                self._fail(_NOT_LOADED, name, type(error).__name__, cause=error)

    def _fail(self, message: str, *arguments: object, cause: Exception | None = None) -> None:
        self.note_load(None)
        logger.critical(message, self.what, *arguments, exc_info=cause)
        self._end(ShardState.FAILED)
        self.problem = message % (self.what, *arguments)

    def _note_late(self) -> None:
        """Says now and then that the shard is still loading: its requests wait, whatever the reason."""
        loop, log = asyncio.get_running_loop(), self.partition.log
        self._late = loop.call_later(LATE_S, self._note_late)
        self.problem = (
            f"the {self.what} of {self.partition.name} have been loading for {loop.time() - self._began_at:.0f} s; "
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
        for awaited in self._replies.take_all():
            self._answer(awaited, self.refusal(awaited.request, ErrorCode.NOT_COORDINATOR))

    # --- requests ---

    def ask(self, request: Request) -> Answered[Answer]:
        """Has the coordinator process a request, after those before it.

        While it loads, and while it is not certain that this broker leads, the request waits, unless that takes long: most
        doubts end with the same leader, and a client that is refused needlessly may not come back (librdkafka #5586).
        """
        if self.state is ShardState.LOADING:
            return self._held.hold(request)
        if self._coordinator is None:
            return self.refusal(request, self._absence())
        if not self._leadership.is_certain:
            return self._ask_in_doubt(request)
        return self._held.join(request) if self._held.waiting else self._ask_now(request)

    def _ask_in_doubt(self, request: Request) -> Answered[Answer]:
        if not self._leadership.is_held:
            return self.refusal(request, ErrorCode.NOT_COORDINATOR)
        is_first = not self._held.is_closed
        answered = self._held.hold(request)
        if is_first:
            self.begin(self._wait_through_doubt(), f"a doubt about {self.partition.name}")
        return answered

    async def _wait_through_doubt(self) -> None:
        """Gives requests their turns once there is no doubt any more, or they have not waited so long."""
        while self._held.waiting and not self._leadership.is_certain:  # noqa: ASYNC110 - for a second
            await asyncio.sleep(_LOOK_S)
        await work_in_turns(self._held.turns())

    def _refuse_held(self, request: Request) -> Answer:
        """The answer to a request that has waited for too long, or found too many waiting."""
        if self.state is ShardState.LOADING:
            return self.refusal_while_loading(request)
        return self.refusal(request, ErrorCode.NOT_COORDINATOR)

    @property
    def answers_at_once(self) -> bool:
        """Whether it serves, no request is held, and no other broker may lead."""
        return (
            self._coordinator is not None and not self._held.waiting and self._leadership.is_certain
        )

    def append_now(self) -> None:
        """Appends what requests of this turn of the loop have changed, so that the next request finds it stored."""
        self._appends.append_now()

    def _process_held(self, request: Request) -> Answer | Promise:
        if self._coordinator is None:
            return self.refusal(request, self._absence())
        if not self._leadership.is_certain:
            return self.refusal(request, ErrorCode.NOT_COORDINATOR)
        return self._ask_now(request)

    def _ask_now(self, request: Request) -> Answer | Promise:
        awaited = self._replies.expect(request)
        self.step(Requested(awaited.reply_id, request))
        if awaited.given is not None:
            return awaited.given
        return awaited.answer() if awaited.is_ready else awaited

    def _absence(self) -> ErrorCode:
        is_lost = self.state is ShardState.LOST
        return ErrorCode.NOT_COORDINATOR if is_lost else ErrorCode.COORDINATOR_NOT_AVAILABLE

    def _abandoned(self, reply_id: int) -> None:
        self.step(Abandoned(reply_id))

    def perform_in_turn(
        self, effects_of: Callable[[Core, Now], Iterator[Iterable[Any]]]
    ) -> Iterator[None]:
        """Performs long work of the coordinator item by item, while it serves.

        Does nothing as long as requests are held: they came before, and would be overtaken.
        """
        coordinator = self._coordinator
        if coordinator is None or self._held.waiting:
            return
        for effects in effects_of(coordinator, self._now()):
            self._perform(effects)
            yield
            if self._coordinator is not coordinator:
                return

    @property
    def unserved(self) -> Unserved | None:
        """Why it does not serve; None if it does, or will in a moment."""
        if self.problem is None:
            return None
        return Unserved(self.partition.index, self.state.value, self.problem)

    @property
    def coordinator(self) -> Core | None:
        """The coordinator while it serves."""
        return self._coordinator

    # --- events and effects ---

    def committed(self, token: int) -> None:
        self.step(AppendCommitted(token))

    def ended(self, producer_id: int, *, is_commit: bool) -> None:
        self.deliver(TransactionEnded(producer_id, is_commit))

    async def settled(self, next_offset: int) -> bool:
        """Returns once the state shows all that is below this offset, which is committed; False if it will not."""
        if not await self._appends.settled(next_offset):
            return False
        while self.state is ShardState.LOADING:
            await asyncio.wait([self._loading])
        return self._coordinator is not None

    def failed(self, token: int, code: ErrorCode, *, may_commit: bool) -> None:
        self.step(AppendFailed(token, code, may_commit))

    def _fired(self, key: Hashable) -> None:
        self.deliver(TimerFired(key))

    def deliver(self, event: Any) -> None:
        """Has the coordinator process an event that may follow from its beginning, once it serves."""
        if self.state is ShardState.LOADING:
            self._early.append(event)
        else:
            self.step(event)

    def step(self, event: Any) -> None:
        """Has the coordinator process an event, unless it has ended."""
        coordinator = self._coordinator
        if coordinator is None:
            return
        try:
            effects = coordinator.step(event, self._now())
        except Exception as error:  # noqa: BLE001 - whatever it is, half of the event may be done
            self.recover(event, error)
            return
        try:
            self._perform(effects)
        except Exception as error:  # noqa: BLE001 - as many effects may be carried out as not
            self._load_again(event, error)

    def recover(self, event: Any, error: Exception) -> None:
        """Lets the coordinator drop what it has half changed with `event`, when it raised `error`.

        The request that was served then fails; others about the same are refused, and their clients ask again.
        """
        coordinator = self._coordinator
        if coordinator is None:
            return
        try:
            recovery = coordinator.recover(event, self._now())
            if recovery is None:
                self._load_again(event, error)
                return
            message = "of the %s of %s, %r is loaded again: %s"
            name, step = self.partition.name, type(event).__name__
            what = (self.what, name, recovery.name, step)
            limited.log(logging.ERROR, name, message, *what, exc_info=error)
            self._refuse_all(recovery.name, event, error)
            self._perform(recovery.effects)
        except Exception as second:  # noqa: BLE001 - so it is in doubt as a whole
            self._load_again(event, second)

    def _refuse_all(self, name: str, event: Any, error: Exception) -> None:
        failed = event.reply_id if isinstance(event, Requested) else None
        for awaited in self._replies.take_those(lambda request: self.name_in(request) == name):
            if awaited.reply_id == failed:
                awaited.fail(error)
            else:
                self._answer(awaited, self.refusal_while_loading(awaited.request))

    def _load_again(self, event: Any, error: Exception) -> None:
        """Replaces the shard: its coordinator has raised `error` with this event."""
        name, step = self.partition.name, type(event).__name__
        logger.error("the %s of %s are loaded again: %s", self.what, name, step, exc_info=error)
        self._reload(self)

    def _now(self) -> Now:
        monotonic_ms = round(asyncio.get_running_loop().time() * 1000)
        return Now(monotonic_ms, self.parts.wall_ms())

    def _perform(self, effects: Iterable[Any]) -> None:
        for effect in effects:
            match effect:
                case Reply(reply_id, answer):
                    awaited = self._replies.take(reply_id)
                    if awaited is not None:
                        self._answer(awaited, answer)
                case AppendRecords(token, records, batch, transaction):
                    self._appends.append(token, records, batch, transaction)
                case SetTimer(key, at_ms):
                    self._timers.set(key, at_ms)
                case CancelTimer(key):
                    self._timers.cancel(key)
                case LogLine(message):
                    name = self.partition.name
                    limited.log(logging.INFO, name, "%s of %s: %s", self.what, name, message)
                case _:
                    self.perform_own(effect)

    def begin(self, work: Coroutine[Any, Any, None], what: str) -> None:
        """Begins work that takes longer than an event; it ends with the shard."""
        task = reported_task(work, what)
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    def _answer(self, awaited: AwaitedReply[Request, Answer], answer: Answer) -> None:
        """Gives the answer, unless another broker may lead by now."""
        if not self._leadership.is_certain:
            answer = self.refusal(awaited.request, ErrorCode.NOT_COORDINATOR)
        self.note_answer(answer)
        awaited.give(answer)
