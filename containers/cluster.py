"""The cluster of docker-compose.yml, under a separate project name: `up`, `down`, its brokers."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka.admin import AdminClient

from containers.podman import Container, PodmanError, compose, podman
from containers.waiting import wait_until
from echoless.testkit.free_ports import is_free

BROKER_IDS: Final = (1, 2, 3)
BOOTSTRAP: Final = "127.0.0.1:19092,127.0.0.1:29092,127.0.0.1:39092"
BOOTSTRAP_INSIDE: Final = "broker1:9092,broker2:9092,broker3:9092"

_PROJECT: Final = "echoless-test"
_ANSWER_TIMEOUT_S: Final = 10.0
_PORTS: Final = (39092, 39093, 38080)
"""Those of docker-compose.yml that an outgoing connection may have taken: Linux gives out 32768 to 60999."""
_CLOSED_AFTER_S: Final = 120.0
"""Twice as long as Linux keeps the port of a closed connection."""


class Cluster:
    """ZooKeeper and three brokers. Touches no other project, but needs its ports."""

    network = f"{_PROJECT}_default"

    def __init__(self) -> None:
        self.brokers = {number: Container(f"{_PROJECT}_broker{number}_1") for number in BROKER_IDS}
        self.zookeeper = Container(f"{_PROJECT}_zookeeper_1")

    def up(self) -> None:
        """Returns when all brokers are healthy and each has met the others."""
        # The third broker's ports lie where this machine takes those of any connection: one may be taken in between.
        for has_another_try in (True, True, False):
            wait_until(lambda: all(map(is_free, _PORTS)), f"ports {_PORTS} free", _CLOSED_AFTER_S)
            try:
                compose("--project-name", _PROJECT, "up", "--detach", "--no-build")
                break
            except PodmanError as error:
                if not has_another_try or "address already in use" not in str(error):
                    raise
                self.down()
        for number in BROKER_IDS:
            self.wait_for_broker(number)

    def stop(self) -> None:
        """Stops all containers, including ZooKeeper, and keeps them."""
        compose("--project-name", _PROJECT, "stop")

    def down(self, *options: str) -> None:
        """Removes containers and network; with `--volumes` the data, too."""
        for broker in self.brokers.values():
            if broker.is_paused():  # a paused container cannot be stopped
                broker.unpause()
        compose("--project-name", _PROJECT, "down", *options)

    def revive(self) -> None:
        """Resumes every broker that a failed test left paused or stopped."""
        for broker in self.brokers.values():
            if broker.is_paused():
                broker.unpause()
            if broker.state["Status"] != "running":
                broker.start()

    def wait_for_broker(self, number: int) -> None:
        """Waits until this broker is healthy and lists all three."""
        wait_until(self.brokers[number].is_healthy, f"broker {number} is healthy")
        wait_until(lambda: self._brokers_seen_by(number) == list(BROKER_IDS), "three brokers")

    def leader(self, topic: str, partition: int = 0) -> int:
        """The id of the leader, as a client on the host sees it; -1 if there is none."""
        leader: int = self._partition(topic, partition).leader
        return leader

    def wait_for_in_sync(self, topic: str, count: int) -> None:
        """Waits until every partition of the topic has this many in-sync replicas and a leader."""

        def are_in_sync() -> bool:
            partitions = self._metadata(topic).topics[topic].partitions.values()
            return all(len(one.isrs) == count and one.leader != -1 for one in partitions)

        wait_until(are_in_sync, f"{topic} has {count} in-sync replicas")

    def native_address(self, number: int) -> str:
        """The address of one broker's native port for a test producer on the host."""
        return self.brokers[number].port(9093)

    def run_inside(self, script: bytes, *arguments: str) -> str:
        """Runs a Python script in a container of the same network; returns its output."""
        options = ("--rm", "--interactive", "--network", self.network, "--entrypoint", "python3")
        return podman("run", *options, "echoless", "-", *arguments, stdin=script)

    def _brokers_seen_by(self, number: int) -> list[int]:
        return sorted(self._metadata(None, f"127.0.0.1:{number}9092").brokers)

    def _partition(self, topic: str, partition: int) -> Any:
        return self._metadata(topic).topics[topic].partitions[partition]

    def _metadata(self, topic: str | None, bootstrap: str = BOOTSTRAP) -> Any:
        client = AdminClient({"bootstrap.servers": bootstrap})
        return client.list_topics(topic, timeout=_ANSWER_TIMEOUT_S)
