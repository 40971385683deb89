"""`docs/secured-broker.md` works as it is written: its files, commands and programs, in their order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from echoless.testkit.free_ports import free_port
from tests.support.echoless import REPOSITORY, SOURCES
from tests.support.server_process import ServerProcess
from tests.toolchain import require

PAGE = REPOSITORY / "docs" / "secured-broker.md"
_READY = re.compile(r"^ready broker_id=(?P<id>\d+)")
_SPARK = "from echoless.spark import"
_TIMEOUT_S = 300


class Block(NamedTuple):
    """A fenced block of the page."""

    language: str
    text: str


def blocks(port: int) -> list[Block]:
    """The page's blocks, with a free port in the place of the usual one."""
    text = PAGE.read_text(encoding="utf-8").replace("127.0.0.1:9092", f"127.0.0.1:{port}")
    return [Block(*found) for found in re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL)]


class Walk:
    """One reader of the page, in a directory."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.printed = ""
        self._environment = {
            **{name: value for name, value in os.environ.items() if "ECHOLESS" not in name},
            "PATH": f"{directory}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(SOURCES),
            "ECHOLESS_BOOTSTRAP_SERVER": f"127.0.0.1:{port}",
        }
        self._servers: list[ServerProcess] = []
        command = directory / "echoless"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m echoless "$@"\n')
        command.chmod(0o755)

    def take(self, block: Block) -> None:
        """Does what the page says."""
        if block.language in {"toml", "properties"}:
            name, _, text = block.text.removeprefix("# ").partition("\n")
            (self.directory / name).write_text(text)
        elif block.text.startswith("echoless serve"):
            self._serve(block.text.split()[2:])
        elif block.language == "bash":
            self._run(["bash", "-euc", block.text])
            exported = re.search(r"^export (\w+)=(\S+)", block.text, re.MULTILINE)
            self._environment |= {exported[1]: exported[2]} if exported else {}
        else:
            self._run([sys.executable, "-c", block.text])

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(
            command,
            cwd=self.directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        self.printed += done.stdout + done.stderr
        assert done.returncode == 0, f"{command[-1]}\n{done.stdout}{done.stderr}"

    def _serve(self, arguments: list[str]) -> None:
        server = ServerProcess(_READY, self.directory / "broker.log")
        self._servers.append(server)
        command = [sys.executable, "-m", "echoless.broker", *arguments]
        ports = ["--native-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]
        server.start([*command, *ports], environment={"PYTHONPATH": str(SOURCES)})

    def close(self) -> None:
        for server in self._servers:
            server.kill()


@contextmanager
def walking(directory: Path, port: int) -> Iterator[Walk]:
    walk = Walk(directory, port)
    try:
        yield walk
    finally:
        walk.close()


@pytest.mark.parametrize(
    "has_spark",
    [pytest.param(False, marks=pytest.mark.slow), pytest.param(True, marks=pytest.mark.spark)],
)
def test_the_page_can_be_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_spark: bool
) -> None:
    """To its end; every record is there, and what alice may not do is refused."""
    if has_spark:
        require("java")
    monkeypatch.chdir(tmp_path)  # which the broker's own paths are relative to
    port = free_port()
    with walking(tmp_path, port) as walk:
        for block in blocks(port):
            if has_spark or _SPARK not in block.text:
                walk.take(block)
        records = "6" if has_spark else "3"
        assert re.search(rf"\b0\b.*\b{records}\s", walk.printed.split("in sync")[-1]), walk.printed
        assert "TOPIC_AUTHORIZATION_FAILED" in walk.printed
        assert "refused, as it should be" in walk.printed
        for secret in ("admin's password", "alice's password"):
            assert secret not in walk.printed
            assert secret not in (tmp_path / "broker.log").read_text()
