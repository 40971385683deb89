"""The mechanisms by which a client may log in, and how an exchange fails."""

from __future__ import annotations

import enum
from typing import Final

TOKEN_BYTES_MAX: Final = 64 * 1024
"""Limit on one token: names, passwords and signed claims are short."""


class Mechanism(enum.StrEnum):
    """The mechanisms that are served, by their registered names."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"

    @property
    def sends_secret(self) -> bool:
        """Whether who reads along can log in, too."""
        return self in {Mechanism.PLAIN, Mechanism.OAUTHBEARER}


PASSWORD_MECHANISMS: Final = (
    Mechanism.PLAIN,
    Mechanism.SCRAM_SHA_256,
    Mechanism.SCRAM_SHA_512,
)
"""Mechanisms that compare a password with the credential of a user."""


class SaslError(Exception):
    """The exchange has failed. The message says neither whether the user exists nor what was wrong."""


def failed(mechanism: Mechanism) -> SaslError:
    """The failure that says as much as Kafka does."""
    return SaslError(
        "Authentication failed during authentication due to invalid credentials with SASL "
        f"mechanism {mechanism}"
    )


def refused_authorization_id() -> SaslError:
    """The failure of a client that wants to act as another user."""
    return SaslError(
        "Authentication failed: Client requested an authorization id that is different from username"
    )
