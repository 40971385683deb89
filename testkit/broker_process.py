"""A broker in its own process, as a user starts it: on free ports, stopped when the block ends.

    with BrokerProcess({"num_partitions": "3"}) as broker:
        broker.bootstrap_servers; broker.kill(); broker.start()

Ready after 0.3 s. The first start takes free ports; later ones take the same ports and the same
data directory. The broker ends with the process that has started it, also if that is killed. Nothing that the user configured for real brokers (ECHOLESS_...) reaches it.
"""

from __future__ import annotations

import atexit
import os
import re
import selectors
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from echoless.testkit.owned_directory import OwnedDirectory
from echoless.testkit.python_child import module_command, module_path

if TYPE_CHECKING:
    from echoless.testkit.security import BrokerSecurity

_READY: Final = re.compile(
    rb"ready broker_id=\d+ listen=(?P<listen>\S+) native=(?P<native>\S+) admin=(?P<admin>\S+)"
)
ANY_PORT: Final = "127.0.0.1:0"
_START_TIMEOUT_S: Final = 60
_STOP_TIMEOUT_S: Final = 30
"""A stop takes up to 5 s, and longer on a slow disk, which has to close the logs."""
_LOG_LINES_SHOWN: Final = 20
_LOG_BYTES_MAX: Final = 256 * 1024


class BrokerStartError(Exception):
    """The broker exited, or stayed silent, before its ready line. Carries the end of its log."""


