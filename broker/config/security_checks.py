"""Checks of a configuration's security that involve more than one name.

Reads no files: whether keys and certificates can be used is found out where TLS is set up
(`broker/authentication/tls.py`).
"""

from __future__ import annotations

from echoless.broker.config.listener_names import ADMIN, EXTERNAL, KAFKA_LISTENERS, NATIVE
from echoless.broker.config.listener_overrides import CONNECTION_NAMES, SASL_NAMES, TLS_NAMES
from echoless.broker.config.names import Config
from echoless.broker.config.security import ClientAuth, SecurityProtocol
from echoless.broker.config.values import Address
from echoless.protocol.sasl.mechanism import Mechanism

_MAP = "listener_security_protocol_map"


def security_problem(config: Config) -> str | None:
    """One line that names the option and what it takes; None if all is well."""
    mapped = {one.listener: one.protocol for one in config.listener_security_protocol_map}
    if EXTERNAL in mapped and len(config.listen) == 1:
        return f"{_MAP}: {EXTERNAL} is not listened on: --listen has one address"
    if ADMIN in mapped and mapped[ADMIN].is_sasl:
        return f"{_MAP}: takes PLAINTEXT or SSL for {ADMIN}, not {mapped[ADMIN]}"
    if config.native_accepts_plaintext and not config.security_protocol(NATIVE).is_encrypted:
        return f"native_accepts_plaintext: takes true only where {_MAP} gives {NATIVE} TLS"
    problem = _override_problem(config)
    for listener, protocol in mapped.items():
        if problem is None and protocol.is_encrypted:
            problem = _tls_problem(config.of_listener(listener))
    if problem is None and any(protocol.is_sasl for protocol in mapped.values()):
        problem = _sasl_problem(config)
    return problem


def _override_problem(config: Config) -> str | None:
    """A setting of one listener alone that would have no effect, or that the broker is not prepared for."""
    for listener, overrides in config.listener_overrides.items():
        protocol, table = config.security_protocol(listener), f"listener.{listener.lower()}"
        for name in overrides:
            if name in CONNECTION_NAMES and listener == ADMIN:
                return f"{table}.{name}: is not for {ADMIN}, which has a limit of its own"
            if name in CONNECTION_NAMES and listener == EXTERNAL and len(config.listen) == 1:
                return f"{table}.{name}: {EXTERNAL} is not listened on: --listen has one address"
            if name in TLS_NAMES and not protocol.is_encrypted:
                return f"{table}.{name}: {listener} is {protocol}, without TLS; {_MAP} says so"
            if name in SASL_NAMES and not protocol.is_sasl:
                return f"{table}.{name}: {listener} is {protocol}, without log-ins; {_MAP} says so"
        enabled = overrides.get("sasl_enabled_mechanisms", ())
        if not set(enabled) <= set(config.sasl_enabled_mechanisms):
            return (
                f"{table}.sasl_enabled_mechanisms: takes some of those of the whole broker, "
                f"{', '.join(config.sasl_enabled_mechanisms)}"
            )
    return None


def _sasl_problem(config: Config) -> str | None:
    problem = _exposed_secret(config) or _oauthbearer_problem(config)
    if problem is not None:
        return problem
    if not config.security_protocol(NATIVE).is_sasl or config.zookeeper_hosts is None:
        return None
    between = config.of_listener(NATIVE).sasl_enabled_mechanisms
    if config.sasl_mechanism_inter_broker_protocol not in between:
        return (
            "sasl_mechanism_inter_broker_protocol: takes one of sasl_enabled_mechanisms, "
            f"not {config.sasl_mechanism_inter_broker_protocol}"
        )
    for option in ("sasl_inter_broker_username", "sasl_inter_broker_password"):
        if getattr(config, option) is None:
            return f"{option}: it is needed because NATIVE, between brokers, has SASL"
    return None


def _exposed_secret(config: Config) -> str | None:
    for name, address in _addresses(config).items():
        enabled = map(Mechanism, config.of_listener(name).sasl_enabled_mechanisms)
        mechanism = next((one for one in enabled if one.sends_secret), None)
        protocol = config.security_protocol(name)
        is_mixed = name == NATIVE and config.native_accepts_plaintext and protocol.is_sasl
        is_plain = protocol is SecurityProtocol.SASL_PLAINTEXT or is_mixed
        if mechanism is not None and is_plain and not address.is_loopback:
            what = "passwords" if mechanism is Mechanism.PLAIN else "tokens"
            return (
                f"sasl_enabled_mechanisms: {mechanism} sends {what} as they are, and "
                f"{name} on {address} {'takes plaintext too' if is_mixed else f'is {protocol}'}; "
                f"it takes {SecurityProtocol.SASL_SSL}, or a loopback address"
            )
    return None


def _oauthbearer_problem(config: Config) -> str | None:
    """A check that is not configured would be a check that is not made."""
    if Mechanism.OAUTHBEARER not in config.sasl_enabled_mechanisms:
        return None
    url = "sasl_oauthbearer_jwks_endpoint_url"
    if config.oauthbearer_unsecured:
        if config.sasl_oauthbearer_jwks_endpoint_url is not None:
            return f"oauthbearer_unsecured: takes false beside {url}"
        return None
    if config.sasl_oauthbearer_jwks_endpoint_url is None:
        return (
            f"{url}: takes the URL of the keys of who signs tokens; it is needed because "
            f"sasl_enabled_mechanisms has {Mechanism.OAUTHBEARER}"
        )
    for option in ("sasl_oauthbearer_expected_issuer", "sasl_oauthbearer_expected_audience"):
        if not getattr(config, option):
            return f"{option}: it is needed because sasl_enabled_mechanisms has OAUTHBEARER"
    return None


def _addresses(config: Config) -> dict[str, Address]:
    """The listeners on which clients log in, and where they listen."""
    return {**dict(zip(KAFKA_LISTENERS, config.listen, strict=False)), NATIVE: config.native_listen}


def _tls_problem(config: Config) -> str | None:
    if config.ssl_keystore_location is None:
        return (
            "ssl_keystore_location: takes the path of a PEM file with the broker's key and "
            f"certificate; it is needed because {_MAP} has a listener with TLS"
        )
    if config.ssl_client_auth is not ClientAuth.NONE and config.ssl_truststore_location is None:
        return (
            "ssl_truststore_location: takes the path of a PEM file with the certificates of who "
            f"may sign clients'; it is needed because ssl_client_auth is {config.ssl_client_auth}"
        )
    return None
