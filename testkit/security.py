"""A broker's TLS, users and ACLs for tests: a certificate authority of its own, and what clients need to be let in.

The first listener has the chosen security protocol. A second one, for the test's own questions, is open: both are on
loopback.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from echoless.client.cluster import parse_addresses
from echoless.client.connection import AuthenticationError, BrokerConnection
from echoless.client.security_options import security_of
from echoless.protocol.acl import AclOperation, PatternType, Permission, ResourceType
from echoless.protocol.sasl.mechanism import PASSWORD_MECHANISMS, Mechanism
from echoless.protocol.sasl.scram import ITERATIONS_MIN, new_salt, salted_password

PROTOCOLS: Final = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
USER: Final = "alice"
_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_MECHANISM_IDS: Final = {Mechanism.SCRAM_SHA_256: 1, Mechanism.SCRAM_SHA_512: 2}
_PATIENCE_S: Final = 30.0
_PAUSE_S: Final = 0.02


class BrokerSecurity:
    """The security of one broker."""

    def __init__(self, protocol: str, directory: Path) -> None:
        if protocol not in PROTOCOLS:
            raise ValueError(f"security: takes one of {', '.join(PROTOCOLS)}, not {protocol!r}")
        self.protocol = protocol
        self._directory = directory
        self._passwords: dict[str, str] = {}

    @property
    def needs_user(self) -> bool:
        """Whether clients log in, and there is no user yet."""
        return self.protocol.startswith("SASL") and not self._passwords

    @property
    def authority(self) -> Path:
        """The certificate that clients have to trust, in PEM."""
        return self._directory / "authority.pem"

    def settings(self) -> dict[str, str]:
        """The broker's settings. Makes its certificate, if it needs one."""
        settings = {
            "listener_security_protocol_map": f"PLAINTEXT:{self.protocol},EXTERNAL:PLAINTEXT",
            "sasl_enabled_mechanisms": ",".join(PASSWORD_MECHANISMS),
        }
        if not self.protocol.startswith("SASL"):
            del settings["sasl_enabled_mechanisms"]
        if self.protocol.endswith("SSL"):
            settings["ssl_keystore_location"] = str(self._certificate())
        return settings

    def client_options(self, user: str = USER) -> dict[str, str]:
        """The security options of a client, by librdkafka's names."""
        options = {"security.protocol": self.protocol}
        if self.protocol.endswith("SSL"):
            options["ssl.ca.location"] = str(self.authority)
        if self.protocol.startswith("SASL"):
            options |= {
                "sasl.mechanism": str(Mechanism.SCRAM_SHA_256),
                "sasl.username": user,
                "sasl.password": self._passwords[user],
            }
        return options

    def add_user(self, name: str, password: str | None, bootstrap: str, opened: str) -> None:
        """Adds a user, or changes its password; returns when it can log in.

        `bootstrap` and `opened` are the addresses of the two listeners.
        """
        self._passwords[name] = password = password or secrets.token_urlsafe(12)
        upsertions = []
        for mechanism, number in _MECHANISM_IDS.items():
            salt = new_salt()
            upsertions.append(
                {
                    "name": name,
                    "mechanism": number,
                    "iterations": ITERATIONS_MIN,
                    "salt": salt,
                    "salted_password": salted_password(mechanism, password, salt, ITERATIONS_MIN),
                }
            )
        fields = {"deletions": (), "upsertions": upsertions}
        answer = _ask(opened, "alter_user_scram_credentials", fields)
        _check(answer.results)
        self._wait_until_known(name, bootstrap)

    def _wait_until_known(self, name: str, bootstrap: str) -> None:
        security = security_of(self.client_options(name))
        deadline = time.monotonic() + _PATIENCE_S
        (address,) = parse_addresses(bootstrap)
        while True:
            try:
                BrokerConnection.open(*address, security=security).close()
            except AuthenticationError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_S)
            else:
                return

    def _certificate(self) -> Path:
        path = self._directory / "broker.pem"
        if not path.exists():
            try:
                import trustme
            except ImportError as error:
                raise ImportError(
                    "a broker with TLS needs certificates: pip install 'echoless[testkit]'"
                ) from error
            authority = trustme.CA()
            authority.cert_pem.write_to_path(str(self.authority))
            issued = authority.issue_cert(*_HOSTS, common_name="broker")
            issued.private_key_and_cert_chain_pem.write_to_path(str(path))
        return path


def allow(opened: str, user: str, *operations: str, topic: str | None = None) -> None:
    """Adds ACLs that allow the user operations on a topic, or on the cluster if none is named."""
    resource = (ResourceType.CLUSTER, "kafka-cluster")
    if topic is not None:
        resource = (ResourceType.TOPIC, topic)
    creations = [
        {
            "resource_type": int(resource[0]),
            "resource_name": resource[1],
            "resource_pattern_type": int(PatternType.LITERAL),
            "principal": f"User:{user}",
            "host": "*",
            "operation": int(AclOperation[operation.upper().replace("-", "_")]),
            "permission_type": int(Permission.ALLOW),
        }
        for operation in operations
    ]
    _check(_ask(opened, "create_acls", {"creations": creations}).results)


def _ask(address: str, api: str, fields: Mapping[str, Any]) -> Any:
    (where,) = parse_addresses(address)
    with BrokerConnection.open(*where) as connection:
        return connection.request(api, fields)


def _check(results: Any) -> None:
    for one in results:
        if one.error_code.value:
            raise ValueError(one.error_message or one.error_code.name.upper())
