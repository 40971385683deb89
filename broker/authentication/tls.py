"""TLS of one broker: contexts made of its files, for its listeners and for connections to other brokers.

Loaded only if a listener speaks TLS, since `ssl` is not free. When a file changes, a new context serves the
connections that begin afterwards; if the new files cannot be used, the old context stays. Connections that
are open keep what they began with.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from echoless.broker.authentication.certificate_fields import expires_s
from echoless.broker.authentication.distinguished_name import subject_name
from echoless.broker.authentication.tls_alert import AlertingContext
from echoless.broker.config.listener_names import NATIVE
from echoless.broker.config.loading import Config, ConfigError
from echoless.broker.config.security import ClientAuth, EndpointIdentification
from echoless.broker.network.request import ANONYMOUS
from echoless.broker.network.tls_acceptor import TlsSettings
from echoless.broker.network.turns import in_thread

if TYPE_CHECKING:
    from asyncio import BaseTransport

logger: Final = logging.getLogger(__name__)

CHECK_INTERVAL_S: Final = 60.0
"""Interval between looks at the files; SIGHUP has them read at once."""
_CERTIFICATE: Final = re.compile(
    r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL
)
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


class Contexts(NamedTuple):
    """The settings of new connections."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    """For connections to the native ports of other brokers."""
    expires_s: float | None
    """When the first certificate of the chain expires, in seconds since 1970; None if it cannot be read."""


class BrokerTls:
    """The TLS of one broker: of its listeners, which share one unless they have settings of their own."""

    def __init__(self, config: Config) -> None:
        """Raises `ConfigError` if the files cannot be used."""
        self._by_listener: dict[str, ListenerTls] = {}
        self._native_accepts_plaintext = config.native_accepts_plaintext
        shared = None
        for one in config.listener_security_protocol_map:
            if not one.protocol.is_encrypted:
                continue
            own = config.of_listener(one.listener)
            if own is config:
                shared = shared or ListenerTls(config)
                self._by_listener[one.listener] = shared
            else:
                self._by_listener[one.listener] = _with_settings_of_its_own(one.listener, own)

    def settings(self, listener: str, *, is_sasl: bool) -> TlsSettings:
        """For a listener; where clients log in, certificates are checked, but name no one."""
        takes_plaintext = listener == NATIVE and self._native_accepts_plaintext
        return self._by_listener[listener].settings(
            is_sasl=is_sasl, takes_plaintext=takes_plaintext
        )

    def client_context(self) -> ssl.SSLContext:
        """For a connection to the NATIVE listener of another broker that begins now."""
        return self._by_listener[NATIVE].client_context()

    @property
    def expiries_s(self) -> Mapping[str, float]:
        """When the certificate in use expires, in seconds since 1970, by listener."""
        ends = {name: one.expires_s for name, one in self._by_listener.items()}
        return {name: end for name, end in ends.items() if end is not None}

    async def watch(self) -> None:
        """Reads the files again whenever they have changed."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            for one in self._all():
                await one.look_again()

    async def reload(self) -> None:
        """Uses what the files hold now, or says why it cannot be used."""
        for one in self._all():
            await one.reload()

    def _all(self) -> set[ListenerTls]:
        return set(self._by_listener.values())


def _with_settings_of_its_own(listener: str, config: Config) -> ListenerTls:
    try:
        return ListenerTls(config)
    except ConfigError as error:
        raise ConfigError(f"listener.{listener.lower()}.{error}") from error


