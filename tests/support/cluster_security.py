"""Brokers that are closed to strangers: TLS and log-ins on every port, ACLs, and sessions that end soon.

security = ClusterSecurity(directory / "security", native=NativeDoor.SASL_SSL)
cluster = Cluster(directory, security=security)
producer = Producer({"bootstrap.servers": cluster.bootstrap, **security.client})

The user `client` may create, write and read every topic, `admin` do everything, and `broker` what brokers do
among themselves. The admin port stays open, and shows topics to everyone.
"""

from __future__ import annotations

import enum
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.broker.authentication.log_in import log_in as log_in_raw
from tests.support.certificates import HOSTS, Authority
from tests.support.client_security import log_in, tls_settings, write_settings
from tests.support.raw_client import RawConnection

SESSION_MS: Final = 3000
"""How long a session lasts by default: clients under load log in again and again."""
_REPOSITORY: Final = Path(__file__).parents[2]
_PASSWORD: Final = "hunter2"
_COMMAND_TIMEOUT_S: Final = 60.0
_ACLS: Final = (
    ("User:client", "--topic", ("create", "write", "read", "describe")),
    ("User:client", "--group", ("read",)),
    ("User:client", "--transactional-id", ("write",)),
    ("User:broker", "--cluster", ("cluster-action",)),
    ("User:ANONYMOUS", "--topic", ("describe",)),
)


class NativeDoor(enum.StrEnum):
    """How brokers show each other who they are."""

    SASL_SSL = "SASL_SSL"
    SSL = "SSL"
    """By their certificates."""


class ClusterSecurity:
    """One authority, three users and their rights, for the brokers of one cluster or for one that stands alone."""

    def __init__(
        self,
        directory: Path,
        *,
        hosts: Sequence[str] = (),
        native: NativeDoor = NativeDoor.SASL_SSL,
        mechanism: str = "SCRAM-SHA-256",
        session_ms: int = SESSION_MS,
    ) -> None:
        """`hosts` are the brokers' addresses, if they are not on loopback."""
        self._authority = authority = Authority(directory)
        authority.issue("broker", *HOSTS, *hosts)
        self._secret = directory / "secret"
        self._secret.write_text(_PASSWORD)
        self.settings: Mapping[str, str] = authority.settings(
            f"PLAINTEXT:SASL_SSL,NATIVE:{native}",
            ssl_client_auth="requested",
            ssl_principal_mapping_rules="RULE:^.*CN=([^,]+).*$/$1/",
            sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            sasl_inter_broker_username="broker",
            sasl_inter_broker_password=_PASSWORD,
            connections_max_reauth_ms=str(session_ms),
            authorizer="acl",
            super_users="User:admin",
        )
        trusting = tls_settings(authority)
        self.client: Mapping[str, str] = trusting | log_in(mechanism, "client", _PASSWORD)
        """The settings with which librdkafka produces and consumes."""
        self.admin: Mapping[str, str] = trusting | log_in(mechanism, "admin", _PASSWORD)
        self.client_file = write_settings(directory / "client.settings", self.client)
        """The same as `client`, for `--security` of the client programs."""

    async def connect(self, address: str) -> RawConnection:
        """A connection that has logged in as `client`."""
        connection = await RawConnection.open(address, self._authority.client_context())
        answer = await log_in_raw(connection, "client", _PASSWORD)
        assert answer.error_code == 0, answer
        return connection

    def add_users(self, *place: str) -> None:
        """Adds users and ACLs; `place` is `--data-dir` or `--coordinator` with its value, before brokers run."""
        for user in ("client", "admin", "broker"):
            _command("users", "add", user, "--password-file", str(self._secret), *place)
        for principal, resource, operations in _ACLS:
            named = (resource,) if resource == "--cluster" else (resource, "*")
            chosen = [part for one in operations for part in ("--operation", one)]
            _command("acls", "add", "--principal", principal, *named, *chosen, *place)


def _command(*arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "echoless", *arguments],
        check=True,
        capture_output=True,
        cwd=_REPOSITORY,
        timeout=_COMMAND_TIMEOUT_S,
    )
