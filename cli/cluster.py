"""Access to a running cluster, for commands: its metadata, and a connection to each leader.

The first connection imports kio (`echoless.client.connection`), which takes longer than anything else in a command.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import typer

from echoless.broker.config.values import Address, parse_address
from echoless.cli.errors import CommandError
from echoless.cli.options import BrokerOptions
from echoless.client.command_config import command_security
from echoless.client.connection_errors import AuthenticationError, ConnectionFailedError
from echoless.client.security import NO_SECURITY, Security
from echoless.client.security_options import SecurityOptionError

if TYPE_CHECKING:
    from echoless.client.connection import BrokerConnection

_DENIALS: Final = tuple(
    f"{resource}_AUTHORIZATION_FAILED"
    for resource in ("TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID")
)
_HINTS: Final = {
    "UNKNOWN_TOPIC_OR_PARTITION": "echoless topics list shows what there is",
    "TOPIC_ALREADY_EXISTS": "choose another name, or pass --if-not-exists",
    "GROUP_ID_NOT_FOUND": "echoless groups list shows what there is",
    "TRANSACTIONAL_ID_NOT_FOUND": "echoless transactions list shows what there is",
    "NON_EMPTY_GROUP": "stop its members first",
    "UNKNOWN_MEMBER_ID": "stop its members first",
    "SECURITY_DISABLED": "start the brokers with authorizer=acl",
    **dict.fromkeys(_DENIALS, "pass --command-config to log in, or see echoless acls list"),
}


_ByTopic = dict[str, list[int]]


class ClusterConnections:
    """Open connections to the brokers of one cluster. Use it in a `with` block."""

    def __init__(self, bootstrap: BrokerConnection, security: Security = NO_SECURITY) -> None:
        self._bootstrap = bootstrap
        self._security = security
        self._by_id: dict[int, BrokerConnection] = {}
        self._addresses: dict[int, tuple[str, int]] = {}

    @classmethod
    def open(cls, broker: BrokerOptions) -> Self:
        """Connects to the first of the listed brokers that answers. Raises `CommandError`."""
        security = security_of(broker)
        failure = None
        for text in broker.bootstrap_server.split(","):
            try:
                address = parse_address(text.strip())
            except ValueError:
                raise CommandError(
                    f"--bootstrap-server: takes HOST:PORT[,HOST:PORT...], not {text!r}"
                ) from None
            try:
                connection = _connect(address.host, address.port, security)
                return cls(connection, security)
            except AuthenticationError as error:
                raise CommandError(str(error)) from error
            except ConnectionFailedError as error:
                failure = failure or error
        raise CommandError(_with_hint(str(failure), security)) from failure

    def request(self, api: str, fields: Mapping[str, Any]) -> Any:
        """Sends a request to the broker that the command was given."""
        return _asked(self._bootstrap, api, fields)

    def metadata(self, topics: Sequence[str] | None = None) -> Any:
        """kio's MetadataResponse for these topics, or for all; never creates one."""
        wanted = None if topics is None else [{"name": t, "topic_id": None} for t in topics]
        answer = self.request(
            "metadata",
            {
                "topics": wanted,
                "allow_auto_topic_creation": False,
                "include_cluster_authorized_operations": False,
                "include_topic_authorized_operations": False,
            },
        )
        self._addresses = {b.node_id: (b.host, b.port) for b in answer.brokers}
        return answer

    def ask_leaders(
        self, api: str, topics: Sequence[Any], fields_for: Callable[[_ByTopic], Mapping[str, Any]]
    ) -> list[Any]:
        """Asks each leader for its partitions of `topics` (from `metadata`); returns all the answers.

        `fields_for` makes a request of {topic: [partition, ...]}. Partitions without a leader are
        left out.
        """
        by_leader: defaultdict[int, _ByTopic] = defaultdict(dict)
        for topic in topics:
            for partition in topic.partitions:
                if partition.leader_id in self._addresses:
                    by_topic = by_leader[partition.leader_id]
                    by_topic.setdefault(topic.name, []).append(partition.partition_index)
        return [
            _asked(self._broker(leader), api, fields_for(by_topic))
            for leader, by_topic in by_leader.items()
        ]

    @property
    def broker_ids(self) -> list[int]:
        """The brokers that the last `metadata` named."""
        return sorted(self._addresses)

    def request_to(self, broker_id: int, api: str, fields: Mapping[str, Any]) -> Any:
        """Sends a request to a broker that the last `metadata` named; the next one after a failure connects anew."""
        try:
            return _asked(self._broker(broker_id), api, fields)
        except CommandError:
            if failed := self._by_id.pop(broker_id, None):
                failed.close()
            raise

    def address_of(self, broker_id: int) -> str | None:
        """HOST:PORT of a broker that the last `metadata` named."""
        address = self._addresses.get(broker_id)
        return None if address is None else str(Address(*address))

    def _broker(self, broker_id: int) -> BrokerConnection:
        if broker_id not in self._by_id:
            try:
                self._by_id[broker_id] = _connect(*self._addresses[broker_id], self._security)
            except ConnectionFailedError as error:
                raise CommandError(f"broker {broker_id}: {error}") from error
        return self._by_id[broker_id]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for connection in (self._bootstrap, *self._by_id.values()):
            connection.close()


def _connect(host: str, port: int, security: Security) -> BrokerConnection:
    from echoless.client.connection import BrokerConnection

    return BrokerConnection.open(host, port, security=security)


def security_of(broker: BrokerOptions) -> Security:
    """Returns the command's way to reach brokers. May ask for a password. Raises `CommandError`."""
    try:
        return command_security(broker.command_config, _ask_password)
    except SecurityOptionError as error:
        raise CommandError(f"--command-config: {error}") from error


def _ask_password(user: str) -> str:
    """The password from the terminal; nothing if there is none."""
    if not sys.stdin.isatty():
        return ""
    password: str = typer.prompt(f"Password of {user}", hide_input=True, err=True)
    return password


def _with_hint(reason: str, security: Security) -> str:
    is_encrypted = "ended the connection" in reason or "does not speak the Kafka protocol" in reason
    if security != NO_SECURITY or not is_encrypted:
        return reason
    return f"{reason}; if it has TLS or SASL, pass --command-config"


def check(code: Any, subject: str, message: str | None = None) -> None:
    """Raises `CommandError` when a response carries an error code (kio's `ErrorCode`)."""
    if code.value != 0:
        name = code.name.upper()
        said = [part for part in ((message or "").removesuffix("."), _HINTS.get(name)) if part]
        raise CommandError(f"{subject}: {name}" + (f" ({'; '.join(said)})" if said else ""))


def _asked(connection: BrokerConnection, api: str, fields: Mapping[str, Any]) -> Any:
    try:
        return connection.request(api, fields)
    except ConnectionFailedError as error:
        raise CommandError(str(error)) from error
