"""How a client reaches its brokers: in plain text or by TLS, and who it says it is.

`security_of` (`client/security_options.py`) makes one from options by Kafka's names.

Secrets are left out of `repr`, and of every message. Files are read when a connection is opened, so that
renewed certificates are used by the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from protocol.sasl.mechanism import Mechanism


@dataclass(slots=True, frozen=True, kw_only=True)
class Login:
    """A user, and how it logs in."""

    mechanism: Mechanism
    user: str
    password: str = field(repr=False)


@dataclass(slots=True, frozen=True, kw_only=True)
class Tls:
    """Whom to trust, and what certificate to show. PEM, in a file or as text."""

    ca_location: str = ""
    """A file or a directory; with neither this nor `ca_pem`: the system's authorities."""
    ca_pem: str = ""
    certificate_location: str = ""
    """Holds the key as well, unless `key_location` is set."""
    key_location: str = ""
    certificate_pem: str = ""
    key_pem: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)
    checks_host_name: bool = True


@dataclass(slots=True, frozen=True, kw_only=True)
class Security:
    """Plain text without a log-in, unless one is given."""

    tls: Tls | None = None
    login: Login | None = None

    @property
    def protocol(self) -> str:
        """Kafka's name of the security protocol."""
        if self.login is None:
            return "PLAINTEXT" if self.tls is None else "SSL"
        return "SASL_PLAINTEXT" if self.tls is None else "SASL_SSL"


NO_SECURITY: Final = Security()
