"""The configuration names about who may connect and how: protocols of the listeners, TLS.

`broker/config/names.py` adds all others. What involves several names is checked in `security_checks.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from echoless.broker.config.listener_names import LISTENERS
from echoless.broker.config.principal_mapping import (
    DEFAULT_MAPPING,
    PrincipalMapping,
    parse_mapping,
)
from echoless.broker.config.setting import ConfigValues, setting
from echoless.broker.config.values import (
    INT32_MAX,
    Address,
    ConfigType,
    ValueKind,
    boolean,
    choice,
    duration,
    integer,
    name,
    optional_name,
    optional_path,
    password,
    size,
)
from echoless.protocol.sasl.mechanism import PASSWORD_MECHANISMS, Mechanism


class EndpointIdentification(enum.StrEnum):
    """The comparison of a server's name with its certificate (Kafka's `https`, or none)."""

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
TOKEN_ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""Signatures with a public key. Never `none`, and none with a shared secret: a public key could be taken for one."""


class ListenerProtocol(NamedTuple):
    """The security protocol of one listener."""

    listener: str
    protocol: SecurityProtocol

    def __str__(self) -> str:
        return f"{self.listener}:{self.protocol}"


def _protocol_map() -> ValueKind[tuple[ListenerProtocol, ...]]:
    return ValueKind(
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


def _some_of(
    choices: tuple[str, ...], parse: Callable[[str], str] = str
) -> ValueKind[tuple[str, ...]]:
    def parse_all(text: str) -> tuple[str, ...]:
        chosen = tuple(dict.fromkeys(parse(item.strip()) for item in text.split(",")))
        if not set(chosen) <= set(choices):
            raise ValueError("none of the choices")
        return chosen

    return ValueKind(f"some of {', '.join(choices)}", parse_all, ConfigType.LIST)


def _one_of(choices: tuple[Mechanism, ...]) -> ValueKind[Mechanism]:
    by_name = {str(one): one for one in choices}
    return ValueKind(" or ".join(choices), lambda text: _found(by_name, text.upper()))


def _found(by_name: dict[str, Mechanism], name: str) -> Mechanism:
    if name not in by_name:
        raise ValueError("none of the choices")
    return by_name[name]


def _audiences() -> ValueKind[tuple[str, ...]]:
    return ValueKind(
        "names with commas between",
        lambda text: tuple(one.strip() for one in text.split(",") if one.strip()),
        ConfigType.LIST,
    )


def _keys_url() -> ValueKind[str | None]:
    return ValueKind(
        "https://HOST[:PORT]/PATH or file:///PATH; http:// for a loopback address",
        lambda text: _parse_keys_url(text) if text else None,
    )


def _parse_keys_url(text: str) -> str:
    from urllib.parse import urlsplit

    parts = urlsplit(text)
    is_local = parts.scheme == "http" and Address(parts.hostname or "", 0).is_loopback
    if parts.scheme == "file":
        is_readable = not parts.netloc and len(parts.path) > 1
    else:
        is_readable = bool(parts.hostname) and (parts.scheme == "https" or is_local)
    if not is_readable or not parts.geturl().isprintable() or parts.port == 0:
        raise ValueError("no such place for keys")
    return text


def _principal_mapping() -> ValueKind[PrincipalMapping]:
    return ValueKind(
        "DEFAULT, or RULE:pattern/replacement/[LU], or several with commas between", parse_mapping
    )


@dataclass(slots=True, kw_only=True, init=False, repr=False, eq=False)
class SecurityConfig(ConfigValues):
    """The part of a broker's configuration that says who may connect and how."""

    listener_security_protocol_map: tuple[ListenerProtocol, ...] = setting(
        (),
        _protocol_map(),
        "what each listener speaks, where that is not PLAINTEXT; NATIVE also between brokers",
    )
    native_accepts_plaintext: bool = setting(
        False,
        boolean(),
        "while TLS is turned on or off between running brokers: NATIVE takes connections without TLS too, and "
        "brokers that have registered without TLS are called without",
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
        DEFAULT_MAPPING,
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
        _one_of(PASSWORD_MECHANISMS),
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

    connection_login_timeout_ms: int = setting(
        30_000,
        duration(1, INT32_MAX),
        "how long a client may take to log in, after any TLS handshake",
    )
    connections_max_unauthenticated_per_ip: int = setting(
        500,
        integer(1),
        "connections of one address that may be in a TLS handshake or have not logged in",
    )

    sasl_oauthbearer_jwks_endpoint_url: str | None = setting(
        None, _keys_url(), "the keys by which OAUTHBEARER tokens are checked (a JSON Web Key Set)"
    )
    sasl_oauthbearer_expected_issuer: str | None = setting(
        None, optional_name(), "the iss that tokens must have"
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting(
        (), _audiences(), "tokens must have one of these as aud"
    )
    sasl_oauthbearer_algorithms: tuple[str, ...] = setting(
        ("RS256", "PS256", "ES256", "EdDSA"),
        _some_of(TOKEN_ALGORITHMS),
        "the algorithms by which tokens may be signed",
    )
    sasl_oauthbearer_sub_claim_name: str = setting("sub", name(), "the claim that names the user")
    sasl_oauthbearer_scope_claim_name: str = setting(
        "scope", name(), "the claim of a token's scopes, which must be text if there is one"
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        30, integer(0, 3600), "how much the issuer's clock may differ"
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        3_600_000, duration(1000, INT32_MAX), "how often the keys are read again"
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = setting(
        100, duration(1, INT32_MAX), "the first pause after a failure to read the keys; it doubles"
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = setting(
        10_000, duration(1, INT32_MAX), "the longest such pause"
    )
    sasl_oauthbearer_jwks_keys_max_age_ms: int = setting(
        14_400_000,
        duration(1000, INT32_MAX),
        "how long keys are used while they cannot be read again; after that no token is valid",
    )
    oauthbearer_unsecured: bool = setting(
        False, boolean(), "accept OAUTHBEARER tokens that no one has signed (alg none): for tests"
    )

    @property
    def speaks_tls(self) -> bool:
        """Whether a listener does."""
        return any(one.protocol.is_encrypted for one in self.listener_security_protocol_map)

    def security_protocol(self, listener: str) -> SecurityProtocol:
        """The security protocol of the listener with this name."""
        for one in self.listener_security_protocol_map:
            if one.listener == listener:
                return one.protocol
        return SecurityProtocol.PLAINTEXT
