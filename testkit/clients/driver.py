"""A real client as a `Client`: its driver's process, driven by lines (README.md in this directory)."""

from __future__ import annotations

import atexit
import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from echoless.testkit.clients.client import (
    PASSWORD,
    PATIENT_REQUEST_TIMEOUT_MS,
    REQUEST_TIMEOUT_MS,
    WAIT_S,
    Deliveries,
    DeliveryReport,
    RecordKey,
)
from echoless.testkit.clients.programs import Program
from echoless.testkit.python_child import module_path

_START_TIMEOUT_S: Final = 120.0
_DELIVERY_TIMEOUT_MS: Final = 60_000
_LINGER_MS: Final = 5
_END_TIMEOUT_S: Final = 5.0


class DriverError(Exception):
    """The driver exited, or was silent when it had to speak. Carries its output."""


class Driver:
    """One process that opens and closes producers of one kind of client."""

    def __init__(self, program: Program) -> None:
        self.name = program.name
        self.batches_under_way = program.batches_under_way
        self.goes_on_behind_a_lost_answer = program.goes_on_behind_a_lost_answer
        self.deliveries = Deliveries()
        self.version = ""
        self._is_open = False
        self._events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            program.command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": module_path(),
                "KAFKAJS_NO_PARTITIONER_WARNING": "1",
            },
        )
        atexit.register(self._process.kill)
        threading.Thread(target=self._read, daemon=True).start()
        self.version = str(self._await("ready", _START_TIMEOUT_S)["version"])

    def open(
        self, bootstrap_servers: str, user: str | None = None, *, is_patient: bool = False
    ) -> None:
        """Opens a new producer. Closes the one before."""
        if self._is_open:
            self.close()
        options = {
            "bootstrap": bootstrap_servers,
            "request_timeout_ms": PATIENT_REQUEST_TIMEOUT_MS if is_patient else REQUEST_TIMEOUT_MS,
            "linger_ms": _LINGER_MS,
            "delivery_timeout_ms": _DELIVERY_TIMEOUT_MS,
        }
        if user is not None:
            options |= {"username": user, "password": PASSWORD}
        self._say("open", *(f"{name}={value}" for name, value in options.items()))
        self._await("opened", _START_TIMEOUT_S)
        self._is_open = True

    def send(self, topic: str, partition: int, numbers: Sequence[int]) -> None:
        self.deliveries.sent += [RecordKey(topic, partition, number) for number in numbers]
        self._say("send", topic, partition, numbers[0], len(numbers))

    def wait(self, timeout_s: float = WAIT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while self.deliveries.open_count:
            self._take(self._next(deadline))

    def poll(self) -> None:
        """Takes the client's output so far, without waiting."""
        while not self._events.empty():
            self._take(self._next(0.0))

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._say("close")
        self._await("closed", _START_TIMEOUT_S)
        known = {ack.place for ack in self.deliveries.acknowledged}
        known |= {place for place, _ in self.deliveries.failed}
        open_count = self.deliveries.open_count
        given_up = [place for place in self.deliveries.sent if place not in known][:open_count]
        self.deliveries.failed += [(place, "CLOSED") for place in given_up]

    def end(self) -> None:
        """Ends the process by closing its input."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(_END_TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        atexit.unregister(self._process.kill)

    def _say(self, *words: object) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(" ".join(map(str, words)) + "\n")
            self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise DriverError(f"{self.name}: {words[0]}: {error}") from error

    def _await(self, event: str, timeout_s: float) -> dict[str, Any]:
        """The next event of that kind; earlier ones are handled as usual."""
        deadline = time.monotonic() + timeout_s
        while (found := self._next(deadline))["event"] != event:
            self._take(found)
        return found

    def _next(self, deadline: float) -> dict[str, Any]:
        try:
            found = self._events.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            unknown = self.deliveries.open_count
            raise TimeoutError(f"{self.name}: no report on {unknown} records") from None
        if found is None:
            raise DriverError(f"{self.name}: its driver exited")
        return found

    def _take(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "fatal":
            self.deliveries.fatal = event["error"]
        elif kind in ("acked", "failed"):
            place = RecordKey(event["topic"], event["partition"], event["number"])
            if kind == "acked":
                self.deliveries.acknowledged.append(DeliveryReport(place, event["offset"]))
            else:
                self.deliveries.failed.append((place, event["error"]))

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.startswith("{"):
                    self._events.put(json.loads(line))
        self._events.put(None)