class BrokerProcess:
    """A broker in a process of its own, for one thread, which starts, stops and kills it.

    `with` starts it and stops it.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        data_dir: Path | None = None,
        faults_file: Path | None = None,
        arguments: Sequence[str] = (),
        addresses: tuple[str, str, str] = (ANY_PORT, ANY_PORT, ANY_PORT),
        security: str = "",
    ) -> None:
        """Without `data_dir` the data is in a temporary directory, deleted with the block.

        `settings` are configuration names and values; `addresses` are those to listen on, for the
        Kafka protocol, the native one and HTTP. Any of them may be subject to fault rules.

        `security`: SSL, SASL_PLAINTEXT or SASL_SSL, with the user alice. `client_options` is then what a client
        needs, and `open_servers` a second listener that lets everyone in.
        """
        self.bootstrap_servers, self.native = addresses[:2]
        """`host:port` of the ports for the Kafka protocol and for msgpack; the real ones are known after the start."""
        self._admin = addresses[2]
        self.open_servers = ANY_PORT if security else ""
        """With security: `host:port` of a second listener, which lets everyone in."""
        self._settings = {"allow_faults": "true", **(settings or {})}
        self.may_have_rules = bool(
            faults_file or arguments or "faults" in self._settings or self._admin != ANY_PORT
        )
        """Whether anyone can have set a fault rule: at the start, or by the port for HTTP, whose address is known."""
        self._arguments = list(arguments)
        if faults_file is not None:
            self._arguments += ["--faults", str(faults_file)]
        self._directory = OwnedDirectory()
        self.data_dir = data_dir or self._directory.path / "data"
        """The directory with its data, which later starts find again."""
        self.log_path = self._directory.path / "log"
        self._security: BrokerSecurity | None = None
        if security:
            from echoless.testkit.security import BrokerSecurity

            self._security = BrokerSecurity(security, self._directory.path)
            own = {"super_users": "User:ANONYMOUS"} if "authorizer" in self._settings else {}
            self._settings = {**own, **self._security.settings(), **self._settings}
        self._process: subprocess.Popen[bytes] | None = None
        self._is_starting = False
        """Whether its process has begun to start, and nobody has waited for it."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:  # also an interrupt while it starts
            self.kill()
            self._directory.cleanup()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            self._directory.cleanup()

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Returns when the broker accepts requests. Raises `BrokerStartError`."""
        assert not self.is_running or self._is_starting, "already running"
        if not self._is_starting:
            self.begin_start()
        self._is_starting = False
        self._await_ready()

    def begin_start(self) -> None:
        """Starts the process, and does not wait until it accepts requests: `start` does."""
        assert not self.is_running, "already running"
        self._is_starting = True
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.PIPE,  # ends with this process, however it goes, and the broker with it
                stdout=subprocess.PIPE,
                stderr=log,
                env={**_environment(), "PYTHONPATH": module_path()},
                pass_fds=[self._directory.lock],  # not to be removed before the broker has ended
            )
        atexit.register(self._process.kill)

    def _await_ready(self) -> None:
        ready = _READY.match(self._first_line())
        if ready is None:
            self.kill()
            raise BrokerStartError(f"the broker did not start:\n{self.log_tail()}")
        self.bootstrap_servers, self.native, self._admin = (
            ready[name].decode() for name in ("listen", "native", "admin")
        )
        if self._security is not None:
            self.bootstrap_servers, _, self.open_servers = self.bootstrap_servers.partition(",")
            if self._security.needs_user:
                self.add_user()

    @property
    def admin(self) -> str:
        """`host:port` of the port for HTTP; the real one after the start."""
        self.may_have_rules = True
        return self._admin

    @property
    def client_options(self) -> dict[str, str]:
        """Options of a client that is let in, by librdkafka's names."""
        options = {"bootstrap.servers": self.bootstrap_servers}
        return options | (self._security.client_options() if self._security is not None else {})

    def add_user(self, name: str = "alice", password: str | None = None) -> dict[str, str]:
        """Adds a user, or gives it another password; returns its options once it can log in."""
        security = self._secured()
        security.add_user(name, password, self.bootstrap_servers, self.open_servers)
        return {**self.client_options, **security.client_options(name)}

    def allow(self, user: str, *operations: str, topic: str | None = None) -> None:
        """Allows the user operations (`write`) on a topic, or else on the cluster; needs `authorizer=acl`."""
        from echoless.testkit.security import allow

        self._secured()
        allow(self.open_servers, user, *operations, topic=topic)

    def _secured(self) -> BrokerSecurity:
        if self._security is None:
            raise ValueError("start the broker with security, such as SASL_SSL")
        return self._security

    def stop(self) -> int:
        """Sends SIGTERM, then SIGKILL if that is not enough; returns the exit status."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL, as in a crash: data handed to the operating system survives."""
        self._end(signal.SIGKILL)

    def wait_for_end(self, timeout_s: float = 30.0) -> int:
        """Waits until the process exits by itself (a fault may crash it); returns its exit status."""
        assert self._process is not None, "not running"
        self._process.wait(timeout_s)
        return self._end(signal.SIGKILL)

    def log_tail(self) -> str:
        """The last lines of its log, over all starts."""
        return "\n".join(self.log_text().splitlines()[-_LOG_LINES_SHOWN:])

    def log_text(self) -> str:
        """The end of its log, over all starts: 256 KiB at most."""
        if not self.log_path.exists():
            return ""
        with self.log_path.open("rb") as log:
            log.seek(max(0, self.log_path.stat().st_size - _LOG_BYTES_MAX))
            return log.read().decode(errors="replace")

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings that it was started with."""
        return self._settings

    def _first_line(self) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:  # select() takes no descriptor above 1023
            selector.register(self._process.stdout, selectors.EVENT_READ)
            readable = selector.select(_START_TIMEOUT_S)
        return self._process.stdout.readline() if readable else b""

    def _end(self, number: signal.Signals) -> int:
        process, self._process, self._is_starting = self._process, None, False
        if process is None:
            return 0
        process.send_signal(number)
        try:
            return process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()
        finally:
            atexit.unregister(process.kill)
            assert process.stdout is not None
            process.stdout.close()
            assert process.stdin is not None
            process.stdin.close()

    def _command(self) -> list[str]:
        listen = ",".join(filter(None, (self.bootstrap_servers, self.open_servers)))
        return [
            *(*module_command("echoless.broker"), "--listen", listen),
            *("--native-listen", self.native, "--admin-listen", self._admin),
            *("--data-dir", str(self.data_dir)),
            *("--set", "stop_with_input=true"),
            *(part for item in self._settings.items() for part in ("--set", "=".join(item))),
            *self._arguments,
        ]


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("ECHOLESS_")}
