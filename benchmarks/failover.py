"""From SIGKILL of a leader to the next acknowledged record, and where the time goes.

    python -m benchmarks.failover [--rounds N] [--session-timeout-ms MS] [--client default|quick]
                                  [--end kill|stop]

Three brokers and a real ZooKeeper; one partition with three replicas, min.insync.replicas 2; one
idempotent librdkafka producer, acks=all, 200 records/s. Each round ends the leader, waits until
records are acknowledged again, starts it again and waits until all replicas are in sync. The parts,
by the machine's clock:

    expiry     SIGKILL to ZooKeeper's line that the broker's session has expired
    election   until ZooKeeper stored the state node with the new leader
    leading    until the new leader's line that it leads
    client     until the first record that it acknowledged

With `--end stop` the leader gets SIGTERM; it hands over first, and there is no expiry.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from kazoo.client import KazooClient

from tests.support.cluster import Cluster
from tests.support.steady_producer import SteadyProducer

TOPIC: Final = "failover"
RECORDS_PER_S: Final = 200
CLIENTS: Final[dict[str, dict[str, Any]]] = {
    "default": {},
    "quick": {
        "retry.backoff.ms": 20,
        "retry.backoff.max.ms": 100,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 100,
        "topic.metadata.refresh.interval.ms": 200,
    },
}
"""librdkafka's defaults, and a configuration that asks more often who leads.

By default it asks again once a second while the leader is down. If the answer then names another
leader, it also lacks the dead broker, and librdkafka (2.16) removes that broker after it has moved
the partition away from it, takes the partition back from the new leader in doing so, and asks once
more a second later. Its periodic refresh, 5 minutes by default, finds the new leader at any time.
"""
_EXPIRING = re.compile(
    r"^.*?(\d\d:\d\d:\d\d[.,]\d{3}) .*Expiring session 0x([0-9a-f]+)", re.MULTILINE
)
"""The time of day, in the machine's time zone."""
_QUIET_ACKNOWLEDGEMENTS: Final = 200
"""A round begins after this many records from the last one's new leader, and ends after as many."""


@dataclass(slots=True, kw_only=True)
class Round:
    """One fail-over, in seconds. The parts add up to `total`."""

    total: float
    expiry: float
    election: float
    leading: float
    client: float
    exit: float
    """SIGTERM to the exit of the process; 0 after SIGKILL."""
    exit_status: int


