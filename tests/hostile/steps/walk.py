"""`python -m tests.hostile.steps.walk [--mode MODE] [--api NAME ...]`: the longest step of the loop, request by request.

`--write-docs` puts the table into docs/hostile.md, unless a step is too long.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from echoless.client.connection import BrokerConnection
from echoless.client.security import NO_SECURITY, Login, Security
from echoless.protocol.sasl.mechanism import Mechanism
from tests.hostile.steps import shapes
from tests.hostile.steps.measured_broker import STEPS_FILE, Step, read_steps
from tests.hostile.steps.shapes import Shaped
from tests.hostile.target import connect, framed, header
from tests.support.echoless import REPOSITORY, Echoless

STEP_S_MAX: Final = 0.010
"""Processor time of one step, on an undisturbed machine."""
TRIES: Final = 4
"""A request that holds the loop does so each time; what the host of a virtual machine takes comes now and then."""
_ANSWER_S: Final = 60.0
_FURNISHED: Final = 1000
"""Partitions of the topic that exists."""
_AFTER_LOG_IN: Final = "after a log-in"
_SASL: Final = {
    "listener_security_protocol_map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl_enabled_mechanisms": "SCRAM-SHA-256",
}
MODES: Final[Mapping[str, Mapping[str, str]]] = {
    "open": {},
    "stranger": {"authorizer": "acl"},
    "before a log-in": _SASL,
    _AFTER_LOG_IN: _SASL,
}
"""The settings of the broker. A stranger has no rights; before a log-in nothing but a log-in passes."""
_USER: Final = "alice"
_PASSWORD: Final = "secret of alice"
_LOGIN: Final = Security(
    login=Login(mechanism=Mechanism.SCRAM_SHA_256, user=_USER, password=_PASSWORD)
)


class Held(NamedTuple):
    """The longest step that one request caused."""

    request: Shaped
    step_s: float
    what: str

    @property
    def text(self) -> str:
        """The request, and how long it held the loop."""
        api, version, shape, body = self.request
        return f"{api.name} v{version} {shape}, {len(body)} bytes: {1000 * self.step_s:.1f} ms {self.what}"


class Walk:
    """Sends requests to a measured broker, one after the other."""

    def __init__(self, broker: Echoless, steps: Path, security: Security = NO_SECURITY) -> None:
        self._broker = broker
        self._security = security
        self._steps = steps
        first, self._position = read_steps(steps)
        self._normal_s = min(one.yardstick_s for one in first)

    def held(self, request: Shaped) -> Held:
        """The least of some tries, as far as the first is too long."""
        least = self._once(request)
        for _ in range(TRIES - 1):
            if least.step_s <= STEP_S_MAX:
                break
            least = min(least, self._once(request), key=lambda one: one.step_s)
        return least

    def _once(self, request: Shaped) -> Held:
        _, self._position = read_steps(self._steps, self._position)
        self._send(request)
        self._settle()
        steps, self._position = read_steps(self._steps, self._position)
        took = [(self._net_s(one), one.what) for one in steps]
        return Held(request, *max(took, default=(0.0, "")))

    def _net_s(self, step: Step) -> float:
        self._normal_s = min(self._normal_s, step.yardstick_s)
        return step.took_s / max(1.0, step.yardstick_s / self._normal_s)

    def _send(self, request: Shaped) -> None:
        """Sends a request on a connection of its own, and waits for its answer or the end of the connection."""
        api, version = request.api, request.version
        data = framed(header(api.key, version, flexible=api.is_flexible(version)) + request.body)
        with self._connect() as connection:
            connection.settimeout(_ANSWER_S)
            with contextlib.suppress(ConnectionError, EOFError):
                connection.sendall(data)
                _receive(connection)

    def _connect(self) -> socket.socket:
        if self._security is NO_SECURITY:
            return connect(self._broker.kafka_address)
        return _logged_in(self._broker.kafka_address, self._security).detach()

    def furnish(self) -> None:
        """Makes the topic that exists."""
        topic = {"name": shapes.TOPIC, "num_partitions": _FURNISHED, "replication_factor": 1}
        fields = {"topics": [{**topic, "assignments": (), "configs": ()}], "timeout": 30_000}
        with _logged_in(self._broker.kafka_address, self._security) as connection:
            (made,) = connection.request("create_topics", fields).topics
        assert made.error_code.value == 0, made

    def _settle(self) -> None:
        """Asks as another client, so that the step has ended in which the last request's memory was freed."""
        for _ in range(2):
            with connect(self._broker.kafka_address) as connection:
                connection.sendall(framed(header(18, 0, flexible=False)))
                _receive(connection)


def _logged_in(address: str, security: Security) -> BrokerConnection:
    host, _, port = address.rpartition(":")
    return BrokerConnection.open(host, int(port), _ANSWER_S, security)


def _receive(connection: socket.socket) -> None:
    (left,) = struct.unpack(">i", _received(connection, 4))
    while left > 0:
        left -= len(_received(connection, min(left, 1 << 20)))


def _received(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return bytes(data)


@contextlib.contextmanager
def walking(directory: Path, mode: str) -> Iterator[Walk]:
    """A walk against a new broker in one of `MODES`; it has to live to the end, and to log no traceback."""
    steps = directory / "steps.jsonl"
    os.environ[STEPS_FILE] = str(steps)
    broker = Echoless(directory, MODES[mode], module="tests.hostile.steps.measured_broker")
    if mode == _AFTER_LOG_IN:
        _add_user(directory, broker.data_dir)
    broker.start()
    try:
        walk = Walk(broker, steps, _LOGIN if mode == _AFTER_LOG_IN else NO_SECURITY)
        if mode in {"open", _AFTER_LOG_IN}:
            walk.furnish()
        yield walk
        log = broker.process.log()
        assert "Traceback" not in log, log[log.index("Traceback") :][:4000]
    finally:
        broker.kill()


def _add_user(directory: Path, data_dir: Path) -> None:
    secret = directory / "secret"
    secret.write_text(_PASSWORD)
    command = [sys.executable, "-m", "echoless", "users", "add", _USER]
    command += ["--password-file", str(secret), "--data-dir", str(data_dir)]
    subprocess.run(command, check=True, capture_output=True, cwd=REPOSITORY)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.steps.walk", description=__doc__)
    parser.add_argument("--mode", choices=list(MODES), default="open")
    parser.add_argument("--api", nargs="*", default=[])
    parser.add_argument("--newest", action="store_true", help="the newest version of each API only")
    parser.add_argument(
        "--least-ms", type=float, default=0.0, help="show steps of so long and more"
    )
    given = parser.parse_args()
    found = list(_walk(given.mode, given.api, newest=given.newest, least_s=given.least_ms / 1000))
    return int(any(one.step_s > STEP_S_MAX for one in found))


def _walk(mode: str, names: Collection[str], *, newest: bool, least_s: float) -> Iterator[Held]:
    with tempfile.TemporaryDirectory() as directory, walking(Path(directory), mode) as walk:
        for request in shapes.requests(names, newest=newest):
            held = walk.held(request)
            if held.step_s >= least_s:
                sys.stdout.write(f"{held.text}\n")
                sys.stdout.flush()
            yield held


if __name__ == "__main__":
    sys.exit(main())
