"""The means of a play about transactions: a topic, a transactional id, producers of it, and what readers have to see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from echoless.testkit.admin import Admin
from echoless.testkit.broker_process import BrokerProcess
from echoless.testkit.clients.programs import FURTHER, PROGRAMS
from echoless.testkit.faults import FaultRule
from echoless.testkit.scenarios.stage import Stage
from echoless.testkit.scenarios.transactional_client import (
    LIBRDKAFKA,
    Outcome,
    TransactionalClient,
)

_SECOND_GENERATION: Final = frozenset({"java-4", "franz-go"})
HAVE_TO_BEGIN_ANEW: Final = _SECOND_GENERATION | {"kafkajs", "aiokafka", "kafka_python"}
"""Clients for which a transaction that timed out is the end of their producer."""
_ASK_ONCE: Final = frozenset({"kafkajs", "kafka_python"})
"""Clients that give up an end without an answer, whose program has to begin anew: its outcome is not known then."""


class TransactionalPlay:
    """A topic, a transactional id, and what readers have to see."""

    def __init__(self, stage: Stage, partitions: int = 1) -> None:
        self.stage = stage
        self.partitions = partitions
        self.topic = stage.create_topic(partitions=partitions)
        self.name = f"{self.topic}-id"
        self.program = {**PROGRAMS, **FURTHER}.get(stage.client.name, LIBRDKAFKA)
        """The client that writes."""

    @contextmanager
    def client(
        self, client_id: str = "producer", *, suffix: str = "", timeout_ms: int = 60_000
    ) -> Iterator[TransactionalClient]:
        """A producer with a new session of the id."""
        with TransactionalClient(self.stage.servers.bootstrap_servers, self.program) as client:
            options = {"client_id": client_id, "timeout_ms": timeout_ms}
            self.done(client.do("open", name=self.name + suffix, **options))
            yield client

    def reopen(self, client: TransactionalClient) -> None:
        """Begins another session in the same process."""
        options = {"client_id": "producer", "timeout_ms": 60_000}
        self.done(client.do("open", name=self.name, **options))

    def send(self, client: TransactionalClient, *numbers: int, partition: int = 0) -> None:
        self.done(client.do("send", topic=self.topic, numbers=numbers, partition=partition))

    def begin(self, client: TransactionalClient, *numbers: int, partition: int = 0) -> None:
        """Begins a transaction, and stores records in it."""
        self.done(client.do("begin"))
        self.send(client, *numbers, partition=partition)

    def end(self, client: TransactionalClient, what: str) -> None:
        """Has it commit or abort while an answer is lost."""
        outcome = client.do(what)
        if self.program.name in _ASK_ONCE and outcome["error"] is not None:
            self.reopen(client)
        else:
            self.done(outcome)

    def done(self, outcome: Outcome) -> None:
        self.stage.require("the client goes on", holds=outcome["error"] is None, seen=outcome)

    @contextmanager
    def fault(
        self, action: str | dict[str, Any], match: dict[str, Any], **schedule: Any
    ) -> Iterator[FaultRule]:
        with self.stage.faults().rule(action, name=None, match=match, **schedule) as rule:
            yield rule

    @property
    def ends(self) -> dict[str, Any]:
        """A rule's match: the ends of this id's transactions."""
        return {"api": "end_txn", "transactional_id": self.name}

    def read(self, *, is_committed: bool = True) -> list[list[int]]:
        """Reads everything that may be seen now; the values by partition."""
        with TransactionalClient(self.stage.servers.bootstrap_servers) as reader:
            fields = {"topic": self.topic, "partitions": self.partitions}
            found: list[list[int]] = reader.do("read", **fields, is_committed=is_committed)[
                "values"
            ]
            return found

    def await_read(self, *numbers: list[int]) -> None:
        """Waits until a reader of committed records finds exactly these: markers follow the answer to a commit."""
        wanted = list(numbers)
        self.stage.wait_until(f"readers see {wanted}", lambda: self.read() == wanted)

    def require_read(self, *numbers: list[int], is_committed: bool = True) -> None:
        found = self.read(is_committed=is_committed)
        who = "committed records" if is_committed else "everything"
        self.stage.require(
            f"a reader of {who} sees {list(numbers)}", holds=found == list(numbers), seen=found
        )

    def steps(self, step: str) -> list[dict[str, Any]]:
        """The steps of this id so far, of one kind."""
        self.stage.recorder.settle()
        return [
            one
            for one in self.stage.recorder.events({self.topic})
            if one["event"] == "transaction"
            and one["step"] == step
            and one["transactional_id"] == self.name
        ]

    def await_step(self, step: str) -> None:
        self.stage.wait_until(f"{step} was seen", lambda: self.steps(step))

    def await_overtaken(self) -> None:
        """Waits until a request has come on an older connection than its session's newest, and is refused without an error; or in an old epoch."""
        is_second = self.program.name in _SECOND_GENERATION
        self.stage.wait_until(
            "a request was overtaken",
            lambda: any(is_second or one["error"] is None for one in self.steps("refuse")),
        )

    def coordinator(self) -> int:
        """The broker that coordinates the id."""

        def find() -> int | None:
            for broker_id, broker in self.stage.servers.brokers.items():
                if broker.is_running and self._is_known_to(broker):
                    return broker_id
            return None

        found: int = self.stage.wait_until("the id has a coordinator", find)
        return found

    def _is_known_to(self, broker: BrokerProcess) -> bool:
        rows = Admin(broker.admin).get("/transactions")["transactions"]
        return any(row["transactional_id"] == self.name for row in rows)

    def are_all_in_sync(self) -> bool:
        """Whether each partition of the cluster has a leader, and all brokers in sync: those of `__transaction_state` as well."""
        brokers = self.stage.servers.brokers
        if not all(broker.is_running for broker in brokers.values()):
            return False
        known = [Admin(broker.admin).get("/topics")["topics"] for broker in brokers.values()]
        led: dict[tuple[str, int], int] = {}
        for broker_id, topics in zip(brokers, known, strict=True):
            for topic in topics:
                for row in topic["partitions"]:
                    place = topic["name"], row["partition"]
                    in_sync = len(row["isr"]) if row["leader"] == broker_id else 0
                    led[place] = max(led.get(place, 0), in_sync)
        return all(in_sync == len(brokers) for in_sync in led.values())
