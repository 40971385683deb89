"""A client's way to its brokers: in plain text or by TLS, and the user it logs in as.

`security_of` (`client/security_options.py`) makes one from options by Kafka's names.

Secrets are left out of `repr`, and of every message. Files are read when a connection is opened, so that
renewed certificates and tokens are used by the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from echoless.protocol.sasl.mechanism import Mechanism

Extensions = tuple[tuple[str, str], ...]
"""Names and values that are sent beside a token (RFC 7628)."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Login:
    """A log-in with a password: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."""

    mechanism: Mechanism
    user: str
    password: str = field(repr=False)

    def __str__(self) -> str:
        return f"user {self.user}"


@dataclass(slots=True, frozen=True, kw_only=True)
class TokenEndpoint:
    """A server that issues tokens to clients (RFC 6749, section 4.4)."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    encodes_header: bool = False
    """Whether id and secret are URL-encoded in the header, as RFC 6749 has it, and Kafka's clients by choice."""
    ca_location: str = ""
    """The authorities of its certificate, which are the system's if neither this nor `ca_pem` is given."""
    ca_pem: str = ""


@dataclass(slots=True, frozen=True, kw_only=True)
class TokenLogin:
    """A log-in by OAUTHBEARER, with a token from exactly one of `token`, `file`, `endpoint` and `callback`."""

    token: str = field(default="", repr=False)
    file: str = ""
    """A path, which is read at each log-in."""
    endpoint: TokenEndpoint | None = None
    callback: Callable[[], str] | None = None
    """Returns a token. Called in a thread, by one at a time, when a token is needed and the last one is about to end."""
    extensions: Extensions = ()

    def __str__(self) -> str:
        if self.endpoint is not None:
            return f"the token of client {self.endpoint.client_id} from {self.endpoint.url}"
        return f"the token in {self.file}" if self.file else "the token given"

    @property
    def mechanism(self) -> Mechanism:
        return Mechanism.OAUTHBEARER


@dataclass(slots=True, frozen=True, kw_only=True)
class Tls:
    """The authorities to trust, and the certificate to show: PEM, in a file or as text."""

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
    """Whether the broker's certificate must name the host that is connected to."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Security:
    """The way to reach brokers: in plain text unless `tls` is given, without a log-in unless `login` is."""

    tls: Tls | None = None
    login: Login | TokenLogin | None = None

    @property
    def protocol(self) -> str:
        """Kafka's name of the security protocol."""
        if self.login is None:
            return "PLAINTEXT" if self.tls is None else "SSL"
        return "SASL_PLAINTEXT" if self.tls is None else "SASL_SSL"


NO_SECURITY: Final = Security()
