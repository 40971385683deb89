"""Log-ins by OAUTHBEARER. Numbers are those of the vectors in the specification."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from echoless.protocol.errors import ErrorCode
from echoless.protocol.sasl.oauthbearer import bearer_message
from tests.broker.authentication.log_in import (
    PASSWORD,
    authenticate,
    ends,
    exchange_raw,
    handshake,
    log_in,
    with_users,
)
from tests.broker.authentication.test_sasl import Later, later, metadata
from tests.support.in_process import Running
from tests.support.native_client import NativeConnection
from tests.support.principals import Principals
from tests.support.raw_client import RawConnection
from tests.support.tokens import Issuer, claims, private_key, public_row, unsecured

__all__ = ["later"]

FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED
REFUSED = b'{"status":"invalid_token"}'
AT_ONCE = {"connection_failed_authentication_delay_ms": "0"}
UNSECURED = {
    **AT_ONCE,
    "sasl_enabled_mechanisms": "OAUTHBEARER",
    "oauthbearer_unsecured": "true",
}


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path / "issuer")


async def shown(running: Running, token: str, user: str = "") -> tuple[RawConnection, Any]:
    """A connection that has shown the token, and the answer."""
    connection = await RawConnection.open(running.kafka_address)
    assert (await handshake(connection, "OAUTHBEARER")).error_code == 0
    return connection, await authenticate(connection, bearer_message(token, user))


async def is_refused(running: Running, token: str) -> None:
    """0 and the JSON; then 58 for whatever comes next, and the end (29)."""
    logins = running.broker.metrics.logins_total
    connection, answer = await shown(running, token)
    assert (answer.error_code, answer.auth_bytes) == (0, REFUSED)
    assert not answer.session_lifetime
    last = await authenticate(connection, b"\x01")
    assert (last.error_code, last.error_message) == (FAILED, REFUSED.decode())
    await ends(connection)
    assert running.broker.metrics.logins_total == logins


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA"])
async def test_a_log_in(tmp_path: Path, algorithm: str) -> None:
    """The principal is the token's sub, and the session lasts as long as the token."""
    issuer, principals = Issuer(tmp_path / "issuer", algorithm), Principals()
    async with with_users(tmp_path, access=principals, **issuer.settings()) as running:
        connection, answer = await shown(running, issuer.token(scope="a b"))
        assert (answer.error_code, answer.error_message, answer.auth_bytes) == (0, None, b"")
        assert 500 < answer.session_lifetime.total_seconds() <= 600
        assert (await metadata(connection)).brokers
        await connection.close()
    assert principals.seen == ["User:alice"]


@pytest.mark.parametrize(
    "ends_by",
    [("0", 2, 2), ("1000", 600, 1), ("60000", 2, 2), ("0", 1e9, 2_147_483.647)],
)
async def test_the_session_ends_with_the_token(
    tmp_path: Path, issuer: Issuer, later: Later, ends_by: tuple[str, float, float]
) -> None:
    """Or with connections_max_reauth_ms, if that is shorter (28)."""
    reauth_ms, lasts_s, lifetime_s = ends_by
    settings = issuer.settings(connections_max_reauth_ms=reauth_ms)
    async with with_users(tmp_path, **settings) as running:
        connection, answer = await shown(running, issuer.token(lasts_s=lasts_s))
        assert 0 < answer.session_lifetime.total_seconds() <= lifetime_s
        later(lifetime_s + 1)
        connection.send(3, 1, b"\xff" * 4, flexible=False)
        await ends(connection)
        assert running.broker.metrics.sessions_expired_total == 1


async def test_it_is_renewed_by_a_new_token(tmp_path: Path, issuer: Issuer, later: Later) -> None:
    """The user stays the same, and so does the connection; connections_max_reauth_ms is not needed."""
    async with with_users(tmp_path, **issuer.settings(), **AT_ONCE) as running:
        connection, _ = await shown(running, issuer.token(lasts_s=60))
        later(2)
        assert (await handshake(connection, "OAUTHBEARER")).error_code == 0
        answer = await authenticate(connection, bearer_message(issuer.token(lasts_s=120)))
        assert 60 < answer.session_lifetime.total_seconds() <= 120
        assert (await metadata(connection)).brokers
        later(2)
        assert (await handshake(connection, "OAUTHBEARER")).error_code == 0
        answer = await authenticate(connection, bearer_message(issuer.token("bob")))
        assert answer.error_code == FAILED
        assert "Cannot change principals" in answer.error_message
        await ends(connection)


async def test_the_authorization_id(tmp_path: Path, issuer: Issuer) -> None:
    """It may be the user's own; another's is 58 at once (CVE-2017-12610)."""
    async with with_users(tmp_path, **issuer.settings(), **AT_ONCE) as running:
        connection, answer = await shown(running, issuer.token(), "alice")
        assert answer.error_code == 0
        await connection.close()
        connection, answer = await shown(running, issuer.token(), "bob")
        assert answer.error_code == FAILED
        assert "different from username" in answer.error_message
        await ends(connection)


