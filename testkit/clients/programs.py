"""The real clients by name: how the driver of each is started, and what it requires."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Final

from echoless.testkit.clients import build
from echoless.testkit.clients.build import Build, BuildError
from echoless.testkit.python_child import module_command

JAVA_VERSIONS: Final = {"java-3": "3.9.1", "java-4": "4.4.0"}
_JVM: Final = (
    *("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
)
_PIPELINED: Final = 5
_NEXT_ONLY: Final = 2
"""librdkafka 2.16 allows five, but was seen to send no third one while the first is unanswered."""
_ONE_BY_ONE: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One real client."""

    name: str
    client: str
    """The name its makers use."""
    batches_under_way: int
    """Number of batches of a partition that it sends before the first is answered."""
    goes_on_behind_a_lost_answer: bool = False
    """See `Client`."""
    build: Build | None = None
    module: str = ""
    """A Python module that must be installed, instead of a build."""

    def command(self) -> list[str]:
        """The driver's command, built if need be. Raises `BuildError` if that is impossible."""
        return self._command("driver", "Driver")

    def transactions_command(self, servers: str) -> list[str]:
        """The command of its transactional producer, as `command`."""
        return [*self._command("transactions", "Transactions"), servers]

    def _command(self, name: str, java_class: str) -> list[str]:
        if self.module:
            if importlib.util.find_spec(self.module) is None:
                raise BuildError(f"{self.name}: the Python module {self.module} is not installed")
            return module_command(f"echoless.testkit.clients.{self.name}_{name}")
        assert self.build is not None
        if not self.build.is_there:
            self.build.make()
        return _built_command(self.build, name, java_class)


def _built_command(built: Build, name: str, java_class: str) -> list[str]:
    place = built.directory
    if built.language == "java":
        return ["java", *_JVM, "-cp", f"{place}/*", f"echoless.{java_class}"]
    if "npm" in built.tools:
        [script] = place.glob(f"{name}.*js")
        return ["node", str(script)]
    return [str(place / "driver")]


PROGRAMS: Final = {
    program.name: program
    for program in (
        Program(
            name="librdkafka",
            client="librdkafka (confluent-kafka)",
            batches_under_way=_NEXT_ONLY,
            module="confluent_kafka",
        ),
        *(
            Program(
                name=name,
                client=f"kafka-clients {version} (Java)",
                batches_under_way=_PIPELINED,
                build=build.java(version),
            )
            for name, version in JAVA_VERSIONS.items()
        ),
        Program(name="franz-go", client="franz-go", batches_under_way=_PIPELINED, build=build.GO),
        Program(
            # Two concurrent sends would get the same sequences: it counts acknowledged ones.
            name="kafkajs",
            client="kafkajs",
            batches_under_way=_ONE_BY_ONE,
            goes_on_behind_a_lost_answer=True,
            build=build.NODE,
        ),
        Program(
            name="aiokafka", client="aiokafka", batches_under_way=_ONE_BY_ONE, module="aiokafka"
        ),
    )
}
FURTHER: Final = {
    program.name: program
    for program in (
        Program(name="sarama", client="sarama", batches_under_way=_ONE_BY_ONE, build=build.SARAMA),
        Program(
            name="platformatic",
            client="@platformatic/kafka",
            batches_under_way=_ONE_BY_ONE,
            build=build.PLATFORMATIC,
        ),
        Program(
            name="kafka_python",
            client="kafka-python",
            batches_under_way=_ONE_BY_ONE,
            module="kafka",
        ),
    )
}
"""Clients that have no column among the scenarios."""
