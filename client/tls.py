"""TLS contexts of clients, and what a failed handshake means."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from echoless.client.connection_errors import AuthenticationError
from echoless.client.security import Tls

_RESET: tuple[type[ssl.SSLError], ...] = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""The other side has gone, as it may without TLS: no verdict."""


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Reads the files, for which it may take some ms. Raises `AuthenticationError`."""
    context = trusting_context(tls.ca_location, tls.ca_pem, "ssl.ca")
    context.check_hostname = tls.checks_host_name
    if tls.certificate_location:
        key = tls.key_location or tls.certificate_location
        _load(context, tls, tls.certificate_location, key)
    elif tls.certificate_pem:
        _load_text(context, tls)
    return context


def trusting_context(place: str, pem: str, option: str) -> ssl.SSLContext:
    """Trusts the authorities in that file or directory, or in that text; with neither, the system's.

    `option` begins the names of both in messages. Raises `AuthenticationError`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if pem:
            context.load_verify_locations(cadata=pem)
        elif not place:
            context.load_default_certs()
        elif Path(place).is_dir():
            context.load_verify_locations(capath=place)
        else:
            context.load_verify_locations(cafile=place)
    except (OSError, ValueError) as error:
        name = f"{option}.pem" if pem else f"{option}.location: {place}"
        raise AuthenticationError(f"{name}: {_file_reason(error)}") from error
    return context


def _load(context: ssl.SSLContext, tls: Tls, certificate: str, key: str) -> None:
    try:
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(certificate, key, password=lambda: tls.key_password)
    except (OSError, ValueError) as error:
        place = f"ssl.certificate.location: {tls.certificate_location}"
        name = "ssl.certificate.pem" if tls.certificate_pem else place
        hint = "; is ssl.key.password right?" if isinstance(error, ssl.SSLError) else ""
        raise AuthenticationError(f"{name}: {_file_reason(error)}{hint}") from error


def _load_text(context: ssl.SSLContext, tls: Tls) -> None:
    """OpenSSL reads keys from files only: this one is in memory, and has no name."""
    descriptor = os.memfd_create("echoless-key", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, f"{tls.key_pem}\n{tls.certificate_pem}\n".encode())
        path = f"/proc/self/fd/{descriptor}"
        _load(context, tls, path, path)
    finally:
        os.close(descriptor)


def _file_reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) or not isinstance(error, OSError):
        return "it cannot be read as PEM"
    return error.strerror or str(error) or type(error).__name__


def handshake_failure(error: BaseException, address: str) -> AuthenticationError | None:
    """The verdict in an exception of a TLS connection; None if it says nothing of certificates."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return AuthenticationError(
            f"the certificate of {address} is refused: {error.verify_message}; "
            f"{_remedy(error.verify_message)}"
        )
    if isinstance(error, ssl.SSLError) and not isinstance(error, _RESET):
        reason = (error.reason or str(error)).lower().replace("_", " ")
        hint = "does it speak TLS there?" if "wrong version" in reason else _ALERTS
        return AuthenticationError(f"TLS with {address} failed: {reason}; {hint}")
    return None


_ALERTS = "if it asks for a client certificate, set ssl.certificate.location"


def _remedy(reason: str) -> str:
    text = reason.lower()
    if "expired" in text:
        return "the broker needs a new one"
    if "mismatch" in text or "not valid for" in text:
        return "connect by a name that is in it, or set ssl.endpoint.identification.algorithm=none"
    return "does ssl.ca.location hold the authority that signed it? (Java and Spark call it ssl.truststore.location)"
