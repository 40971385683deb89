"""The stage of a scenario: brokers, one producer, faults, and a record of events.

A play narrates its steps (`say`), sends batches, sets faults, kills brokers, and states what must
hold (`require`). All it knows about the kind of producer is whether it sends several batches at a
time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from echoless.protocol.errors import ErrorCode
from echoless.testkit.admin import Admin, AdminError
from echoless.testkit.broker_process import BrokerProcess
from echoless.testkit.clients.client import Client
from echoless.testkit.clients.scripted import Scripted
from echoless.testkit.faults import FaultRule, Faults
from echoless.testkit.native import Native, NativeError
from echoless.testkit.scenarios.recorder import PlayRecorder
from echoless.testkit.scenarios.servers import Servers
from echoless.testkit.scenarios.spans import PRELUDE, Span

_ON_ITS_WAY_S: Final = 0.5
"""The time the next batch waits until the broker has seen the last one; after that they may be
merged.
"""
_WINDOW: Final = 5
_WAIT_S: Final = 120.0
_ASK_AGAIN_S: Final = 0.02


class ScenarioFailedError(Exception):
    """A requirement was not met; says which, and what was seen instead."""


class Stage:
    """One play of one scenario.

    `topic` is set by the first `create_topic` and changed by later ones.
    """

    def __init__(self, servers: Servers, client: Client, name: str) -> None:
        self.servers = servers
        self.client = client
        self.topic = name
        self.topics: list[str] = []
        self.steps: list[str] = []
        self.recorder = PlayRecorder()
        self._waiting: list[Span] = []
        self.deleted: dict[tuple[str, int], list[int]] = {}
        """Numbers of records that were stored and then deleted on purpose."""
        for broker in servers.brokers.values():
            self.recorder.follow(broker.admin)

    @property
    def scripted(self) -> Scripted | None:
        """The scripted producer, which can do what no client does; None for a real client."""
        return self.client if isinstance(self.client, Scripted) else None

    @property
    def is_pipelined(self) -> bool:
        """Whether the producer sends a batch before the last one is answered."""
        return self.client.batches_under_way > 1

    @property
    def fills_window(self) -> bool:
        """Whether it has as many batches in flight as a broker remembers."""
        return self.client.batches_under_way >= _WINDOW

    def say(self, text: str) -> None:
        """Narrates a step of the story."""
        self.steps.append(text)
        self.recorder.note(text, self.topic)

    def require(self, what: str, *, holds: bool, seen: object = "") -> None:
        """Raises `ScenarioFailedError` unless it holds."""
        if not holds:
            raise ScenarioFailedError(f"not so: {what}" + (f"; seen: {seen}" if seen else ""))

    def create_topic(self, suffix: str = "", *, partitions: int = 1, **configs: str) -> str:
        """Creates a topic with a replica on every broker; later sends go there."""
        name = self.topic.removesuffix(suffix) + suffix
        replicas = len(self.servers.brokers)
        Native(self.broker().native).create_topic(name, partitions, replicas, **configs)
        self.topic = name
        self.topics.append(name)
        self.wait_until("every replica is in sync", lambda: len(self.isr()) == replicas)
        return name

    # --- the producer

    def open(self, *, is_patient: bool = False) -> None:
        """Opens a producer with its own id."""
        servers = self.servers
        self.client.open(servers.bootstrap_servers, servers.user, is_patient=is_patient)

    def begin(self, *, is_patient: bool = False) -> None:
        """Opens a producer that has stored records 0 to 113, so that batch A begins at 114."""
        self.open(is_patient=is_patient)
        self.send(PRELUDE)
        self.wait()
        self.recorder.leave_out(self.topic)

    def send(self, *spans: Span, partition: int = 0) -> None:
        """Sends batch by batch without waiting, or one by one if the client cannot do otherwise."""
        for span in spans:
            if not self.is_pipelined:
                self.client.wait()  # earlier batches sent unanswered
            self.client.send(self.topic, partition, span.numbers)
            if not self.is_pipelined:
                self.client.wait()
            elif self.scripted is None:
                self._await_sight(span)

    def send_unanswered(self, *spans: Span) -> None:
        """Sends batches whose answers do not come; returns when the leader's log has them.

        A producer that does not fill the window sends the first; the others wait with it. Several
        need a patient producer: once the first request times out, a Java client resends that one
        batch until it is answered, and sends none of the later ones meanwhile. One that has made
        two batches of a span keeps the last to itself: it has as many in flight as it sends
        unanswered.
        """
        before = self._append_count()
        for span in spans[: None if self.fills_window else 1]:
            self.client.send(self.topic, 0, span.numbers)

            def is_stored(end: int = span.last + 1) -> bool:
                in_flight = self._append_count() - before
                return self._log_end() >= end or in_flight >= self.client.batches_under_way

            self.wait_until(f"{span} is in the log", is_stored)
        if not self.fills_window:
            self._waiting += spans[1:]

    def _append_count(self) -> int:
        """The number of batches appended to the topic so far."""
        decisions = self.decisions()
        return sum(one["topic"] == self.topic and one["decision"] == "append" for one in decisions)

    def _await_sight(self, span: Span) -> None:
        """Keeps a client from making one batch of two; the broker may have lost the first."""
        deadline = time.monotonic() + _ON_ITS_WAY_S
        while not self._has_seen(span) and time.monotonic() < deadline:
            time.sleep(_ASK_AGAIN_S)

    def _has_seen(self, span: Span) -> bool:
        batches = [
            batch
            for event in self.recorder.events({self.topic})
            for batch in event.get("batches", [event])
        ]
        return any(batch.get("last_sequence") == span.last for batch in batches)

    def wait(self) -> None:
        """Waits until the producer knows every outcome."""
        self.client.wait()
        waiting, self._waiting = self._waiting, []
        self.send(*waiting)

    # --- the brokers

    def broker(self) -> BrokerProcess:
        """Any running broker."""
        return next(one for one in self.servers.brokers.values() if one.is_running)

    def leader(self) -> int:
        """The leader of partition 0 of the topic, by its own account."""
        found: int = self.wait_until("the partition has a leader", self._find_leader)
        return found

    def isr(self) -> list[int]:
        row = self.partition_row()
        return [] if row is None else list(row["isr"])

    def partition_row(self) -> dict[str, Any] | None:
        """The leader's description of partition 0 of the topic; None without a leader."""
        leader = self._find_leader()
        return None if leader == 0 else self._row(leader)

    def _log_end(self) -> int:
        row = self.partition_row()
        return 0 if row is None else int(row["log_end_offset"])

    def kill(self, broker_id: int) -> None:
        """Sends SIGKILL."""
        self.recorder.settle()
        self.servers.brokers[broker_id].kill()

    def stop(self, broker_id: int) -> None:
        """Sends SIGTERM, and waits for the end: another broker leads what this one did."""
        self.recorder.settle()
        self.servers.brokers[broker_id].stop()

    def start(self, broker_id: int) -> None:
        """Starts the same broker again, on the same ports and data."""
        broker = self.servers.brokers[broker_id]
        broker.start()
        self.recorder.follow(broker.admin)

    def wait_until(self, what: str, condition: Callable[[], Any]) -> Any:
        """Waits until the condition holds; returns its value."""
        deadline = time.monotonic() + _WAIT_S
        while not (found := condition()):
            if time.monotonic() > deadline:
                raise ScenarioFailedError(f"not within {_WAIT_S:g} s: {what}")
            time.sleep(_ASK_AGAIN_S)
        return found

    # --- faults

    def faults(self) -> Faults:
        """The faults of the topic's leader."""
        return Faults(Admin(self.servers.brokers[self.leader()].admin))

    @contextmanager
    def fault(
        self, action: str | dict[str, Any], *spans: Span, **schedule: Any
    ) -> Iterator[FaultRule]:
        """Sets one rule for each of the batches, or for every produce request; yields the first."""
        faults = self.faults()
        match = {"api": "produce", "topic": self.topic}
        matches = [{**match, "base_sequence": span.sequences} for span in spans] or [match]
        with ExitStack() as stack:
            rules = [
                stack.enter_context(faults.rule(action, name=None, match=one, **schedule))
                for one in matches
            ]
            yield rules[0]

    @contextmanager
    def lost_answers(self, *spans: Span, **schedule: Any) -> Iterator[FaultRule]:
        """Loses the first answer to each batch: it is stored, but the producer is not notified."""
        with self.fault(self._lossy("drop_response"), *spans, **{"times": 1, **schedule}) as rule:
            yield rule

    @contextmanager
    def lost_requests(self, *spans: Span) -> Iterator[FaultRule]:
        """Loses the batches' first requests in transit."""
        with self.fault(self._lossy("drop_request"), *spans, times=1) as rule:
            yield rule

    def _lossy(self, action: str) -> dict[str, Any]:
        """The action, keeping the order that most clients require of answers."""
        later = "send" if self.client.goes_on_behind_a_lost_answer else "wait"
        return {"type": action, "later": later}

    # --- outcomes

    def decisions(self) -> list[dict[str, Any]]:
        """Every decision on the play's topics so far, oldest first."""
        self.recorder.settle()
        events = self.recorder.events(set(self.topics))
        return [event for event in events if event["event"] == "decision"]

    def stored(self) -> dict[tuple[str, int], list[int]]:
        """By topic and partition, the log's contents, after those deleted on purpose."""
        found = {}
        for topic in self.topics:
            self.topic = topic
            native = Native(self.servers.brokers[self.leader()].native)
            rows = native.call("metadata", topics=[topic])["topics"][0]["partitions"]
            for partition in range(len(rows)):
                before = self.deleted.get((topic, partition), [])
                values = self._values(partition, len(before))
                found[topic, partition] = before + [int(value) for value in values]
        return found

    def _values(self, partition: int, first_offset: int) -> list[bytes]:
        """The log's contents from an offset on, of a leader that is still the leader when it is asked."""
        found: list[list[bytes]] = []

        def has_read() -> bool:
            native = Native(self.servers.brokers[self.leader()].native)
            try:
                found.append(native.values(self.topic, partition, first_offset))
            except NativeError as error:
                if error.code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    raise
            return bool(found)

        self.wait_until(f"a leader tells the log of {self.topic}-{partition}", has_read)
        return found[0]

    def _find_leader(self) -> int:
        """The id of the leader; 0 if there is none."""
        for broker_id, broker in self.servers.brokers.items():
            row = self._row(broker_id) if broker.is_running else None
            if row is not None and row["leader"] == broker_id:
                return broker_id
        return 0

    def _row(self, broker_id: int) -> dict[str, Any] | None:
        try:
            topics = Admin(self.servers.brokers[broker_id].admin).get("/topics")["topics"]
        except AdminError:
            return None  # it is about to exit
        for topic in topics:
            if topic["name"] == self.topic:
                return next((row for row in topic["partitions"] if row["partition"] == 0), None)
        return None
