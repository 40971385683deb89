"""Podman, as this machine can run it: its command line, and a single container."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

REPOSITORY: Final = Path(__file__).parents[1]
CACHE: Final = REPOSITORY / ".cache" / "containers"
COMPOSE: Final = REPOSITORY / ".cache" / "podman-compose" / "bin" / "podman-compose"

TIMEOUT_S: Final = 900
_OWN_CONFIGURATION: Final = CACHE / "containers.conf"
_LOW_LIMITS: Final = """\
[engine]
runtime = "runc"
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
"""


class PodmanError(Exception):
    """A command failed; the message holds it and the end of its output."""


def podman(*arguments: str, stdin: bytes | None = None) -> str:
    """Runs podman, and returns its output. Raises `PodmanError`."""
    return run(["podman", *arguments], stdin=stdin)


def compose(*arguments: str) -> str:
    """Runs podman-compose in the repository. Raises `PodmanError`."""
    return run([str(COMPOSE), *arguments])


def run(command: list[str], *, stdin: bytes | None = None) -> str:
    """Runs any command in podman's environment. Raises `PodmanError`."""
    try:
        done = subprocess.run(
            command,
            check=True,
            capture_output=True,
            input=stdin,
            env=environment(),
            cwd=REPOSITORY,
            timeout=TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PodmanError(f"{' '.join(command)} failed: {error}") from error
    except subprocess.CalledProcessError as error:
        said = (error.stdout + error.stderr).decode(errors="replace").strip().splitlines()
        raise PodmanError("\n".join([f"{' '.join(command)} failed:", *said[-20:]])) from error
    return done.stdout.decode(errors="replace").strip()


def environment() -> Mapping[str, str]:
    """Podman's environment.

    Without systemd there are no health-check timers: the tests run the checks.
    """
    changed = {}
    if not Path("/run/systemd/system").exists():
        changed["DISABLE_HC_SYSTEMD"] = "true"
    if _OWN_CONFIGURATION.exists():
        changed["CONTAINERS_CONF"] = str(_OWN_CONFIGURATION)
    return {**os.environ, **changed}


def fit_to_this_machine(image: str) -> None:
    """Tries a container; if the default limits are not allowed, sets lower ones for all."""
    try:
        podman("run", "--rm", image, "true")
    except PodmanError:
        CACHE.mkdir(parents=True, exist_ok=True)
        _OWN_CONFIGURATION.write_text(_LOW_LIMITS)
        podman("run", "--rm", image, "true")


class Container:
    """One container, by name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def start(self) -> None:
        podman("start", self.name)

    def stop(self) -> None:
        """Sends SIGTERM, and SIGKILL after ten seconds."""
        podman("stop", "--time", "10", self.name)

    def kill(self) -> None:
        """Sends SIGKILL, as in a crash."""
        podman("kill", "--signal", "KILL", self.name)
        podman("wait", self.name)

    def pause(self) -> None:
        podman("pause", self.name)

    def unpause(self) -> None:
        podman("unpause", self.name)

    def remove(self) -> None:
        """Removes it with its anonymous volumes, running or not, if it exists."""
        podman("rm", "--force", "--volumes", "--ignore", self.name)

    def exec(self, *command: str) -> str:
        return podman("exec", self.name, *command)

    def signal_process(self, name: str) -> None:
        """Sends a signal to the broker's process itself.

        From outside: a command inside the container dies with it, before or after it has succeeded.
        """
        os.kill(self.process_id, signal.Signals[f"SIG{name}"])

    @property
    def process_id(self) -> int:
        """This machine's number of the broker's process; the container's process 1 is tini."""
        tini = self.state["Pid"]
        (broker,) = Path(f"/proc/{tini}/task/{tini}/children").read_text().split()
        return int(broker)

    def log(self) -> str:
        """The broker's output, both streams."""
        command = ["podman", "logs", self.name]
        done = subprocess.run(command, capture_output=True, env=environment(), check=True)
        return (done.stdout + done.stderr).decode(errors="replace")

    @property
    def state(self) -> Mapping[str, Any]:
        """Podman's `State`: `Status`, `ExitCode`, ..."""
        return self._inspected["State"]

    @property
    def restarts(self) -> int:
        """How often the restart policy has started it."""
        return int(self._inspected["RestartCount"])

    def is_paused(self) -> bool:
        """Whether it is paused; also False if there is no such container."""
        arguments = ("--format", "{{.Names}}", "--filter", "status=paused")
        return self.name in podman("ps", "--all", *arguments).split()

    def is_healthy(self) -> bool:
        """The current result of the image's health check."""
        try:
            podman("healthcheck", "run", self.name)
        except PodmanError:
            return False
        return True

    def port(self, inside: int) -> str:
        """`host:port` on this machine that leads to the container's port."""
        return podman("port", self.name, f"{inside}/tcp").splitlines()[0]

    @property
    def _inspected(self) -> Mapping[str, Any]:
        found: list[dict[str, Any]] = json.loads(podman("container", "inspect", self.name))
        return found[0]


@functools.cache
def image_size(image: str) -> int:
    """Size on disk of all layers, in bytes."""
    return int(podman("image", "inspect", "--format", "{{.Size}}", image))
