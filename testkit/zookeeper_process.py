"""A separate ZooKeeper server, from the jars that PySpark includes; ready after a second.

with ZooKeeperProcess() as zookeeper: zookeeper.address
"""

from __future__ import annotations

import atexit
import importlib.util
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final, Self

from echoless.testkit.free_ports import free_address

_JARS: Final = (
    *("zookeeper-", "slf4j-api-", "metrics-core-", "snappy-java-", "netty-", "log4j-"),
    *("jackson-", "commons-"),
)
"""The jars the server needs, of the hundreds in PySpark: a short class path starts sooner."""
_JVM: Final = (
    *("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.preAllocSize=64",
)
_MAIN: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"
_TICK_MS: Final = 200
_START_TIMEOUT_S: Final = 60.0
_ASK_AGAIN_S: Final = 0.02


class ZooKeeperError(Exception):
    """No ZooKeeper can be started; the message says what is missing."""


class ZooKeeperProcess:
    """One server with its data in a temporary directory."""

    def __init__(self) -> None:
        self.address = free_address()
        self._directory = tempfile.TemporaryDirectory(prefix="echoless-zookeeper-")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            atexit.unregister(self._process.kill)
        self._directory.cleanup()

    def _start(self) -> None:
        config = Path(self._directory.name) / "zoo.cfg"
        settings = {
            "dataDir": f"{self._directory.name}/data",
            "clientPort": self.address.rpartition(":")[2],
            "clientPortAddress": "127.0.0.1",
            "tickTime": _TICK_MS,
            "minSessionTimeout": 2 * _TICK_MS,
            "maxSessionTimeout": 60_000,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "ruok",
        }
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        command = ["java", *_JVM, "-cp", _class_path(), _MAIN, str(config)]
        with (Path(self._directory.name) / "log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        atexit.register(self._process.kill)
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (Path(self._directory.name) / "log").read_text(errors="replace")
                raise ZooKeeperError(f"ZooKeeper did not start: {said[-1000:]}")
            time.sleep(_ASK_AGAIN_S)

    def _is_ready(self) -> bool:
        host, _, port = self.address.rpartition(":")
        try:
            with socket.create_connection((host, int(port)), 1) as sock:
                sock.sendall(b"ruok")
                return sock.recv(4) == b"imok"
        except OSError:
            return False


def has_jars() -> bool:
    """Whether PySpark is installed, and includes ZooKeeper."""
    return any(jar.name.startswith("zookeeper-") for jar in _jars())


def _class_path() -> str:
    if shutil.which("java") is None:
        raise ZooKeeperError("a cluster needs ZooKeeper, and that needs `java`")
    if not has_jars():
        raise ZooKeeperError("ZooKeeper's jars come with PySpark: pip install 'echoless[spark]'")
    return ":".join(str(jar) for jar in _jars() if jar.name.startswith(_JARS))


def _jars() -> list[Path]:
    spark = importlib.util.find_spec("pyspark")
    if spark is None or spark.origin is None:
        return []
    return sorted((Path(spark.origin).parent / "jars").glob("*.jar"))