class Failover:
    """Rounds on one cluster."""

    def __init__(self, cluster: Cluster, producer: SteadyProducer, tree: KazooClient) -> None:
        self._cluster = cluster
        self._producer = producer
        self._tree = tree

    def run_round(self, *, is_kill: bool) -> Round:
        """Ends the leader once, and brings it back."""
        cluster = self._cluster
        cluster.wait_until(cluster.is_in_sync, "every replica is in sync")
        self._wait_for_acknowledgements()
        leader = cluster.wait_for_leader(TOPIC, 0)
        session = self._session_of(leader)
        began, exited, status = time.time(), 0.0, 0
        if is_kill:
            cluster.kill(leader)
        else:
            status = cluster.stop(leader)
            exited = time.time() - began
        cluster.wait_for_leader(TOPIC, 0, other_than=leader)
        self._wait_for_acknowledgements()
        result = self._explain(began, session, is_kill=is_kill)
        cluster.start_broker(leader)
        return Round(**result, exit=exited, exit_status=status)

    def _explain(self, began: float, session: str, *, is_kill: bool) -> dict[str, float]:
        before, acknowledged = self._producer.longest_silence_after(began)
        elected = self._elected_at()
        leading = self._leading_at()
        if not is_kill:
            # Nothing fails before the leadership has moved: the gap is all that can be measured.
            return {
                "total": acknowledged - before,
                "expiry": 0.0,
                "election": elected - began,
                "leading": leading - elected,
                "client": acknowledged - leading,
            }
        expired = self._expired_at(session)
        return {
            "total": acknowledged - began,
            "expiry": expired - began,
            "election": elected - expired,
            "leading": leading - elected,
            "client": acknowledged - leading,
        }

    def _wait_for_acknowledgements(self) -> None:
        goal = len(self._producer.acknowledged_at) + _QUIET_ACKNOWLEDGEMENTS
        self._cluster.wait_until(
            lambda: len(self._producer.acknowledged_at) >= goal, "records are acknowledged"
        )

    def _session_of(self, broker_id: int) -> str:
        _, stat = self._tree.get(f"/brokers/ids/{broker_id}")
        return f"{stat.ephemeralOwner:x}"

    def _expired_at(self, session: str) -> float:
        found = _EXPIRING.findall(self._cluster.zookeeper.process.log())
        moment = next(moment for moment, one in found if one == session)
        today = datetime.datetime.now().astimezone().date()
        return datetime.datetime.fromisoformat(f"{today} {moment.replace(',', '.')}").timestamp()

    def _elected_at(self) -> float:
        """The last write of the state: the election's, which also removed the old leader from the ISR."""
        _, stat = self._tree.get(f"/brokers/topics/{TOPIC}/partitions/0/state")
        return float(stat.mtime) / 1000

    def _leading_at(self) -> float:
        leader = self._cluster.wait_for_leader(TOPIC, 0)
        log = self._cluster.brokers[leader].process.log()
        return _seconds(re.findall(rf"^(\S+)Z .* {TOPIC}-0: leads in epoch", log, re.MULTILINE)[-1])


def _seconds(moment: str) -> float:
    """`2026-11-21T04:22:03.318`, in UTC, as time.time()."""
    return datetime.datetime.fromisoformat(f"{moment}+00:00").timestamp()


def measure(
    rounds: int, session_timeout_ms: int, client: str, *, is_kill: bool
) -> tuple[list[Round], list[str]]:
    """All rounds, and the records that were not delivered."""
    settings = {"zookeeper_session_timeout_ms": str(session_timeout_ms)}
    with tempfile.TemporaryDirectory() as directory, Cluster(Path(directory), settings) as cluster:
        cluster.start()
        cluster.create_topic(TOPIC, 1, min_insync_replicas=2)
        tree = KazooClient(cluster.zookeeper.hosts("/echoless"))
        tree.start()
        try:
            with SteadyProducer(
                cluster.bootstrap, TOPIC, CLIENTS[client], records_per_s=RECORDS_PER_S
            ) as producer:
                failover = Failover(cluster, producer, tree)
                found = [failover.run_round(is_kill=is_kill) for _ in range(rounds)]
            return found, producer.failures
        finally:
            tree.stop()


def print_rounds(rounds: list[Round], session_timeout_ms: int) -> None:
    """Median and range of each part, in ms."""
    for name in ("total", "expiry", "election", "leading", "client", "exit"):
        values = [1000 * asdict(one)[name] for one in rounds]
        print(
            f"{name:10} median {statistics.median(values):8.0f} ms   "
            f"[{min(values):.0f} .. {max(values):.0f}]"
        )
    worst = max(one.total for one in rounds)
    print(f"worst total minus session timeout: {1000 * worst - session_timeout_ms:.0f} ms")
    print(f"exit statuses: {sorted({one.exit_status for one in rounds})}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--session-timeout-ms", type=int, default=6000)
    parser.add_argument("--client", choices=list(CLIENTS), default="quick")
    parser.add_argument("--end", choices=["kill", "stop"], default="kill")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rounds, failures = measure(
        arguments.rounds,
        arguments.session_timeout_ms,
        arguments.client,
        is_kill=arguments.end == "kill",
    )
    print_rounds(rounds, arguments.session_timeout_ms)
    print(f"records not delivered: {len(failures)} {failures[:3]}")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(one) for one in rounds], indent=2))


if __name__ == "__main__":
    main()
