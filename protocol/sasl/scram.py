"""SCRAM (RFC 5802, RFC 7677): credentials, and what both sides compute.

The server keeps no password: from `StoredKey` it can check a proof, and with `ServerKey` prove that it knows the
user; neither can be used to log in elsewhere.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Final, NamedTuple

from echoless.protocol.sasl.mechanism import Mechanism

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
_HASHES: Final = {Mechanism.SCRAM_SHA_256: "sha256", Mechanism.SCRAM_SHA_512: "sha512"}
_SALT_BITS: Final = 130
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_ESCAPED: Final = {"=2C": ",", "=3D": "="}
_NAME: Final = re.compile(r"(?:[^\0=,]|=2C|=3D)+")


class ScramCredential(NamedTuple):
    """The part of a user's password that a server keeps for one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        """Leaves the keys out."""
        return f"ScramCredential(iterations={self.iterations})"


def hash_name(mechanism: Mechanism) -> str:
    """The name by which `hashlib` knows the mechanism's hash."""
    return _HASHES[mechanism]


def salted_password(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Takes milliseconds on purpose."""
    return hashlib.pbkdf2_hmac(hash_name(mechanism), password.encode(), salt, iterations)


def credential_of(
    mechanism: Mechanism, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """The credential of a salted password."""
    stored_key = digest(mechanism, keyed(mechanism, salted, b"Client Key"))
    return ScramCredential(salt, stored_key, keyed(mechanism, salted, b"Server Key"), iterations)


def new_credential(mechanism: Mechanism, password: str, iterations: int) -> ScramCredential:
    """The credential of a password, with a salt of its own."""
    salt = new_salt()
    salted = salted_password(mechanism, password, salt, iterations)
    return credential_of(mechanism, salted, salt, iterations)


def new_salt() -> bytes:
    """A salt of one's own."""
    return salt_of(secrets.randbits(_SALT_BITS))


def salt_of(number: int) -> bytes:
    """A salt as Kafka's tools make them: 130 bits in base 36."""
    number %= 1 << _SALT_BITS
    digits = []
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits)).encode()


def fits_password(mechanism: Mechanism, credential: ScramCredential, password: str) -> bool:
    """Whether the password is the credential's. Takes milliseconds on purpose."""
    salted = salted_password(mechanism, password, credential.salt, credential.iterations)
    found = credential_of(mechanism, salted, credential.salt, credential.iterations)
    return hmac.compare_digest(found.stored_key, credential.stored_key)


def keyed(mechanism: Mechanism, key: bytes, data: bytes) -> bytes:
    """`HMAC(key, data)`."""
    return hmac.digest(key, data, hash_name(mechanism))


def digest(mechanism: Mechanism, data: bytes) -> bytes:
    """`H(data)`."""
    return hashlib.new(hash_name(mechanism), data).digest()


def xor(one: bytes, other: bytes) -> bytes:
    """Bytes of the same length, combined."""
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def escaped_name(user: str) -> str:
    """A user's name as the first message has it."""
    return user.replace("=", "=3D").replace(",", "=2C")


def unescaped_name(text: str) -> str | None:
    """None for what is no name."""
    if not _NAME.fullmatch(text):
        return None
    return re.sub("=2C|=3D", lambda match: _ESCAPED[match[0]], text)
