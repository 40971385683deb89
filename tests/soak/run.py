"""One run: brokers, every client, rules from a seed; then the rules end, and the log is judged."""

from __future__ import annotations

import contextlib
import json
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from echoless.testkit.admin import Admin, AdminError
from echoless.testkit.clients.programs import PROGRAMS
from echoless.testkit.faults import Faults
from echoless.testkit.native import Native, NativeError
from echoless.testkit.scenarios.recorder import PlayRecorder
from echoless.testkit.scenarios.servers import Servers
from tests.proofs.judge import Evidence, Findings, judge
from tests.soak.plan import ON_REQUESTS, Step, make_plan
from tests.soak.traffic import PARTITIONS, Traffic
from tests.soak.verdict import Row, Verdict

_SETTINGS: Final = {"log_segment_bytes": "100000", "zookeeper_session_timeout_ms": "1500"}
_CLUSTER: Final = {
    **_SETTINGS,
    "default_replication_factor": "3",
    "min_insync_replicas": "2",
    "replica_lag_time_max_ms": "2000",
}
_RULES_AT_A_TIME: Final = 4
_HEAL_S: Final = 60.0
_ASK_AGAIN_S: Final = 0.1
_NOT_FOUND: Final = 404
_STARTING: Final = 503
_CLIENTS: Final = tuple(PROGRAMS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Clients, duration, seed and number of brokers."""

    seconds: float
    seed: int
    brokers: int = 1
    clients: Sequence[str] = _CLIENTS


class Run:
    """The parts of one run."""

    def __init__(self, options: Options) -> None:
        self._options = options
        where = "one broker" if options.brokers == 1 else f"{options.brokers} brokers"
        title = f"soak, seed {options.seed}, {options.seconds:.0f} s, {where}"
        self.verdict = Verdict(title=title)
        settings = _SETTINGS if options.brokers == 1 else _CLUSTER
        self._servers = Servers(options.brokers, settings)
        self._stopping = threading.Event()
        self._restarting = threading.Lock()
        self._recorder = PlayRecorder()

    def run(self) -> Verdict:
        """Runs from the first start to the verdict."""
        programs = [PROGRAMS[name] for name in self._options.clients]
        with (
            self._servers,
            closing(self._recorder),
            ThreadPoolExecutor(_RULES_AT_A_TIME) as threads,
        ):
            for broker in self._servers.brokers.values():
                self._recorder.follow(broker.admin)
            traffic = [
                Traffic(program, number, self._options.seed)
                for number, program in enumerate(programs)
            ]
            for one in traffic:
                self._create_topic(one.topic)
                one.start(self._servers.bootstrap_servers)
            timer = threading.Timer(self._options.seconds, self._stopping.set)
            timer.start()
            strikes = [threads.submit(self._strike, number) for number in range(_RULES_AT_A_TIME)]
            for strike in strikes:
                strike.result()
            self._heal()
            for one in traffic:
                one.begin_stop()
            for one in traffic:
                one.join()
                self._judge(one)
            self._keep_events()
        return self.verdict

    def _keep_events(self) -> None:
        """Keeps the events of a failed run, for `echoless trace` and for reading."""
        broken = [row.client for row in self.verdict.rows if row.counts()]
        for client in broken:
            file = Path(tempfile.mkdtemp(prefix="soak-")) / f"{client}.jsonl"
            events = self._recorder.events({client})
            file.write_text("".join(json.dumps(event) + "\n" for event in events))
            self.verdict.records.append(file)

    def _create_topic(self, name: str) -> None:
        native = Native(self._servers.brokers[1].native)
        native.create_topic(name, PARTITIONS, self._options.brokers)

    # --- the rules

    def _strike(self, number: int) -> None:
        """Executes one of several overlapping sequences of rules."""
        topics = list(self._options.clients)
        behind_lost = [name for name in topics if PROGRAMS[name].goes_on_behind_a_lost_answer]
        seed = self._options.seed * _RULES_AT_A_TIME + number
        for step in make_plan(seed, topics, list(self._servers.brokers), behind_lost):
            if self._stopping.wait(step.quiet_s):
                return
            self._apply(step)

    def _apply(self, step: Step) -> None:
        """Adds a rule; one on requests is set on every broker, since any of them may lead."""
        hit = list(self._servers.brokers) if step.kind in ON_REQUESTS else [step.broker_id]
        with contextlib.ExitStack() as stack:
            for broker_id in hit:
                stack.callback(self._start_again, broker_id)
                stack.enter_context(self._rule(step, broker_id))
            self._wait(step)
        self.verdict.rules[step.kind] += 1

    @contextlib.contextmanager
    def _rule(self, step: Step, broker_id: int) -> Iterator[None]:
        faults = Faults(Admin(self._servers.brokers[broker_id].admin))
        rule = None
        with self._death_is_no_problem(step):
            rule = faults.add(step.action, match=step.match, **step.schedule)
        yield
        if rule is not None:
            with self._death_is_no_problem(step), contextlib.suppress(LookupError):
                hits = rule.hits
                self.verdict.hits[step.kind] += 0 if step.kind == "crash" else hits
                faults.remove(rule.name)

    @contextlib.contextmanager
    def _death_is_no_problem(self, step: Step) -> Iterator[None]:
        """Ignores that another rule may have killed the broker, and this one with it.

        Another sequence may be starting it again at this moment: it answers 503 until it has joined.
        """
        try:
            yield
        except AdminError as error:
            if error.status not in (None, _NOT_FOUND, _STARTING):
                self.verdict.problems.append(f"{step.kind}: {error}")

    def _wait(self, step: Step) -> None:
        """Waits for the rule's time, or until it has killed the broker."""
        deadline = time.monotonic() + step.lasts_s
        broker = self._servers.brokers[step.broker_id]
        while time.monotonic() < deadline and broker.is_running:
            time.sleep(_ASK_AGAIN_S)

    def _start_again(self, broker_id: int) -> None:
        """Restarts a crashed broker, as a supervisor would; the first sequence to see it does."""
        broker = self._servers.brokers[broker_id]
        with self._restarting:
            if not broker.is_running:
                broker.wait_for_end()
                broker.start()
                self._recorder.follow(broker.admin)
                self.verdict.hits["crash"] += 1

    # --- the end

    def _heal(self) -> None:
        for broker_id, broker in self._servers.brokers.items():
            self._start_again(broker_id)
            Faults(Admin(broker.admin)).clear()
        deadline = time.monotonic() + _HEAL_S
        while not self._is_whole():
            if time.monotonic() > deadline:
                self.verdict.problems.append(f"not whole within {_HEAL_S:.0f} s")
                return
            time.sleep(_ASK_AGAIN_S)

    def _is_whole(self) -> bool:
        """Whether every partition has a leader and all its replicas in sync."""
        rows = [row for one in self._servers.brokers for row in self._rows(one).values()]
        led = [row for row in rows if row["leads"]]
        return len(led) == PARTITIONS * len(self._options.clients) and all(
            len(row["isr"]) == self._options.brokers for row in led
        )

    def _rows(self, broker_id: int) -> Mapping[tuple[str, int], dict[str, object]]:
        topics = []
        with contextlib.suppress(AdminError):
            topics = Admin(self._servers.brokers[broker_id].admin).get("/topics")["topics"]
        return {
            (topic["name"], row["partition"]): {**row, "leads": row["leader"] == broker_id}
            for topic in topics
            for row in topic["partitions"]
        }

    def _judge(self, traffic: Traffic) -> None:
        self.verdict.problems += traffic.problems
        row = Row(
            client=traffic.name,
            sent=traffic.sent,
            acknowledged=len(traffic.deliveries.acknowledged),
            given_up=traffic.given_up(),
            fatal_errors=traffic.fatal_errors,
        )
        for partition in range(PARTITIONS):
            stored = self._stored(traffic.topic, partition)
            row.stored += len(stored)
            row.findings.join(f"{partition}", self._findings(traffic, partition, stored))
        self.verdict.rows.append(row)

    def _findings(self, traffic: Traffic, partition: int, stored: Sequence[int]) -> Findings:
        return judge(
            Evidence(
                sent={traffic.producer: traffic.sent},
                acknowledged=traffic.acknowledgements(partition),
                stored=stored,
                read=list(enumerate(stored)),
            )
        )

    def _stored(self, topic: str, partition: int) -> list[int]:
        """The stored records, from the current leader; leadership may still move for a moment."""
        deadline = time.monotonic() + _HEAL_S
        while True:
            for broker_id, broker in self._servers.brokers.items():
                row = self._rows(broker_id).get((topic, partition))
                if row is not None and row["leads"]:
                    with contextlib.suppress(NativeError):
                        return [int(v) for v in Native(broker.native).values(topic, partition)]
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic}-{partition} has no leader")
            time.sleep(_ASK_AGAIN_S)


def run(options: Options) -> Verdict:
    """One run on its own brokers."""
    return Run(options).run()
