"""A real Apache ZooKeeper: one stand-alone server on a free port, in a directory; starts in 0.5 s.

The jars come from Maven Central through `tests/toolchain.py`: 3.9.4 from a list of its own, 3.8.4 from
those of Apache Kafka 3.9. Times are short: 200 ms a tick, sessions of 400 ms to 60 s. A server
finds a session expired at its next tick, at most 200 ms after the timeout.

Tests of one server keep apart by chroot: `server.hosts(chroot)`.
"""

from __future__ import annotations

import enum
import itertools
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from echoless.testkit.free_ports import free_port
from tests.support import apache_kafka, quick_jvm
from tests.support.server_process import ServerProcess

TICK_MS: Final = 200
_DATA: Final = "zookeeper-data"
_CACHE: Final = (Path(__file__).parents[2] / ".cache").resolve()
# The first is logged by its constructor, which `ZooKeeperServerMain` calls once the server runs; the
# second by each server of an ensemble when it has all that its leader has, and serves clients. One that
# is killed before that, while it takes the leader's snapshot, may refuse its next start for ever ("The
# current epoch, 0, is older than the last zxid").
_READY: Final = re.compile(r"ContainerManager.*Using checkIntervalMs")
_IN_ENSEMBLE: Final = re.compile(r"Peer state changed: (leading|following) - broadcast")
_LOG4J: Final = """\
log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d %p %c - %m%n
"""
_JVM: Final = (
    "-Xmx128m",
    *quick_jvm.BASE,
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    # The page cache outlives SIGKILL, and the default is 64 MiB of zeros per log file.
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.preAllocSize=64",
)


class ZooKeeperVersion(enum.Enum):
    """The servers that the tests know, each with the directory of its jars."""

    V3_9 = "3.9.4"
    V3_8 = "3.8.4"

    @property
    def jars(self) -> Path:
        if self is ZooKeeperVersion.V3_8:
            return apache_kafka.JARS
        return _CACHE / f"zookeeper-{self.value}"

    @property
    def is_there(self) -> bool:
        return (self.jars / f"zookeeper-{self.value}.jar").exists()

    @property
    def class_archive(self) -> quick_jvm.ClassArchive:
        if self is ZooKeeperVersion.V3_8:
            return apache_kafka.KafkaVersion.V3_9.class_archive
        return quick_jvm.ClassArchive(f"zookeeper-{self.value}", self.jars)


class ZooKeeper:
    """One server. `start`, `kill` and `terminate` may follow each other on the same data and port.

    `_main_class` and `_ready` differ in an ensemble.
    """

    _main_class = "org.apache.zookeeper.server.ZooKeeperServerMain"
    _ready = _READY

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        *,
        version: ZooKeeperVersion = ZooKeeperVersion.V3_9,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._version = version
        self._config = directory / "zoo.cfg"
        self._log4j = directory / "log4j.properties"
        self._chroots = (f"/test-{number}" for number in itertools.count(1))
        self.process = ServerProcess(self._ready, directory / "zookeeper.log")
        self._log4j.write_text(_LOG4J)
        lines = {**self._defaults(directory), **(settings or {})}.items()
        self._config.write_text("".join(f"{name}={value}\n" for name, value in lines))

    def hosts(self, chroot: str = "") -> str:
        """The connection string: `127.0.0.1:2181/chroot`."""
        return self.address + chroot

    def fresh_hosts(self) -> str:
        """A connection string with an unused chroot."""
        return self.hosts(next(self._chroots))

    def start(self) -> None:
        """Returns when the server accepts connections."""
        self.process.start(
            [
                "java",
                *_JVM,
                *self._version.class_archive.options(),
                f"-Dlog4j.configuration=file:{self._log4j}",
                "-cp",
                f"{self._version.jars}/*",
                self._main_class,
                str(self._config),
            ]
        )

    def kill(self) -> None:
        """Sends SIGKILL, as in a crash; acknowledged data is still there at the next start."""
        self.process.kill()

    def terminate(self) -> None:
        """Shuts it down in an orderly way."""
        self.process.terminate()

    def pause(self) -> None:
        """Sends SIGSTOP: connections stay open, nothing answers, no session expires."""
        self.process.pause()

    def resume(self) -> None:
        self.process.resume()

    def _defaults(self, directory: Path) -> dict[str, str]:
        return {
            "dataDir": str(directory / _DATA),
            "clientPort": str(self.port),
            "clientPortAddress": "127.0.0.1",
            "tickTime": str(TICK_MS),
            "minSessionTimeout": str(2 * TICK_MS),
            "maxSessionTimeout": "60000",
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
        }


class _Member(ZooKeeper):
    """One server of an ensemble."""

    _main_class = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    _ready = _IN_ENSEMBLE


class ZooKeeperEnsemble:
    """Three servers, of which any two are enough."""

    def __init__(self, directory: Path) -> None:
        ids = range(1, 4)
        settings = {f"server.{n}": f"127.0.0.1:{free_port()}:{free_port()}" for n in ids}
        # Long, because a busy machine must not make them elect again; a killed server is noticed at once.
        settings |= {"initLimit": "150", "syncLimit": "150"}
        self.members: list[ZooKeeper] = []
        for n in ids:
            data = directory / str(n) / _DATA
            data.mkdir(parents=True)
            (data / "myid").write_text(str(n))
            self.members.append(_Member(directory / str(n), settings))

    def hosts(self, chroot: str = "") -> str:
        """The connection string with all three."""
        return ",".join(member.address for member in self.members) + chroot

    def start(self) -> None:
        """Returns when all serve clients; each waits for another one to do so."""
        with ThreadPoolExecutor(len(self.members)) as threads:
            list(threads.map(lambda member: member.start(), self.members))

    def kill(self) -> None:
        """Kills all of them."""
        for member in self.members:
            member.kill()
