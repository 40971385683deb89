"""A real Echoless broker in a separate process, started as a user starts it.

    broker = Echoless(tmp_path); broker.start(); broker.kafka_address; broker.kill(); broker.start()

The first start takes free ports; later ones take the same ports and data directory.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.server_process import ServerProcess

_READY = re.compile(
    r"^ready broker_id=(?P<broker_id>\d+) listen=(?P<listen>\S+) native=(?P<native>\S+) "
    r"admin=(?P<admin>\S+)"
)
REPOSITORY = Path(__file__).parents[2]
SOURCES = REPOSITORY / "src"
"""The directory that `echoless` is imported from."""
LOOPBACK = "127.0.0.1"


def own_module(tree: Path) -> str:
    """The module that serves; before 0.3.0 the rooms were packages themselves."""
    return "echoless.broker" if (tree / "echoless").is_dir() else "broker"


class Echoless:
    """One broker. `settings` are configuration names (`log_segment_bytes`) and their values."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        module: str | None = None,
        arguments: Sequence[str] = (),
        host: str = LOOPBACK,
        tree: Path = SOURCES,
    ) -> None:
        """`tree` is the directory that the broker is imported from, `module` one of `tests` instead of its own."""
        self.data_dir = directory / "echoless-data"
        self.kafka_address = self.native_address = self.admin_address = f"{host}:0"
        self._module = module or own_module(tree)
        self._settings = dict(settings or {})
        self._further: dict[str, str] = {}
        self._arguments = list(arguments)
        self._tree = tree
        directory.mkdir(parents=True, exist_ok=True)
        self.process = ServerProcess(_READY, directory / "echoless.log")

    def start(self) -> None:
        """Returns when the ready line was printed; the three addresses are then known."""
        ready = self.process.start(self._command(), environment={"PYTHONPATH": self._path()})
        self.kafka_address = ready["listen"]
        self.native_address = ready["native"]
        self.admin_address = ready["admin"]

    def run_from(self, tree: Path, settings: Mapping[str, str] | None = None) -> None:
        """Has later starts import the broker from `tree`, with these settings beside those of its making."""
        self._tree, self._module = tree, own_module(tree)
        self._further = dict(settings or {})

    def kill(self) -> None:
        """Sends SIGKILL, as in a crash."""
        self.process.kill()

    def terminate(self) -> int:
        """Sends SIGTERM; returns the exit status."""
        return self.process.terminate()

    def _path(self) -> str:
        is_test = self._module.startswith("tests.")
        return os.pathsep.join(map(str, [self._tree, *([REPOSITORY] if is_test else [])]))

    def _command(self) -> list[str]:
        return [
            *(sys.executable, "-P", "-m", self._module),
            *("--listen", self.kafka_address),
            *("--native-listen", self.native_address),
            *("--admin-listen", self.admin_address),
            *("--data-dir", str(self.data_dir)),
            *(
                part
                for item in {**self._settings, **self._further}.items()
                for part in ("--set", "=".join(item))
            ),
            *self._arguments,
        ]
