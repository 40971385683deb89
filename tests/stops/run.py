"""Stops of whole clusters, or of some of their brokers, that lose services meanwhile.

One round: a producer writes; all brokers, or one, get SIGTERM or SIGINT (some of them twice), and
at a random moment around it something is lost (`losses.py`). In some rounds they are started
without what was lost, and signalled again on the way. Then everything is given back, they start,
and must be in sync.

What has to hold: every process ends within `STOP_S_MAX` with 0, its log directory is closed (the
next start recovers nothing), and in the end every record is stored once, in order.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.nemesis.names import NAME_SERVER, Names
from tests.nemesis.network import Network
from tests.stops.losses import Loss, Losses
from tests.stops.stop import SignalPlan, Stop, stop
from tests.stops.writer import Writer
from tests.support.cluster import ZOOKEEPER, Cluster

TOPIC: Final = "stopped"
PARTITIONS: Final = 3
BROKERS: Final = (1, 2, 3)
_RECORDS_BETWEEN: Final = 200
_EARLIEST_S: Final = -2.0
"""A loss comes at most this long before the signal, and as long after it."""
_LATEST_S: Final = 2.0
_SIGNALS_WITHIN_S: Final = 0.3
_STARTS_WITHIN_S: Final = 4.0

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Report:
    """All stops of a run, and the fate of the records."""

    stops: list[Stop] = field(default_factory=list)
    acknowledged: int = 0
    wrong_records: list[str] = field(default_factory=list)

    @property
    def bad(self) -> list[Stop]:
        return [one for one in self.stops if not one.is_good]

    def lines(self) -> Iterator[str]:
        """Lines for people."""
        kinds = Counter((one.loss, one.while_starting) for one in self.stops)
        for (loss, while_starting), count in sorted(kinds.items(), key=lambda kind: str(kind[0])):
            chosen = [one for one in self.stops if one[1:3] == (loss, while_starting)]
            times = sorted(one.seconds for one in chosen)
            yield (
                f"{loss.value:50} {'starting' if while_starting else 'serving':9}{count:4} stops, "
                f"median {times[len(times) // 2]:5.2f} s, longest {times[-1]:5.2f} s, "
                f"bad {sum(not one.is_good for one in chosen)}"
            )
        yield f"exit statuses: {dict(Counter(one.exit_status for one in self.stops))}"
        yield from (f"bad: {one}" for one in self.bad)
        yield f"{self.acknowledged} records acknowledged; wrong: {self.wrong_records or 'none'}"


def run(
    directory: Path, rounds: int, dice: random.Random, settings: Mapping[str, str] | None = None
) -> Report:
    """Builds a cluster with names, stops it `rounds` times, and returns the report."""
    hosts = [ZOOKEEPER, NAME_SERVER, *(f"broker-{one}" for one in BROKERS)]
    report = Report()
    with (
        Network(hosts) as network,
        Names(network, hosts) as names,
        Cluster(directory, settings, hosts=network, by_name=True) as cluster,
    ):
        cluster.start()
        cluster.create_topic(TOPIC, PARTITIONS, min_insync_replicas=2)
        game = _Rounds(cluster, Losses(cluster, network, names), dice, report)
        with Writer(cluster.bootstrap, TOPIC, PARTITIONS) as writer:
            for number, loss in enumerate(_drawn(rounds, dice), start=1):
                writer.wait_for(_RECORDS_BETWEEN)
                logger.info("round %d: %s", number, loss.value)
                game.play(loss)
            writer.wait_for(_RECORDS_BETWEEN)
        report.acknowledged = writer.acknowledged
        report.wrong_records = writer.judge(cluster.bootstrap)
    return report


def _drawn(rounds: int, dice: random.Random) -> Sequence[Loss]:
    """Every loss as often as the others, in random order."""
    losses = [list(Loss)[number % len(Loss)] for number in range(rounds)]
    dice.shuffle(losses)
    return losses


class _Rounds:
    def __init__(
        self, cluster: Cluster, losses: Losses, dice: random.Random, report: Report
    ) -> None:
        self._cluster = cluster
        self._losses = losses
        self._dice = dice
        self._report = report

    def play(self, loss: Loss) -> None:
        """One round, from a healthy cluster to a healthy cluster."""
        chosen = BROKERS if self._dice.random() < 2 / 3 else self._dice.sample(BROKERS, 1)
        offset_s = self._dice.uniform(_EARLIEST_S, _LATEST_S)
        taking = threading.Timer(max(offset_s, 0), self._losses.take, args=[loss])
        taking.start()
        time.sleep(max(-offset_s, 0))
        self._stop(chosen, loss, while_starting=False)
        taking.join()
        if self._dice.random() < 1 / 3:
            self._stop(chosen, loss, while_starting=True)
        self._losses.give_back()
        _at_once(self._cluster.start_broker, chosen)
        self._cluster.wait_until(self._cluster.is_in_sync, "every replica is in sync again")

    def _stop(self, chosen: Sequence[int], loss: Loss, *, while_starting: bool) -> None:
        within_s = _STARTS_WITHIN_S if while_starting else _SIGNALS_WITHIN_S
        plans = {one: SignalPlan.drawn(self._dice, first_within_s=within_s) for one in chosen}
        stops: list[Stop] = []

        def stop_one(broker_id: int) -> None:
            broker = self._cluster.brokers[broker_id]
            stops.append(
                stop(broker_id, broker, loss, plans[broker_id], while_starting=while_starting)
            )

        _at_once(stop_one, chosen)
        for one in stops:
            logger.log(logging.INFO if one.is_good else logging.ERROR, "%s", one)
        self._report.stops += stops


def _at_once(act: Callable[[int], None], broker_ids: Sequence[int]) -> None:
    threads = [threading.Thread(target=act, args=[one]) for one in broker_ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
