"""Executes the steps of a plan on a cluster, and repairs everything afterwards."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterable
from typing import Final

from tests.nemesis.network import CLIENTS, Network
from tests.nemesis.plan import Kind, Step
from tests.nemesis.small_disk import SmallDisk
from tests.support.cluster import ZOOKEEPER, Cluster
from tests.support.server_process import ServerStartError

logger = logging.getLogger(__name__)

CUTS: Final = (Kind.CUT_BROKERS, Kind.CUT_ZOOKEEPER, Kind.ISOLATE)
_START_TRIES: Final = 2


class Faults:
    """Inflicts one step at a time. Unexpected failures are collected in `problems`."""

    def __init__(self, cluster: Cluster, network: Network | None, disk: SmallDisk | None) -> None:
        self.counts: Counter[Kind] = Counter()
        self.problems: list[str] = []
        self.longest_stop_s = 0.0
        """Time from SIGTERM to the exit."""
        self._cluster = cluster
        self._network = network
        self._disk = disk
        self._down: set[int] = set()
        """Brokers that the nemesis itself has ended."""
        self._paused: set[int] = set()

    def run(self, plan: Iterable[Step], stopping: threading.Event) -> None:
        """Executes step after step until `stopping`; then nothing is broken any more."""
        for step in plan:
            if stopping.wait(step.quiet_s):
                return
            steps = [step] if step.second is None else [step, step.second]
            for one in steps:
                logger.info("%s: broker %d, %.1f s", one.kind, one.broker_id, step.lasts_s)
                self._inflict(one)
            stopping.wait(step.lasts_s)
            self._note_ended([one.broker_id for one in steps if one.kind is Kind.FULL_DISK])
            self._mend(steps)
            logger.info("mended")

    def _inflict(self, step: Step) -> None:
        self.counts[step.kind] += 1
        match step.kind:
            case Kind.KILL:
                self._end(step.broker_id)
            case Kind.KILL_ALL:
                for broker_id in self._cluster.brokers:
                    self._end(broker_id)
            case Kind.CLEAN_RESTART:
                self._stop(step.broker_id)
            case Kind.PAUSE | Kind.EXPIRE:
                self._cluster.pause(step.broker_id)
                self._paused.add(step.broker_id)
            case Kind.ZOOKEEPER_RESTART:
                self._cluster.zookeeper.kill()
            case Kind.ZOOKEEPER_PAUSE:
                self._cluster.zookeeper.pause()
            case Kind.FULL_DISK:
                assert self._disk is not None
                self._disk.fill()
            case _:
                self._cut(step)

    def _cut(self, step: Step) -> None:
        assert self._network is not None
        receiver = f"broker-{step.broker_id}"
        senders = {
            Kind.CUT_BROKERS: [f"broker-{step.other_id}"],
            Kind.CUT_ZOOKEEPER: [ZOOKEEPER],
            Kind.ISOLATE: [
                *(f"broker-{one}" for one in self._cluster.brokers if one != step.broker_id),
                *(ZOOKEEPER, CLIENTS),
            ],
        }[step.kind]
        for sender in senders:
            self._network.cut(sender, receiver)
            if not step.is_one_way:
                self._network.cut(receiver, sender)

    def _mend(self, steps: Iterable[Step]) -> None:
        kinds = {step.kind for step in steps}
        if self._network is not None and kinds & set(CUTS):
            self._network.heal()
        if Kind.ZOOKEEPER_RESTART in kinds:
            self._cluster.zookeeper.start()
        if Kind.ZOOKEEPER_PAUSE in kinds:
            self._cluster.zookeeper.resume()
        for broker_id in sorted(self._paused):
            self._cluster.resume(broker_id)
        self._paused.clear()
        if Kind.FULL_DISK in kinds:
            self._replace_disk(next(s.broker_id for s in steps if s.kind is Kind.FULL_DISK))
        self._start_all()

    def _replace_disk(self, broker_id: int) -> None:
        """Restarts a broker whose disk was full: like Kafka's, it accepts the disk again only then."""
        assert self._disk is not None
        self._disk.make_room()
        self._end(broker_id)

    def _end(self, broker_id: int) -> None:
        self._cluster.kill(broker_id)
        self._down.add(broker_id)

    def _stop(self, broker_id: int) -> None:
        began = time.monotonic()
        status = self._cluster.stop(broker_id)
        took_s = time.monotonic() - began
        self.longest_stop_s = max(self.longest_stop_s, took_s)
        logger.info("broker %d left after %.1f s", broker_id, took_s)
        self._down.add(broker_id)
        if status != 0:
            self.problems.append(f"broker {broker_id} ended a clean stop with status {status}")

    def _note_ended(self, may_end: list[int]) -> None:
        """Reports a broker that ended without the nemesis, unless it had no disk."""
        for broker_id, broker in self._cluster.brokers.items():
            if broker_id in self._down or broker.process.is_running:
                continue
            status = broker.process.exit_status
            self._end(broker_id)
            if broker_id not in may_end:
                self.problems.append(f"broker {broker_id} ended by itself with status {status}")

    def _start_all(self) -> None:
        starting = [threading.Thread(target=self._start, args=[one]) for one in sorted(self._down)]
        for thread in starting:
            thread.start()
        for thread in starting:
            thread.join()
        self._down.clear()

    def _start(self, broker_id: int) -> None:
        for _ in range(_START_TRIES):
            try:
                self._cluster.start_broker(broker_id)
            except ServerStartError as error:
                logger.exception("broker %d", broker_id)
                self.problems.append(f"broker {broker_id} did not start: {error}"[:2000])
            else:
                return
