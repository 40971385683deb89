"""The brokers of a scenario: one, or several that share a ZooKeeper."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from echoless.testkit.broker_process import BrokerProcess
from echoless.testkit.clients.client import PASSWORD
from echoless.testkit.free_ports import free_address
from echoless.testkit.python_child import module_command, module_path
from echoless.testkit.zookeeper_process import ZooKeeperProcess

_SESSION_TIMEOUT_MS: Final = "1000"
"""Time until another broker takes over the partitions of a killed one."""
_WITH_USERS: Final = {
    "listener_security_protocol_map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl_enabled_mechanisms": "PLAIN",
}


class Servers:
    """Brokers 1 to `count`. Use it in a `with` block; everything is deleted at its end."""

    def __init__(
        self,
        count: int = 1,
        settings: Mapping[str, str] | None = None,
        users: Sequence[str] = (),
    ) -> None:
        """`users` of the one broker, which then asks its clients to log in."""
        assert not users or count == 1
        self.brokers: dict[int, BrokerProcess] = {}
        self.users = tuple(users)
        self._count = count
        self._settings = {**(_WITH_USERS if users else {}), **(settings or {})}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            if self._count == 1:
                broker = BrokerProcess(self._settings)
                for user in self.users:
                    _add_user(user, broker.data_dir)
                self.brokers[1] = stack.enter_context(broker)
            else:
                zookeeper = stack.enter_context(ZooKeeperProcess())
                for broker_id in range(1, self._count + 1):
                    broker = self._member(broker_id, zookeeper.address)
                    self.brokers[broker_id] = stack.enter_context(broker)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    @property
    def user(self) -> str | None:
        """The user of the producer; None if there is no log-in."""
        return self.users[0] if self.users else None

    def _member(self, broker_id: int, zookeeper: str) -> BrokerProcess:
        """One broker. Its ports are fixed: the others remember them while it is down."""
        return BrokerProcess(
            {"zookeeper_session_timeout_ms": _SESSION_TIMEOUT_MS, **self._settings},
            arguments=[
                *("--broker-id", str(broker_id)),
                *("--coordinator", f"zookeeper://{zookeeper}/echoless"),
            ],
            addresses=(free_address(), free_address(), free_address()),
        )


def _add_user(name: str, data_dir: Path) -> None:
    """Adds a user before the broker starts, as its first one has to be."""
    with tempfile.NamedTemporaryFile("w") as secret:
        secret.write(PASSWORD)
        secret.flush()
        command = [*module_command("echoless"), "users", "add", name]
        command += ["--password-file", secret.name, "--data-dir", str(data_dir)]
        environment = {**os.environ, "PYTHONPATH": module_path()}
        subprocess.run(command, check=True, capture_output=True, env=environment)