async def test_tokens_without_requests(tmp_path: Path, issuer: Issuer) -> None:
    """After a handshake of version 0; the JSON comes so, too, and then the end."""
    async with with_users(tmp_path, **issuer.settings(), **AT_ONCE) as running:
        connection = await RawConnection.open(running.kafka_address)
        await handshake(connection, "OAUTHBEARER", 0)
        assert await exchange_raw(connection, bearer_message(issuer.token())) == b""
        assert (await metadata(connection)).brokers
        await connection.close()
        connection = await RawConnection.open(running.kafka_address)
        await handshake(connection, "OAUTHBEARER", 0)
        assert await exchange_raw(connection, bearer_message("a.b.c")) == REFUSED
        assert await exchange_raw(connection, b"\x01") is None
        await connection.close()


@pytest.mark.parametrize("version", range(3))
async def test_a_refusal_is_short_whatever_the_client_has_sent(
    tmp_path: Path, issuer: Issuer, caplog: pytest.LogCaptureFixture, version: int
) -> None:
    """The names of extensions come back in the answer, whose text has 32 KiB at most in older versions."""
    message = b"n,,\x01auth=Bearer a\x01" + b"a" * 60_000 + b"=b\x01\x01"
    async with with_users(tmp_path, **issuer.settings()) as running:
        connection = await RawConnection.open(running.kafka_address)
        await handshake(connection, "OAUTHBEARER")
        answer = await authenticate(connection, message, version)
        await ends(connection)
    assert answer.error_code == 58
    assert "1 extensions are invalid: aaaa" in answer.error_message
    assert len(answer.error_message) <= 1000
    assert max(map(len, caplog.messages)) <= 1500
    assert "bug" not in caplog.text


async def test_the_native_port(tmp_path: Path, issuer: Issuer) -> None:
    """Takes tokens as the Kafka port does."""
    async with with_users(tmp_path, **issuer.settings(), **AT_ONCE) as running:
        for token, answers in ((issuer.token(), [b""]), ("a.b.c", [REFUSED, None])):
            connection = await NativeConnection.open(running.native_address)
            for expected in answers:
                answer = await connection.call(
                    "sasl", correlation_id=1, mechanism="OAUTHBEARER", data=bearer_message(token)
                )
                if expected is None:
                    assert answer["error"]["code"] == FAILED
                else:
                    assert (answer["data"], answer["is_complete"]) == (expected, expected == b"")
            await connection.close()


def _hmac_signed(issuer: Issuer) -> str:
    """Signed by the public key, taken for a shared secret."""
    secret = private_key("RS256").public_key()
    pem = secret.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head = unsecured(claims(), {"alg": "HS256", "kid": issuer.key_id})[:-1]
    signature = hmac.digest(pem, head.encode(), hashlib.sha256)
    return f"{head}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def _cut(token: str, parts: int) -> str:
    return ".".join(token.split(".")[:parts])


