"""An authority of the test run, and the certificates that it signs, as PEM files.

authority = Authority(tmp_path)
broker = Echoless(tmp_path, authority.listener("PLAINTEXT:SSL"))
context = authority.client_context()
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

HOSTS = ("localhost", "127.0.0.1", "::1")


class Authority:
    """Signs certificates; each file has the key and the chain in one."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._authority = trustme.CA()
        self.path = directory / "authority.pem"
        self._authority.cert_pem.write_to_path(str(self.path))

    def issue(
        self,
        name: str,
        *hosts: str,
        unit: str | None = None,
        organization: str | None = None,
        to: Path | None = None,
        is_expired: bool = False,
    ) -> Path:
        """A certificate with this common name for these hosts (loopback, if none), written at once."""
        yesterday = datetime.now(tz=UTC) - timedelta(days=1)
        issued = self._authority.issue_cert(
            *(hosts or HOSTS),
            common_name=name,
            organization_unit_name=unit,
            organization_name=organization,
            not_before=yesterday - timedelta(days=1),
            not_after=yesterday if is_expired else None,
        )
        path = to or self._directory / f"{name}.pem"
        fresh = path.with_suffix(".new")
        chain = b"".join(one.bytes() for one in issued.cert_chain_pems)
        fresh.write_bytes(_pkcs8(issued.private_key_pem.bytes()) + chain)
        fresh.replace(path)
        return path

    def settings(self, protocols: str, **more: str) -> dict[str, str]:
        """Configuration names of a broker with these listeners, and a certificate of its own."""
        path = self._directory / "broker.pem"
        if not path.exists():
            self.issue("broker", to=path)
        return {
            "listener_security_protocol_map": protocols,
            "ssl_keystore_location": str(path),
            "ssl_truststore_location": str(self.path),
            **more,
        }

    def client_context(self, certificate: Path | None = None) -> ssl.SSLContext:
        """Trusts this authority alone, checks the host, and shows the certificate if asked."""
        context = ssl.create_default_context(cafile=str(self.path))
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context


def _pkcs8(key: bytes) -> bytes:
    """The key in the only form that Java reads."""
    form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return load_pem_private_key(key, password=None).private_bytes(*form)
