"""A broker for one test or one session, as the pytest plugin provides it (`docs/testing.md`).

It works without pytest, too:

    with Echoless() as echoless:
        with echoless.faults.drop_responses(times=1):
            send(echoless.bootstrap_servers, ...)
        echoless.assert_exactly_once("orders", sent)
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self

from echoless.testkit.admin import Admin, AdminError
from echoless.testkit.broker_process import BrokerProcess
from echoless.testkit.exactly_once import Sent, compare, describe
from echoless.testkit.faults import Faults
from echoless.testkit.missed_faults import describe_missed
from echoless.testkit.native import Native
from echoless.testkit.recorder import Recorder
from echoless.testkit.stored_records import StoredRecord, read_topic
from echoless.testkit.transactional_topic import TransactionalTopic

_EVENTS_MAX: Final = 3000
_NS_PER_MS: Final = 1_000_000


class Echoless:
    """A running broker, its faults, and the outcome of the records: what the fixture `echoless` is. Blocking.

    `with` starts the broker, and kills it and deletes its data.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        security: str = "",
        broker: BrokerProcess | None = None,
    ) -> None:
        """`settings` are names and values of `docs/configuration.md`.

        `security`: SSL, SASL_PLAINTEXT or SASL_SSL; see `client_options`. `broker`: one that has not been started, such as a
        `BrokerContainer`, in the place of a new process with these.
        """
        self.broker = broker or BrokerProcess(settings, security=security)
        """Its process, a `BrokerProcess`: `kill()`, `start()`, `data_dir`, `log_tail()`."""
        self._names = itertools.count(1)
        self._from_ms = 0

    def __enter__(self) -> Self:
        self.broker.__enter__()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.broker.kill()  # its data is deleted anyway: a clean stop is not worth the time
        self.broker.__exit__(exc_type, exc, traceback)

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, for any Kafka client."""
        return self.broker.bootstrap_servers

    @property
    def client_options(self) -> dict[str, str]:
        """Options of a client, by librdkafka's names: the servers, and with security the user alice."""
        return self.broker.client_options

    @property
    def admin(self) -> Admin:
        """Its admin port (`docs/admin.md`); `admin.address` is `host:port`."""
        return Admin(self.broker.admin)

    @property
    def native(self) -> Native:
        """Its native port (`docs/native.md`)."""
        return Native(self.broker.native)

    @property
    def faults(self) -> Faults:
        """The rules of the broker: `with echoless.faults.rule("drop_response", match={...}, times=1): ...`"""
        return Faults(self.admin)

    def advertise(
        self,
        address: str | None = None,
        *,
        networks: Mapping[str, str] | None = None,
        listener: str = "PLAINTEXT",
    ) -> None:
        """Gives clients another address from now on: of a proxy, a published port, a tunnel (`docs/listeners.md`).

        `address` is `host:port`, or `arrival`: where each client's connection arrived. `networks` are addresses for clients of
        certain networks, as `{"10.0.0.0/8": "broker:9092"}`. Without either, clients get the configured addresses again.
        Raises `AdminError`.
        """
        path = f"/listeners/{listener}"
        given = {"advertise": address, "networks": None if networks is None else dict(networks)}
        body = {name: value for name, value in given.items() if value is not None}
        if body:
            self.admin.put(path, body)
        else:
            self.admin.delete(path)

    def topic(self, name: str | None = None, *, partitions: int = 1, **configs: str) -> str:
        """Creates a topic; its name is generated if none is given. `_` stands for `.` in configs."""
        name = name or f"topic-{next(self._names)}"
        self.native.create_topic(name, partitions, 1, **configs)
        return name

    def transactional_topic(
        self, name: str | None = None, *, behind: int = 30
    ) -> TransactionalTopic:
        """Creates a topic with aborted ranges, a last stable offset far behind, and a marker at its end.

        `behind`: the number of transactions behind the one that stays open.
        """
        address = self.broker.open_servers or self.broker.bootstrap_servers
        return TransactionalTopic(address, self.topic(name), behind=behind)

    def records(self, topic: str) -> list[StoredRecord]:
        """Everything that the topic holds, partition by partition, in offset order."""
        return read_topic(self.native, topic, lambda: self.admin)

    def record(self, **selection: Any) -> Recorder:
        """Follows the decisions for the duration of a block, with the window before each append.

        `selection`: producer_id, topic, partition.
        """
        return Recorder([self.broker.admin], last=0, **selection)

    def events(self, **selection: object) -> list[dict[str, Any]]:
        """The decisions and faults of this test, oldest first, as far back as the broker remembers.

        `selection`: producer_id, topic, partition. The fields of an event: `docs/admin.md`.
        """
        answer = self.admin.get("/decisions", n=_EVENTS_MAX, **selection)
        events = [{"event": "decision", **one} for one in answer["decisions"]]
        events += [{"event": "fault", **one} for one in answer["faults"]]
        events += [{"event": "transaction", **one} for one in answer.get("transactions", [])]
        events.sort(key=lambda event: int(event["number"]))
        return [event for event in events if event["time_ms"] >= self._from_ms]

    def fault_rules(self) -> list[dict[str, Any]]:
        """The fault rules of this test with their counts, those that were removed first. Raises `AdminError`."""
        return [*self.faults.removed(self._from_ms), *self.faults.rules()]

    def assert_faults_struck(self) -> None:
        """Raises `AssertionError` listing the fault rules of this test that never struck and are not optional.

        Raises `AdminError` if the broker runs and does not answer: nothing is known of its rules.
        A broker that was killed has forgotten its rules: those are not judged. Nor is a broker asked whose admin port
        nobody knows: its first answer there takes longer than its start.
        """
        __tracebackhide__ = True
        if not self.broker.may_have_rules:
            return
        try:
            missed = self.faults.never_struck(self._from_ms)
        except AdminError:
            if self.broker.is_running:
                raise
            return
        if missed:
            raise AssertionError(describe_missed(missed))

    def begin_test(self) -> None:
        """Excludes everything up to now from `events`."""
        self._from_ms = time.time_ns() // _NS_PER_MS

    def assert_exactly_once(
        self, topic: str, sent: Iterable[Sent], *, ordered: bool = True
    ) -> None:
        """Raises `AssertionError` listing the records that are lost, duplicated or out of order.

        `sent`: values, or pairs of key and value, in the order of sending. `ordered=False` if
        several producers wrote to the same partition.
        """
        __tracebackhide__ = True
        difference = compare(sent, self.records(topic), ordered=ordered)
        if difference:
            decisions = [one for one in self.events() if one["event"] == "decision"]
            raise AssertionError(describe(topic, difference, decisions))