class ListenerTls:
    """The current contexts of listeners with one configuration. Single owner: the event loop."""

    def __init__(self, config: Config) -> None:
        """Raises `ConfigError` if the files cannot be used."""
        self._config = config
        self._stamps = _stamps(config)
        self._contexts = contexts(config)

    @property
    def expires_s(self) -> float | None:
        """See `Contexts`."""
        return self._contexts.expires_s

    def server_context(self) -> ssl.SSLContext:
        """For a connection that begins now."""
        return self._contexts.server

    def client_context(self) -> ssl.SSLContext:
        """For a connection to another broker that begins now."""
        return self._contexts.client

    def principal_of(self, transport: BaseTransport) -> str | None:
        """The client's principal by its certificate, if it has shown one; None if no rule maps its name."""
        ssl_object: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        certificate = None if ssl_object is None else ssl_object.getpeercert(binary_form=True)
        if certificate is None:
            return ANONYMOUS
        try:
            subject = subject_name(certificate)
        except ValueError:
            return None
        name = self._config.ssl_principal_mapping_rules.apply(subject)
        return None if name is None else f"User:{name}"

    def settings(self, *, is_sasl: bool, takes_plaintext: bool = False) -> TlsSettings:
        """For one of the listeners."""
        timeout_s = self._config.ssl_handshake_timeout_ms / 1000
        principal_of = _anonymous if is_sasl else self.principal_of
        return TlsSettings(self.server_context, principal_of, timeout_s, takes_plaintext)

    async def look_again(self) -> None:
        """Reads the files again if they have changed."""
        if await in_thread(partial(_stamps, self._config)) != self._stamps:
            await self.reload()

    async def reload(self) -> None:
        """See `BrokerTls`."""
        stamps = await in_thread(partial(_stamps, self._config))
        try:
            self._contexts = await in_thread(partial(contexts, self._config))
        except ConfigError as error:
            logger.error("the certificate in use stays: %s", error)  # noqa: TRY400 - the message says all
        else:
            logger.info(
                "new connections use the certificate of %s in %s",
                own_name(self._config),
                self._config.ssl_keystore_location,
            )
        self._stamps = stamps


def _anonymous(_transport: BaseTransport) -> str:
    return ANONYMOUS


def contexts(config: Config) -> Contexts:
    """Raises `ConfigError` with the option whose file cannot be used."""
    server = _context(config, ssl.PROTOCOL_TLS_SERVER)
    server.verify_mode = _CLIENT_AUTH[config.ssl_client_auth]
    server.options |= ssl.OP_NO_RENEGOTIATION
    client = _context(config, ssl.PROTOCOL_TLS_CLIENT)
    https = EndpointIdentification.HTTPS
    client.check_hostname = config.ssl_endpoint_identification_algorithm is https
    if config.ssl_truststore_location is None:
        client.load_default_certs()
    assert config.ssl_keystore_location is not None
    return Contexts(server, client, chain_expires_s(config.ssl_keystore_location))


def _context(config: Config, protocol: ssl._SSLMethod) -> ssl.SSLContext:
    context = AlertingContext(protocol)
    versions = sorted(_VERSIONS[name] for name in config.ssl_enabled_protocols)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    assert config.ssl_keystore_location is not None
    # Without a password OpenSSL would ask for one on the terminal.
    password = config.ssl_keystore_password or ""
    try:
        context.load_cert_chain(config.ssl_keystore_location, password=password)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"ssl_keystore_location: {config.ssl_keystore_location} cannot be used as a key and "
            f"certificate in PEM{_why(error)}; a key that is encrypted needs ssl_keystore_password"
        ) from error
    if config.ssl_truststore_location is not None:
        try:
            context.load_verify_locations(config.ssl_truststore_location)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"ssl_truststore_location: {config.ssl_truststore_location} cannot be used as "
                f"certificates in PEM{_why(error)}"
            ) from error
    return context


def chain_expires_s(path: str) -> float | None:
    """When the first of the certificates in a PEM file expires; None if it has none that can be read."""
    try:
        text = Path(path).read_text(encoding="ascii", errors="replace")
        ends = [expires_s(ssl.PEM_cert_to_DER_cert(pem)) for pem in _CERTIFICATE.findall(text)]
    except (OSError, ValueError):
        return None
    return min(ends, default=None)


def own_name(config: Config) -> str:
    """The subject of the broker's certificate; empty if the file cannot be read."""
    try:
        with open(config.ssl_keystore_location or "", encoding="utf-8") as file:  # noqa: PTH123
            text = file.read()
        begin = text.index("-----BEGIN CERTIFICATE-----")
        end = text.index("-----END CERTIFICATE-----", begin) + len("-----END CERTIFICATE-----")
        return subject_name(ssl.PEM_cert_to_DER_cert(text[begin:end]))
    except (OSError, ValueError):
        return ""


def _why(error: Exception) -> str:
    reason = error.reason if isinstance(error, ssl.SSLError) else getattr(error, "strerror", "")
    return f" ({reason})" if reason else ""


def _stamps(config: Config) -> tuple[tuple[int, int] | None, ...]:
    """When each file was written, and which one it is; None for one that is not there."""
    return tuple(
        _stamp(path)
        for path in (config.ssl_keystore_location, config.ssl_truststore_location)
        if path is not None
    )


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_ino)
