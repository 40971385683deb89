"""Security settings of clients, by librdkafka's names: given to it, or written to a file for a program.

alice = tls_settings(authority) | log_in("SCRAM-SHA-256", "alice", "secret")
program.run("produce", security=write_settings(tmp_path / "alice", alice), ...)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.support.certificates import Authority


def tls_settings(authority: Authority, certificate: Path | None = None) -> dict[str, str]:
    """Trusts the authority alone, checks the host, and shows the certificate if there is one."""
    settings = {"security.protocol": "SSL", "ssl.ca.location": str(authority.path)}
    if certificate is not None:
        settings |= {
            "ssl.certificate.location": str(certificate),
            "ssl.key.location": str(certificate),
        }
    return settings


def log_in(mechanism: str, user: str, password: str, *, tls: bool = True) -> dict[str, str]:
    """Logs in as the user; over TLS, if added to `tls_settings`."""
    return {
        "security.protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def write_settings(path: Path, settings: Mapping[str, str]) -> Path:
    """Writes them as `--security` of the client programs reads them; returns the path."""
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path
