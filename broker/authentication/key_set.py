"""A JSON Web Key Set (RFC 7517): the public keys by which an issuer signs tokens. Immutable."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

_KEY_TYPES: Final = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""The type of the keys of an algorithm, by its first two letters."""
_CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
_RSA_BITS_MIN: Final = 2048
_KEYS_MAX: Final = 1000
_PRIVATE: Final = "d"
"""The member that only a private key has."""


class KeySet:
    """Keys, each for one algorithm, by id and algorithm."""

    def __init__(self, keys: Mapping[tuple[str, str], jwt.PyJWK], refused: Sequence[str]) -> None:
        self._keys = keys
        self.refused = refused
        """Why keys of the document are not used."""

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def ids(self) -> list[str]:
        """The ids of the keys, sorted."""
        return sorted({key_id for key_id, _ in self._keys})

    def find(self, key_id: object, algorithm: str) -> jwt.PyJWK | None:
        """The key that has signed what names this id and algorithm."""
        return self._keys.get((key_id, algorithm)) if isinstance(key_id, str) else None


def read_key_set(data: bytes, algorithms: Sequence[str]) -> KeySet:
    """The keys for these algorithms. Raises `ValueError` for what is no key set."""
    try:
        rows = json.loads(data)["keys"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError("it is no JSON Web Key Set") from error
    if not isinstance(rows, list) or len(rows) > _KEYS_MAX:
        raise ValueError(f"its keys are no list, or more than {_KEYS_MAX}")
    keys: dict[tuple[str, str], jwt.PyJWK] = {}
    refused: list[str] = []
    for position, row in enumerate(rows):
        try:
            for algorithm in _algorithms(row, algorithms):
                name, key = (row["kid"], algorithm), _key(row, algorithm)
                if keys.setdefault(name, key) is not key:
                    refused.append(f"key {position}: a second one {row['kid']!r} for {algorithm}")
        except (ValueError, TypeError, KeyError, jwt.PyJWTError) as error:
            refused.append(f"key {position}: {error}")
    return KeySet(keys, refused)


def _algorithms(row: Any, allowed: Sequence[str]) -> list[str]:
    """The allowed algorithms that the key may be used for. Raises `ValueError`."""
    if not isinstance(row, dict) or not isinstance(row.get("kid"), str):
        raise ValueError("it has no kid")  # noqa: TRY004 - of a document, not of an argument
    if _PRIVATE in row or row.get("kty") == "oct":
        raise ValueError("it is a secret key, which no one should publish")
    if row.get("use", "sig") != "sig" or "verify" not in row.get("key_ops", ["verify"]):
        raise ValueError("it is not for signatures")
    found = [
        one
        for one in allowed
        if row.get("alg", one) == one
        and row.get("kty") == _KEY_TYPES[one[:2]]
        and row.get("crv") in {_CURVES.get(one), "Ed25519" if one == "EdDSA" else None}
    ]
    if not found:
        raise ValueError("it fits none of sasl_oauthbearer_algorithms")
    return found


def _key(row: Mapping[str, Any], algorithm: str) -> jwt.PyJWK:
    key = jwt.PyJWK(dict(row), algorithm)
    if isinstance(key.key, RSAPublicKey) and key.key.key_size < _RSA_BITS_MIN:
        raise ValueError(f"RSA keys have at least {_RSA_BITS_MIN} bits")
    return key
