"""An issuer of the test run: keys, a key set in a file, and the tokens that it signs.

issuer = Issuer(tmp_path)
config = issuer.settings()
token = issuer.token("alice")
"""

from __future__ import annotations

import base64
import functools
import json
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER = "https://issuer.example"
AUDIENCE = "echoless"


@functools.cache
def private_key(algorithm: str, number: int = 0) -> Any:
    """A key for this algorithm, the same for the same number: RSA keys take a while."""
    if algorithm.startswith("ES"):
        return ec.generate_private_key(ec.SECP256R1())
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(65537, 1024 if number < 0 else 2048)


def public_row(algorithm: str, key_id: str, number: int = 0, **more: Any) -> dict[str, Any]:
    """The key as a key set has it."""
    kinds: dict[str, Any] = {"ES": ECAlgorithm, "Ed": OKPAlgorithm}
    kind = kinds.get(algorithm[:2], RSAAlgorithm)
    row = kind.to_jwk(private_key(algorithm, number).public_key(), as_dict=True)
    row.pop("key_ops", None)
    return {**row, "kid": key_id, "alg": algorithm, **more}


def claims(user: str = "alice", *, lasts_s: float = 600, **more: Any) -> dict[str, Any]:
    """The claims of a good token; None leaves one out."""
    found = {
        "sub": user,
        "iss": ISSUER,
        "aud": AUDIENCE,
        "exp": int(time.time() + lasts_s),
        **more,
    }
    return {name: value for name, value in found.items() if value is not None}


def unsecured(said: dict[str, Any], header: dict[str, Any] | None = None) -> str:
    """A token that no one has signed."""
    parts = ({"alg": "none"} if header is None else header, said)
    encoded = (base64.urlsafe_b64encode(json.dumps(one).encode()).decode() for one in parts)
    return ".".join(one.rstrip("=") for one in encoded) + "."


class Issuer:
    """Signs tokens, and publishes the keys in a file."""

    def __init__(self, directory: Path, algorithm: str = "RS256") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.algorithm = algorithm
        self.key_id = "first"
        self.path = directory / "keys.json"
        self.publish(public_row(algorithm, self.key_id))

    def publish(self, *rows: dict[str, Any]) -> None:
        """Replaces the key set."""
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps({"keys": rows}))
        fresh.replace(self.path)

    def settings(self, **more: str) -> dict[str, str]:
        """Configuration names of a broker that takes these tokens."""
        return {
            "sasl_enabled_mechanisms": "OAUTHBEARER,PLAIN,SCRAM-SHA-256",
            "sasl_oauthbearer_jwks_endpoint_url": self.path.as_uri(),
            "sasl_oauthbearer_expected_issuer": ISSUER,
            "sasl_oauthbearer_expected_audience": AUDIENCE,
            **more,
        }

    def token(
        self,
        user: str = "alice",
        *,
        number: int = 0,
        header: dict[str, Any] | None = None,
        **said: Any,
    ) -> str:
        """A token that the key with this number has signed."""
        key = private_key(self.algorithm, number)
        headers = {"kid": self.key_id, **(header or {})}
        headers = {name: value for name, value in headers.items() if value is not None}
        return jwt.encode(claims(user, **said), key, self.algorithm, headers)
