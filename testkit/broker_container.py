"""A broker in a container, by Docker or podman, with the interface of one in a process.

    from echoless.testing import container

    with container("echoless") as echoless:
        echoless.bootstrap_servers; echoless.faults; echoless.broker.kill()

Its ports are published to this machine only, and its advertised address is what clients on it need.
"""

from __future__ import annotations

import functools
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from echoless.testkit.admin import Admin, AdminError
from echoless.testkit.broker_process import BrokerProcess, BrokerStartError
from echoless.testkit.echoless import Echoless
from echoless.testkit.free_ports import free_address

if TYPE_CHECKING:
    from typing import Self

IMAGE: Final = "echoless"
_INSIDE: Final = (9092, 9093, 8080)
"""The ports of the image: Kafka, native and HTTP."""
_START_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 10
_COMMAND_TIMEOUT_S: Final = 600
"""Limit on one command of the engine, which may download the image."""
_LOOK_EVERY_S: Final = 0.05


class BrokerContainer(BrokerProcess):
    """A broker in a container of its own, for one thread. `with` starts it, and removes it with its data."""

    def __init__(
        self,
        image: str = IMAGE,
        settings: Mapping[str, str] | None = None,
        *,
        engine: str | None = None,
    ) -> None:
        """`settings` are configuration names and values. `engine`: `docker` or `podman`; None: the one that answers.

        Raises `BrokerStartError` if none does.
        """
        super().__init__(settings)
        self._image = image
        self._engine = engine or _engine()
        self._name = f"echoless-{uuid.uuid4().hex[:12]}"
        self._is_made = False

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()
        self._directory.cleanup()

    @property
    def is_running(self) -> bool:
        """Whether the container runs."""
        return self._is_made and self._inspect("{{.State.Running}}") == "true"

    def begin_start(self) -> None:
        """Starts the container, and does not wait until the broker is ready: `start` does. Raises `BrokerStartError`."""
        if self._is_made:
            self._run("start", self._name)
        else:
            self._make()

    def start(self) -> None:
        """Returns when the broker is ready: again on the same ports, with its data. Raises `BrokerStartError`."""
        if not self.is_running:
            self.begin_start()
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._is_ready():
            if not self.is_running or time.monotonic() > deadline:
                raise BrokerStartError(f"the broker did not start:\n{self.log_tail()}")
            time.sleep(_LOOK_EVERY_S)

    def wait_for_end(self, timeout_s: float = 30.0) -> int:
        """Waits until the broker exits by itself (a fault may crash it); returns its exit status."""
        deadline = time.monotonic() + timeout_s
        while self.is_running:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired([self._engine, "wait", self._name], timeout_s)
            time.sleep(_LOOK_EVERY_S)
        return self._exit_status()

    def log_text(self) -> str:
        """Its log, over all starts."""
        if not self._is_made:
            return ""
        done = subprocess.run(
            [self._engine, "logs", self._name], capture_output=True, check=False, text=True
        )
        return done.stdout + done.stderr

    def _make(self) -> None:
        places = [free_address() for _ in _INSIDE]
        published = [f"{place}:{port}" for place, port in zip(places, _INSIDE, strict=True)]
        settings = {"advertise": places[0], **self._settings}
        environment = [f"ECHOLESS_{name.upper()}={value}" for name, value in settings.items()]
        self._is_made = True  # even if it cannot be started
        self._run(
            *("run", "--detach", "--name", self._name),
            *(part for one in published for part in ("--publish", one)),
            *(part for one in environment for part in ("--env", one)),
            *(self._image, "serve"),
        )
        self.bootstrap_servers, self.native, self._admin = places

    def _is_ready(self) -> bool:
        try:
            Admin(self.admin, timeout_s=1.0).get("/ready")
        except AdminError:
            return False
        return True

    def _end(self, number: signal.Signals) -> int:
        if not self.is_running:
            return self._exit_status() if self._is_made else 0
        if number is signal.SIGTERM:
            self._run("stop", "--time", str(_STOP_TIMEOUT_S), self._name)
        else:
            self._run("kill", "--signal", number.name.removeprefix("SIG"), self._name)
            self._run("wait", self._name)
        return self._exit_status()

    def _exit_status(self) -> int:
        return int(self._inspect("{{.State.ExitCode}}"))

    def _inspect(self, form: str) -> str:
        return self._run("inspect", "--format", form, self._name)

    def _remove(self) -> None:
        if self._is_made:
            self._is_made = False
            self._run("rm", "--force", "--volumes", self._name)

    def _run(self, *arguments: str) -> str:
        command = [self._engine, *arguments]
        try:
            done = subprocess.run(
                command, capture_output=True, check=True, text=True, timeout=_COMMAND_TIMEOUT_S
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BrokerStartError(f"{' '.join(command)}: {error}") from error
        except subprocess.CalledProcessError as error:
            said = error.stderr.strip() or error.stdout.strip()
            raise BrokerStartError(f"{' '.join(command)}: {said}") from error
        return done.stdout.strip()


@contextmanager
def container(
    image: str = IMAGE, settings: Mapping[str, str] | None = None, *, engine: str | None = None
) -> Iterator[Echoless]:
    """Yields an `Echoless` whose broker runs in a container of this image, removed with its data at the end.

    `settings` are names and values of `docs/configuration.md`. `engine`: `docker` or `podman`; None: the one that
    answers. Raises `BrokerStartError`.
    """
    with Echoless(broker=BrokerContainer(image, settings, engine=engine)) as echoless:
        yield echoless


@functools.cache
def _engine() -> str:
    """The engine of this machine. Raises `BrokerStartError`."""
    for engine in ("docker", "podman"):
        if shutil.which(engine) is not None:
            asked = [engine, "version", "--format", "{{.Client.Version}}"]
            if engine == "docker":
                asked[-1] = "{{.Server.Version}}"
            if subprocess.run(asked, capture_output=True, check=False).returncode == 0:
                return engine
    raise BrokerStartError("no container engine answers: install Docker or podman, and start it")
