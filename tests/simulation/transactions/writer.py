"""A transactional producer in both generations of the protocol: one instance after the other of one program.

It behaves as clients do: retriable errors are repeated, at the coordinator or leader of then; 120, 49 and errors of batches
abort, and go on with the next epoch; 90 ends the instance. Now and then it does what clients do when they are in trouble.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tests.simulation.clients import NONE, RETRIABLE, NoAnswerError
from tests.simulation.observations import Spot
from tests.simulation.transactions.port import CODES, KafkaPort
from tests.simulation.transactions.seen import Given, Identity
from tests.support.raw_batches import TRANSACTIONAL, plain_batch
from tests.support.raw_client import nested
from tests.transactions.history.events import Outcome, Sent, Transaction

REPEAT: Final = 46
INVALID_EPOCH: Final = 47
INVALID_STATE: Final = 48
INVALID_MAPPING: Final = 49
CONCURRENT: Final = 51
FENCED: Final = 90
ABORTABLE: Final = 120
_ELSEWHERE: Final = frozenset({15, 16})
AGAIN: Final = frozenset({14, 15, 16, CONCURRENT})
"""Codes of a coordinator after which a client asks again."""
_TRANSACTIONS_KEY: Final = 1


class FencedError(Exception):
    """A coordinator has said that another instance has taken over."""


class AbortableError(Exception):
    """The transaction cannot be committed; the session goes on."""


class BumpError(Exception):
    """The session has to go on with the next epoch: there is nothing to abort."""


class UnansweredError(Exception):
    """The client has run out of patience: this instance ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How a producer behaves; probabilities, of a transaction where nothing else is said."""

    generation: int
    """1 or 2, of the protocol."""
    timeout_ms: int
    """The timeout of its transactions."""
    patience_s: float
    """How long it repeats a request."""
    pause_s: float
    """The longest pause between two transactions."""
    aborts: float = 0.0
    abandons: float = 0.0
    """Ends as a process in the middle."""
    oversleeps: float = 0.0
    """Sleeps for longer than its timeout before it calls for the commit."""
    forgets: float = 0.0
    """Sends to a partition that it has not added, nor written to in this epoch."""
    mixes: float = 0.0
    """Ends a transaction of the second generation as the first one does."""
    empties: float = 0.0
    """Aborts a transaction in which there is nothing."""
    hastes: float = 0.0
    """Aborts without waiting for the answer to its last batch, which may then arrive in the next transaction."""
    insists: float = 0.0
    """Tries to come back with the old identity, once it is fenced."""


class Writer:
    """The instances of one program that has a transactional id; another program may have the same."""

    def __init__(
        self, port: KafkaPort, transactional_id: str, habits: Habits, spots: Sequence[Spot]
    ) -> None:
        self.transactional_id = transactional_id
        self.is_wanted = True
        self.is_done = False
        self.port = port
        self.client = port.client
        self.seen = port.seen
        self.habits = habits
        self.process = ""
        """The present instance."""
        self._spots = spots
        self.unwatched: frozenset[str] = frozenset()
        """Topics that are deleted now and then: of their records nothing is promised."""
        self._identity: Identity | None = None
        self._sequences: dict[Spot, int] = {}
        self._joined: set[Spot | str] = set()
        """Partitions and groups that may be in the transaction."""
        self._may_be_open = False
        self._coordinator: str | None = None
        self._instances = 0
        self._values = 0

    def __repr__(self) -> str:
        return f"{self.client.name} as {self.transactional_id}"

    def happens(self, probability: float) -> bool:
        """One throw of the dice."""
        return probability > 0 and self.client.rng.random() < probability

    async def run(self) -> None:
        """Runs until it is not wanted."""
        while self.is_wanted:
            await asyncio.sleep(self.client.rng.uniform(0, self.habits.pause_s))
            try:
                if self._identity is None:
                    await self.begin(is_new=True)
                else:
                    await self._transact()
            except FencedError:
                await self._be_fenced()
            except (AbortableError, BumpError, UnansweredError):
                self._identity = None
        self.is_done = True

    # --- sessions ---

    async def begin(self, *, is_new: bool) -> None:
        """InitProducerId, for a new instance or for a session that goes on."""
        asked_at, version = self.seen.now(), self._version(5, 4)
        identity = Identity(-1, -1) if is_new or self._identity is None else self._identity
        answer = await self._ask(
            "init_producer_id",
            version,
            transactional_id=self.transactional_id,
            transaction_timeout=datetime.timedelta(milliseconds=self.habits.timeout_ms),
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
        )
        code = int(answer.error_code)
        if code == FENCED:
            raise FencedError
        if code != NONE:
            self._surprised("init_producer_id", code)
            raise UnansweredError
        if is_new:
            self._instances += 1
            self.process = f"{self.client.name}/{self._instances}"
        self._take(Identity(answer.producer_id, answer.producer_epoch), asked_at, is_new=is_new)
        if is_new:
            await self.started()

    def _take(self, identity: Identity, asked_at: float, *, is_new: bool = False) -> None:
        if identity != self._identity:
            self._sequences.clear()
        self._identity = identity
        now = self.seen.now()
        self.seen.given.append(
            Given(self.transactional_id, self.process, identity, asked_at, now, is_new)
        )

    async def started(self) -> None:
        """Is called when a new instance has fenced the one before."""

    async def aborted(self) -> None:
        """Is called when a transaction did not commit, and the session goes on."""

    async def _be_fenced(self) -> None:
        if self.happens(self.habits.insists) and self._identity is not None:
            await self._insist(self._identity)
        self._identity = None
        await asyncio.sleep(self.client.rng.uniform(0.3, 3.0))

    async def _insist(self, identity: Identity) -> None:
        """Tries to come back: a fenced instance must not."""
        self.seen.count("a fenced instance insists")
        is_end, version = self.client.rng.random() < 1 / 2, self._version(5, 4)
        try:
            if is_end:
                code = await self._try_end(is_commit=False, version=version)
            else:
                await self.begin(is_new=False)
                code = NONE
        except (FencedError, UnansweredError):
            return
        if code == NONE and not (
            is_end and version < 5
        ):  # which may be told the truth, and gets nothing
            self.client.observations.find(f"{self} was fenced, and is let in again as {identity}")

    # --- one transaction ---

    async def _transact(self) -> None:
        one = self.new_transaction()
        try:
            await self._live(one)
        except BumpError:
            await self.begin(is_new=False)
        except AbortableError:
            await self._abort_and_go_on()
        if one.outcome is not Outcome.OK:
            await self.aborted()

    def new_transaction(self) -> Transaction:
        """A transaction that has nothing yet; it has failed, until a commit is called for."""
        one = Transaction(
            process=self.process,
            name=self.transactional_id,
            began=self.seen.now(),
            outcome=Outcome.FAILED,
        )
        self.seen.transactions.append(one)
        self._joined.clear()
        self._may_be_open = False
        return one

    async def _abort_and_go_on(self) -> None:
        """Aborts, and takes the next epoch, in the first generation by a request of its own."""
        try:
            await self.abort()
        except BumpError:
            await self.begin(is_new=False)
            return
        if self.habits.generation == 1:
            await self.begin(is_new=False)

    async def _live(self, one: Transaction) -> None:
        habits = self.habits
        has_any = not self.happens(habits.empties) and await self.fill(one)
        if self.happens(habits.abandons):
            raise UnansweredError
        if has_any and self.happens(habits.hastes):
            await self._send_in_haste(one)
            raise AbortableError
        if has_any and not self.happens(habits.aborts):
            if self.happens(habits.oversleeps):
                await asyncio.sleep(habits.timeout_ms / 1000 * self.client.rng.uniform(0.8, 1.5))
            await self.commit(one)
        else:
            if not has_any:
                self.seen.count("H21 an empty abort")
            await self.abort()

    async def fill(self, one: Transaction) -> bool:
        """Sends the records of a transaction; returns whether there are any."""
        rng = self.client.rng
        spots = rng.sample(list(self._spots), rng.randint(1, len(self._spots)))
        if rng.random() < 1 / 2:
            await self.join(spots)
        for spot in spots:
            is_known = spot in self._sequences  # its last transaction may be open at the leader
            if is_known or not self.happens(self.habits.forgets):
                await self.join([spot])
            for _ in range(rng.choice((1, 1, 2))):
                await self.send(one, spot, [None] * rng.choice((1, 2)))
        return True

    async def join(self, spots: Iterable[Spot]) -> None:
        """AddPartitionsToTxn, where the generation has it, unless all are added."""
        missing = [spot for spot in spots if spot not in self._joined]
        if self.habits.generation == 2 or not missing:
            return
        version = 3
        by_topic: dict[str, list[int]] = {}
        for spot in missing:
            by_topic.setdefault(spot.topic, []).append(spot.partition)
        row = nested("add_partitions_to_txn", version, "AddPartitionsToTxnTopic")
        topics = tuple(
            row(name=name, partitions=tuple(partitions)) for name, partitions in by_topic.items()
        )
        await self.add(
            "add_partitions_to_txn",
            version,
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.epoch,
            v3_and_below_topics=topics,
        )
        self._joined.update(missing)

    async def add(self, api: str, version: int, **fields: Any) -> None:
        """A request that adds to the transaction. Raises what follows from its code."""
        self._may_be_open = True
        self._judge_add(api, CODES[api](await self._ask(api, version, **fields)))

    def _judge_add(self, api: str, code: int) -> None:
        match code:
            case 0:
                return
            case 90 | 47:
                raise FencedError
            case 49:
                raise BumpError
            case 3 | 120 | 48:
                raise AbortableError
        self._surprised(api, code)
        raise UnansweredError

    async def _send_in_haste(self, one: Transaction) -> None:
        """Sends a batch, and aborts without waiting for the answer."""
        spot = self.client.rng.choice(list(self._spots))
        await self.join([spot])
        values, sequence = self._new_values(one, spot, [None])
        self._may_be_open = True
        self.client.process.spawn(self._send_once(spot, self._batch(values, sequence)))
        await asyncio.sleep(self.client.rng.uniform(0, 0.02))

    async def _send_once(self, spot: Spot, batch: bytes) -> None:
        ended = len(self.seen.given)
        node = await self.client.leader_of(spot)
        try:
            await self.port.produce(node, self._version(12, 11), spot, batch, self.transactional_id)
        except NoAnswerError:
            return
        if any(one.process == self.process for one in self.seen.given[ended:]):
            self.seen.count("H2 ghost_produce: a batch comes after the end of its transaction")

    async def send(self, one: Transaction, spot: Spot, sources: Sequence[str | None]) -> None:
        """Sends a batch with a new value for each source, until it is stored."""
        begun = len(one.sent)
        values, sequence = self._new_values(one, spot, sources)
        offset = await self._deliver(spot, self._batch(values, sequence))
        if offset >= 0 and spot.topic not in self.unwatched:
            for index in range(len(values)):
                place = begun + index
                one.sent[place] = one.sent[place]._replace(offset=offset + index)

    def _new_values(
        self, one: Transaction, spot: Spot, sources: Sequence[str | None]
    ) -> tuple[list[str], int]:
        """New values, and the sequence of the first."""
        values: list[str] = []
        for source in sources:
            self._values += 1
            values.append(f"{self.client.name}-{self._values}")
            if spot.topic not in self.unwatched:
                one.sent.append(Sent(tuple(spot), values[-1], None, source))
        sequence = self._sequences.get(spot, 0)
        self._sequences[spot] = sequence + len(values)
        return values, sequence

    def _batch(self, values: Sequence[str], sequence: int) -> bytes:
        plain = plain_batch(
            [value.encode() for value in values],
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=sequence,
            timestamp=1_795_000_000_000 + round(self.seen.now() * 1000),
        )
        return replace(plain, attributes=TRANSACTIONAL).encode()

    async def _deliver(self, spot: Spot, batch: bytes) -> int:
        """The offset of the batch, -1 if it is not known. Raises `AbortableError`."""
        version = self._version(12, 11)
        until = self.seen.now() + self.habits.patience_s
        self._may_be_open = True
        while self.seen.now() < until:
            try:
                node = await self.client.leader_of(spot)
                row = await self.port.produce(node, version, spot, batch, self.transactional_id)
            except NoAnswerError:
                await self.client.back_off()
                continue
            if row.error in {NONE, REPEAT}:
                return row.base_offset if row.error == NONE else -1
            if row.error not in RETRIABLE and row.error != CONCURRENT:
                self._judge_send(row.error)
            await self.client.back_off()
        raise AbortableError

    def _judge_send(self, code: int) -> None:
        if code not in {45, INVALID_EPOCH, INVALID_STATE, INVALID_MAPPING, 59, ABORTABLE}:
            self._surprised("produce", code)
        raise AbortableError

    # --- ends ---

    async def commit(self, one: Transaction) -> None:
        """Commits; the outcome is that of the transaction. Raises what follows from the answer."""
        one.committing = self.seen.now()
        one.outcome = Outcome.UNKNOWN
        version = self._version(5, 4)
        if version == 5 and self.happens(self.habits.mixes):
            version = 4
            self.seen.count("H20 both generations in one transaction")
        code = await self._try_end(is_commit=True, version=version)
        if code == NONE:
            one.outcome = Outcome.OK
            return
        if code != FENCED or self._tries == 1:
            one.outcome = Outcome.FAILED
        if code == FENCED:
            raise FencedError
        if code in {ABORTABLE, INVALID_MAPPING}:
            self.seen.count("H9 a commit comes after the timeout")
        if code == INVALID_MAPPING:
            raise BumpError
        if code not in {ABORTABLE, INVALID_STATE}:
            self._surprised("a commit", code)
        if code == INVALID_STATE:
            raise UnansweredError
        raise AbortableError

    async def abort(self) -> None:
        """Aborts. Raises what follows from the answer."""
        if self.habits.generation == 1 and not self._may_be_open:
            return
        code = await self._try_end(is_commit=False, version=self._version(5, 4))
        match code:
            case 0:
                return
            case 90:
                raise FencedError
            case 49:
                raise BumpError
            case 48 if self.habits.generation == 1:  # nothing was added
                return
        self._surprised("an abort", code)
        raise UnansweredError

    async def _try_end(self, *, is_commit: bool, version: int) -> int:
        """EndTxn; the code, and with success the identity to go on with."""
        asked_at = self.seen.now()
        answer = await self._ask(
            "end_txn",
            version,
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            committed=is_commit,
        )
        code = int(answer.error_code)
        if code == NONE and version >= 5:
            self._take(Identity(answer.producer_id, answer.producer_epoch), asked_at)
        return code

    # --- requests ---

    @property
    def identity(self) -> Identity:
        """The present identity."""
        assert self._identity is not None
        return self._identity

    def _version(self, second: int, first: int) -> int:
        return second if self.habits.generation == 2 else first

    async def _ask(self, api: str, version: int, /, **fields: Any) -> Any:
        """The answer of the coordinator, once it is not one to ask again. Raises `UnansweredError`."""

        async def ask(node: str) -> Any:
            return await self.port.ask(node, api, version, **fields)

        return await self.repeat(api, self._find_coordinator, ask, AGAIN)

    async def repeat(
        self,
        api: str,
        find: Callable[[], Awaitable[str]],
        ask: Callable[[str], Awaitable[Any]],
        again: frozenset[int],
    ) -> Any:
        """Asks until the code is not one of `again`, at the broker of then. Raises `UnansweredError`."""
        until = self.seen.now() + self.habits.patience_s
        unanswered: str | None = None
        self._tries = 0
        while self.seen.now() < until:
            node = await find()
            self._tries += 1
            if unanswered is not None:
                self.seen.count(f"{api} repeated at {_same(node == unanswered)} coordinator")
            try:
                answer = await ask(node)
            except NoAnswerError:
                unanswered, self._coordinator = node, None
                await self.client.back_off()
                continue
            code = CODES[api](answer)
            if code not in again:
                return answer
            if code in _ELSEWHERE:
                self._coordinator = None
            await self.client.back_off()
        raise UnansweredError

    async def _find_coordinator(self) -> str:
        while self._coordinator is None:
            self._coordinator = await self.find(self.transactional_id, _TRANSACTIONS_KEY)
        return self._coordinator

    async def find(self, key: str, key_type: int) -> str | None:
        """The coordinator that some broker names; None, after a break, if it names none."""
        node = self.client.rng.choice(self.client.broker_nodes)
        try:
            answer = await self.port.ask(node, "find_coordinator", 3, key=key, key_type=key_type)
        except NoAnswerError:
            answer = None
        if answer is not None and answer.error_code == NONE:
            return f"broker-{answer.node_id}"
        await self.client.back_off()
        return None

    def _surprised(self, what: str, code: int) -> None:
        """A code came that no broker may give here."""
        self.client.observations.find(f"{self}: {what} was answered {code}")


def _same(is_same: bool) -> str:
    return "the same" if is_same else "another"
