"""Transactions on a stage: producers of both generations whose steps a scenario chooses, readers, and the judgement."""

from __future__ import annotations

from collections.abc import Coroutine
from random import Random
from typing import Any, Final

from echoless.broker.config.internal_topics import TRANSACTION_STATE
from echoless.broker.partitions.partition import Partition
from tests.simulation.checkers import settled
from tests.simulation.clients import NoAnswerError
from tests.simulation.history import has_settled
from tests.simulation.machine import Machine
from tests.simulation.observations import Spot
from tests.simulation.process import Process
from tests.simulation.stage import SPOT, Stage
from tests.simulation.transactions.history import TransactionHistory
from tests.simulation.transactions.port import KafkaPort
from tests.simulation.transactions.seen import Identity
from tests.simulation.transactions.writer import (
    AbortableError,
    BumpError,
    FencedError,
    Habits,
    UnansweredError,
    Writer,
)
from tests.transactions.history.events import Outcome, Transaction

STATE: Final = Spot(TRANSACTION_STATE, 0)
SETTINGS: Final[dict[str, Any]] = {
    "transaction_state_log_num_partitions": 1,
    "transaction_commit_timeout_ms": 2000,
    "offsets_topic_num_partitions": 1,
}
ID: Final = "a"


class Transactions:
    """The transactional ids of one scenario, all in one partition of `__transaction_state`."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._history = TransactionHistory(stage.cluster, Random(1), [SPOT])
        self._history.watch()
        self.findings: list[str] = []

    def producer(
        self, generation: int, name: str = "w", timeout_ms: int = 60_000
    ) -> ScriptedProducer:
        """A producer that does what it is asked to do."""
        habits = Habits(generation=generation, timeout_ms=timeout_ms, patience_s=30.0, pause_s=0.0)
        writer = Writer(self.port(name), ID, habits, [SPOT])
        writer.is_done = True
        return ScriptedProducer(self._stage, writer)

    def port(self, name: str) -> KafkaPort:
        """The Kafka port, as another program uses it."""
        return KafkaPort(self._stage.cluster.new_client(name), self._history.seen, 4.0)

    # --- who is who ---

    @property
    def coordinator(self) -> Machine:
        """The machine that leads the partition of the state."""
        return self._stage.machines[self._stage.cluster.state_of(STATE)["leader"]]

    def is_led(self, *, but_by: Machine) -> bool:
        """Whether another coordinator serves."""
        leader = self._history.leader_of(STATE)
        return leader is not None and leader.leader_id != but_by.broker_id

    def move_to(self, machine: Machine) -> None:
        """Has a machine coordinate; returns when it does."""
        self._stage.cluster.begin_next_epoch(STATE, machine.broker_id)
        self._stage.until(lambda: self.coordinator is machine and self._history.leader_of(STATE))

    def place_apart(self) -> None:
        """Has a machine coordinate that has no replica of the partition, if there is one, or does not lead it."""
        stage = self._stage
        machines = [stage.machines[one] for one in stage.cluster.state_of(STATE)["isr"]]
        apart = [one for one in machines if not stage.holds(one)]
        wanted = (apart or [one for one in machines if one is not stage.leader])[0]
        if wanted is not self.coordinator:
            self.move_to(wanted)

    # --- judgement ---

    def ends(self) -> Partition:
        """The leader's replica of the partition that is written."""
        return self._stage.partition(self._stage.leader)

    def judged(self) -> list[str]:
        """The promises broken here, and by the whole cluster once all is at rest again."""
        cluster = self._stage.cluster
        cluster.heal()
        self._history.end()
        if has_settled(cluster):
            settled.judge(cluster)
            self._history.judge()
        return self.findings + cluster.observations.findings


class ScriptedProducer:
    """A `Writer` whose steps are called one by one."""

    def __init__(self, stage: Stage, writer: Writer) -> None:
        self._stage = stage
        self.writer = writer
        self.one: Transaction | None = None

    @property
    def process(self) -> Process:
        return self.writer.client.process

    @property
    def identity(self) -> Identity:
        return self.writer.identity

    def begin(self) -> None:
        """A new instance begins."""
        self._run(self.writer.begin(is_new=True))

    def go_on(self) -> None:
        """The session takes the next epoch."""
        self._run(self.writer.begin(is_new=False))

    def send(self, records: int = 1) -> None:
        """Sends a batch in a transaction, a new one if none is open."""
        if self.one is None:
            self.one = self.writer.new_transaction()
        self._run(self.writer.join([SPOT]))
        self._run(self.writer.send(self.one, SPOT, [None] * records))

    def start_commit(self) -> Any:
        """Calls for the commit; the task that ends with it."""
        assert self.one is not None
        one, self.one = self.one, None
        return self.process.spawn(_outcome(self.writer.commit(one)))

    def commit(self) -> Outcome:
        """Commits; returns the outcome, whatever the broker has said."""
        one = self.one
        assert one is not None
        done = self.start_commit()
        self._stage.until(done.done)
        return one.outcome

    def abort(self) -> None:
        """Aborts."""
        self.one = None
        self._run(self.writer.abort())

    def _run(self, step: Coroutine[Any, Any, None]) -> None:
        done = self.process.spawn(_outcome(step))
        self._stage.until(done.done)
        error = done.result()
        if error is not None:
            raise error


async def _outcome(step: Coroutine[Any, Any, None]) -> Exception | None:
    """Takes the step; what it raises is the result, as its program does not end with it."""
    try:
        await step
    except (AbortableError, BumpError, FencedError, UnansweredError) as error:
        return error
    return None


def end_late(stage: Stage, port: KafkaPort, machine: Machine, identity: Identity) -> int | None:
    """An EndTxn of the first generation over a connection that the port has; the code, None if it is closed."""

    async def ask() -> int | None:
        try:
            answer = await port.ask(
                machine.node,
                "end_txn",
                3,
                transactional_id=ID,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                committed=True,
            )
        except NoAnswerError:
            return None
        return int(answer.error_code)

    asked = port.client.process.spawn(ask())
    stage.until(asked.done)
    code: int | None = asked.result()
    return code
