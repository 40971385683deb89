"""The configuration names about who may connect and how: protocols of the listeners, TLS.

`broker/config/names.py` adds all others. What involves several names is checked in `security_checks.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final

from broker.config.listener_names import LISTENERS
from broker.config.principal_mapping import PrincipalMapping, parse_mapping
from broker.config.setting import setting
from broker.config.values import (
    INT32_MAX,
    ConfigType,
    Kind,
    choice,
    duration,
    optional_name,
    optional_path,
    password,
    size,
)
from protocol.lean_dataclass import dataclass
from protocol.sasl.mechanism import Mechanism


class EndpointIdentification(enum.StrEnum):
    """How the name of a server is compared with its certificate (Kafka's `https`, or not at all)."""

    HTTPS = "https"
    NONE = "none"


class SecurityProtocol(enum.StrEnum):
    """Kafka's names for what a listener speaks below the requests."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def is_encrypted(self) -> bool:
        """Whether connections begin with a TLS handshake."""
        return self in {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL}

    @property
    def is_sasl(self) -> bool:
        """Whether clients have to log in before anything else."""
        return self in {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL}


class ClientAuth(enum.StrEnum):
    """Whether clients are asked for a certificate, and refused without one."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")


@dataclass(slots=True, frozen=True)
class ListenerProtocol:
    """The security protocol of one listener."""

    listener: str
    protocol: SecurityProtocol

    def __str__(self) -> str:
        return f"{self.listener}:{self.protocol}"


def _protocol_map() -> Kind[tuple[ListenerProtocol, ...]]:
    return Kind(
        f"LISTENER:PROTOCOL with commas between, of {', '.join(LISTENERS)} and "
        f"{', '.join(SecurityProtocol)}",
        _parse_protocol_map,
        ConfigType.LIST,
    )


def _parse_protocol_map(text: str) -> tuple[ListenerProtocol, ...]:
    found: dict[str, ListenerProtocol] = {}
    for item in text.split(",") if text else ():
        listener, _, protocol = (part.strip().upper() for part in item.partition(":"))
        if listener not in LISTENERS or listener in found:
            raise ValueError("no such listener, or twice")
        found[listener] = ListenerProtocol(listener, SecurityProtocol(protocol))
    return tuple(found.values())


def _some_of(choices: tuple[str, ...], parse: Callable[[str], str] = str) -> Kind[tuple[str, ...]]:
    def parse_all(text: str) -> tuple[str, ...]:
        chosen = tuple(dict.fromkeys(parse(item.strip()) for item in text.split(",")))
        if not set(chosen) <= set(choices):
            raise ValueError("none of the choices")
        return chosen

    return Kind(f"some of {', '.join(choices)}", parse_all, ConfigType.LIST)


def _principal_mapping() -> Kind[PrincipalMapping]:
    return Kind(
        "DEFAULT, or RULE:pattern/replacement/[LU], or several with commas between", parse_mapping
    )


@dataclass(slots=True, frozen=True, kw_only=True)
class SecurityConfig:
    """The part of a broker's configuration that says who may connect and how."""

    listener_security_protocol_map: tuple[ListenerProtocol, ...] = setting(
        (),
        _protocol_map(),
        "what each listener speaks, where that is not PLAINTEXT; NATIVE also between brokers",
    )
    ssl_keystore_location: str | None = setting(
        None, optional_path(), "PEM: the broker's key and certificate chain, for listeners with TLS"
    )
    ssl_keystore_password: str | None = setting(
        None, password(), "password of the key in ssl_keystore_location"
    )
    ssl_truststore_location: str | None = setting(
        None, optional_path(), "PEM: who may sign the certificates of clients and other brokers"
    )
    ssl_client_auth: ClientAuth = setting(
        ClientAuth.NONE,
        choice(ClientAuth),
        "whether clients are asked for a certificate, and refused without one",
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        TLS_VERSIONS, _some_of(TLS_VERSIONS), "versions of TLS to speak"
    )
    ssl_principal_mapping_rules: PrincipalMapping = setting(
        parse_mapping("DEFAULT"),
        _principal_mapping(),
        "how the name in a client's certificate becomes its principal",
    )
    ssl_endpoint_identification_algorithm: EndpointIdentification = setting(
        EndpointIdentification.HTTPS,
        choice(EndpointIdentification),
        "https: the certificate of another broker must be for the host it is reached by; none: for any",
    )
    ssl_handshake_timeout_ms: int = setting(
        10_000, duration(1, INT32_MAX), "how long a client may take for its TLS handshake"
    )

    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        (Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512),
        _some_of(tuple(Mechanism), lambda text: Mechanism(text.upper())),
        "mechanisms by which clients may log in to listeners with SASL",
    )
    sasl_mechanism_inter_broker_protocol: Mechanism = setting(
        Mechanism.SCRAM_SHA_256,
        choice(Mechanism),
        "mechanism by which brokers log in to each other, if NATIVE has SASL",
    )
    sasl_inter_broker_username: str | None = setting(
        None, optional_name(), "user by which this broker logs in to others, if NATIVE has SASL"
    )
    sasl_inter_broker_password: str | None = setting(
        None, password(), "password of sasl_inter_broker_username"
    )
    sasl_server_max_receive_size: int = setting(
        524_288, size(1024, INT32_MAX), "largest request of a client that has not logged in"
    )
    connections_max_reauth_ms: int = setting(
        0,
        duration(0, INT32_MAX),
        "a client has to log in again, on the same connection, after this time; 0: never",
    )
    connection_failed_authentication_delay_ms: int = setting(
        100, duration(0, 60_000), "how long the answer to a failed log-in is held back"
    )

    def security_protocol(self, listener: str) -> SecurityProtocol:
        """The security protocol of the listener with this name."""
        for one in self.listener_security_protocol_map:
            if one.listener == listener:
                return one.protocol
        return SecurityProtocol.PLAINTEXT
