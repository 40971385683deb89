"""One client that writes to its own topic, record by record, until it is stopped."""

from __future__ import annotations

import random
import threading
from typing import Final

from echoless.testkit.clients.client import Deliveries
from echoless.testkit.clients.driver import Driver, DriverError
from echoless.testkit.clients.programs import Program
from tests.proofs.judge import first_number
from tests.soak.limits import STUCK_AFTER_A_FAILURE

PARTITIONS: Final = 2
_RECORDS_A_SEND: Final = (5, 40)
_OPEN_MAX: Final = 400
_POLL_S: Final = 0.02
_PAUSE_S: Final = (0.02, 0.1)
_LAST_ANSWERS_S: Final = 60.0


class Traffic:
    """A thread with one driver. After a fatal error it continues with a new producer."""

    def __init__(self, program: Program, producer: int, seed: int) -> None:
        self.name = self.topic = program.name
        self.producer = producer
        """Its number for the judge, the first part of its records' numbers."""
        self.fatal_errors: list[str] = []
        self.problems: list[str] = []
        self._dice = random.Random(f"{seed} {program.name}")
        self._driver = Driver(program)
        self._next = first_number(producer)
        self._stopping = threading.Event()
        self._failed = 0
        """Records that had failed at the last look."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._bootstrap_servers = ""

    def start(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._thread.start()

    def begin_stop(self) -> None:
        """Sends nothing new; waits for what is in flight."""
        self._stopping.set()

    def join(self) -> None:
        self._thread.join()
        self._driver.end()

    @property
    def deliveries(self) -> Deliveries:
        return self._driver.deliveries

    @property
    def sent(self) -> int:
        """Records handed over; their numbers are consecutive."""
        return self._next - first_number(self.producer)

    def given_up(self) -> dict[str, int]:
        """By error, including those that ended with their producer."""
        return self.deliveries.failures

    def acknowledgements(self, partition: int) -> list[tuple[int, int]]:
        """(offset, number) in order of arrival."""
        return [
            (ack.offset, ack.place.number)
            for ack in self.deliveries.acknowledged
            if ack.place.partition == partition
        ]

    def _run(self) -> None:
        try:
            self._driver.open(self._bootstrap_servers)
            while not self._stopping.is_set():
                self._send()
                self._stopping.wait(self._dice.uniform(*_PAUSE_S))
                self._catch_up()
            self._driver.wait(_LAST_ANSWERS_S)
            self._driver.close()
        except (DriverError, TimeoutError) as error:
            self.problems.append(f"{self.name}: {error}")

    def _send(self) -> None:
        count = self._dice.randrange(*_RECORDS_A_SEND)
        numbers = range(self._next, self._next + count)
        self._next += count
        self._driver.send(self.topic, self._dice.randrange(PARTITIONS), numbers)

    def _catch_up(self) -> None:
        """Limits the lead over the answers; one send at a time if the client can do no more."""
        most = 0 if self._driver.batches_under_way == 1 else _OPEN_MAX
        self._driver.poll()
        while self.deliveries.open_count > most and not self.deliveries.fatal:
            self._stopping.wait(_POLL_S)
            self._driver.poll()
            if self._stopping.is_set():
                return
        if self.deliveries.fatal:
            self.fatal_errors.append(self.deliveries.fatal)
            self.deliveries.fatal = None
            self._driver.open(self._bootstrap_servers)
        elif self.name in STUCK_AFTER_A_FAILURE and len(self.deliveries.failed) > self._failed:
            self._driver.open(self._bootstrap_servers)
        self._failed = len(self.deliveries.failed)
