"""Checks of a configuration's security that involve more than one name.

Reads no files: whether keys and certificates can be used is found out where TLS is set up
(`broker/authentication/tls.py`).
"""

from __future__ import annotations

from broker.config.listener_names import EXTERNAL
from broker.config.names import Config
from broker.config.security import ClientAuth

_MAP = "listener_security_protocol_map"


def security_problem(config: Config) -> str | None:
    """One line that names the option and what it takes; None if all is well."""
    mapped = {one.listener: one.protocol for one in config.listener_security_protocol_map}
    if EXTERNAL in mapped and len(config.listen) == 1:
        return f"{_MAP}: {EXTERNAL} is not listened on: --listen has one address"
    sasl = sorted(name for name, protocol in mapped.items() if protocol.is_sasl)
    if sasl:
        return f"{_MAP}: takes PLAINTEXT or SSL for {sasl[0]}, not {mapped[sasl[0]]}"
    if any(protocol.is_encrypted for protocol in mapped.values()):
        return _tls_problem(config)
    return None


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