FORGED = {
    "nothing": lambda issuer: ".",
    "garbage": lambda issuer: "a.b.c",
    "two parts": lambda issuer: _cut(issuer.token(), 2),
    "no signature": lambda issuer: _cut(issuer.token(), 2) + ".",
    "a changed signature": lambda issuer: issuer.token()[:-8] + "AAAAAAAA",
    "other claims": lambda issuer: ".".join(
        one.split(".")[part]
        for part, one in enumerate([issuer.token(), issuer.token("root"), issuer.token()])
    ),
    "wrong key": lambda issuer: issuer.token(number=1),
    "unknown kid": lambda issuer: issuer.token(header={"kid": "other"}),
    "no kid": lambda issuer: issuer.token(header={"kid": None}),
    "wrong iss": lambda issuer: issuer.token(iss="https://evil.example"),
    "no iss": lambda issuer: issuer.token(iss=None),
    "wrong aud": lambda issuer: issuer.token(aud=["others"]),
    "no aud": lambda issuer: issuer.token(aud=None),
    "expired": lambda issuer: issuer.token(lasts_s=-40),
    "no exp": lambda issuer: issuer.token(exp=None),
    "endless exp": lambda issuer: issuer.token(exp=math.inf),
    "exp of a list": lambda issuer: issuer.token(exp=[]),
    "not yet": lambda issuer: issuer.token(nbf=int(time.time()) + 60),
    "from the future": lambda issuer: issuer.token(iat=int(time.time()) + 60),
    "no sub": lambda issuer: issuer.token(sub=None),
    "empty sub": lambda issuer: issuer.token(sub=" "),
    "half a character as sub": lambda issuer: issuer.token("\ud800"),
    "scope of a number": lambda issuer: issuer.token(scope=7),
    "crit": lambda issuer: issuer.token(header={"crit": ["exp"]}),
    "alg none": lambda issuer: unsecured(claims(), {"alg": "none", "kid": issuer.key_id}),
    "HS256 by the public key": _hmac_signed,
    "alg of another key": lambda issuer: (
        unsecured(claims(), {"alg": "ES256", "kid": "first"}) + "AAAA"
    ),
    "alg of a list": lambda issuer: unsecured(claims(), {"alg": ["RS256"], "kid": "first"}) + "AA",
    "deep": lambda issuer: (
        "." + base64.urlsafe_b64encode(b"[" * 20_000).decode().rstrip("=") + "." + "AAAA"
    ),
    "deep header": lambda issuer: (
        base64.urlsafe_b64encode(b"[" * 20_000).decode().rstrip("=") + ".e30.AAAA"
    ),
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
async def test_a_token_that_is_not_valid(
    tmp_path: Path, issuer: Issuer, forged: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """0 with JSON, and 58 (CVE-2026-110985, CVE-2026-33557); the log says why, without the token."""
    async with with_users(tmp_path, **issuer.settings(), **AT_ONCE) as running:
        token = forged(issuer)
        await is_refused(running, token)
        connection, answer = await shown(running, issuer.token())
        assert answer.error_code == 0
        await connection.close()
    assert "refusing a bearer token from 127.0.0.1" in caplog.text
    assert len(token) < 10 or token not in caplog.text
    assert "bug" not in caplog.text


async def test_other_claims_may_name_user_and_scope(tmp_path: Path, issuer: Issuer) -> None:
    """By sasl_oauthbearer_sub_claim_name and sasl_oauthbearer_scope_claim_name."""
    names = {
        "sasl_oauthbearer_sub_claim_name": "email",
        "sasl_oauthbearer_scope_claim_name": "scp",
    }
    principals = Principals()
    settings = issuer.settings(**names)
    async with with_users(tmp_path, access=principals, **settings, **AT_ONCE) as running:
        connection, _ = await shown(running, issuer.token(email="a@b.example", scope=7))
        await metadata(connection)
        await connection.close()
        await is_refused(running, issuer.token())
        await is_refused(running, issuer.token(email="a@b.example", scp=[""]))
    assert principals.seen == ["User:a@b.example"]


async def test_a_little_skew_is_allowed(tmp_path: Path, issuer: Issuer) -> None:
    """Such a session ends at once, but is no session without an end."""
    async with with_users(tmp_path, **issuer.settings()) as running:
        connection, answer = await shown(running, issuer.token(lasts_s=-10))
        assert answer.error_code == 0
        assert answer.session_lifetime.total_seconds() == 0.001
        await connection.close()


async def test_unsecured_tokens(tmp_path: Path) -> None:
    """Are taken where the configuration says so, and no others."""
    issuer = Issuer(tmp_path / "issuer")
    async with with_users(tmp_path, **UNSECURED) as running:
        connection, answer = await shown(running, unsecured(claims(iss=None, aud=None)))
        assert answer.error_code == 0
        assert 0 < answer.session_lifetime.total_seconds() <= 600
        await connection.close()
        now = int(time.time())
        for token in (
            issuer.token(),
            unsecured(claims()) + "AAAA",
            unsecured(claims(), {"alg": "None"}),
            unsecured(claims(lasts_s=-40)),
            unsecured(claims(exp=None)),
            unsecured(claims(sub=None)),
            unsecured(claims(nbf=now + 600, exp=now + 5)),
            unsecured(claims(iat=now + 5, exp=now + 5)),
        ):
            await is_refused(running, token)


async def test_a_user_of_a_password_is_another_mechanism(tmp_path: Path, issuer: Issuer) -> None:
    """Both may be on; a token is no password, and a password no token."""
    async with with_users(tmp_path, "alice", **issuer.settings(), **AT_ONCE) as running:
        connection = await RawConnection.open(running.kafka_address)
        assert (await log_in(connection, "alice", PASSWORD)).error_code == 0
        await connection.close()
        connection = await RawConnection.open(running.kafka_address)
        assert (await log_in(connection, "alice", issuer.token())).error_code == FAILED
        await connection.close()
        connection = await RawConnection.open(running.kafka_address)
        await handshake(connection, "OAUTHBEARER")
        assert (
            await authenticate(connection, f"\0alice\0{PASSWORD}".encode())
        ).error_code == FAILED
        await connection.close()


@pytest.mark.slow
def test_nothing_of_it_is_imported_without_it(tmp_path: Path) -> None:
    """Neither PyJWT nor cryptography, by a broker with other mechanisms."""
    program = (
        "import asyncio, sys\nfrom pathlib import Path\n"
        "from tests.broker.authentication.log_in import with_users\n"
        "async def main():\n"
        "    async with with_users(Path(sys.argv[1])):\n"
        "        print({'jwt', 'cryptography', 'echoless.broker.authentication.bearer'} & set(sys.modules))\n"
        "asyncio.run(main())\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "set()\n"


def test_the_key_set_of_the_tests_is_no_secret(issuer: Issuer) -> None:
    """The helper itself publishes public keys alone."""
    (row,) = json.loads(issuer.path.read_text())["keys"]
    assert row == public_row("RS256", "first")
    assert not {"d", "p", "q"} & row.keys()
