"""SCRAM: RFC 7677's exchange, and everything that a client may do wrong."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.sasl.mechanism import Mechanism, SaslError
from echoless.protocol.sasl.scram import (
    ScramCredential,
    credential_of,
    escaped_name,
    fits_password,
    new_credential,
    salted_password,
    unescaped_name,
)
from echoless.protocol.sasl.scram_client import ScramClient
from echoless.protocol.sasl.scram_server import Found, ScramServer

SHA_256, SHA_512 = Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512
RFC_SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"


def rfc_credential() -> ScramCredential:
    salted = salted_password(SHA_256, "pencil", RFC_SALT, 4096)
    return credential_of(SHA_256, salted, RFC_SALT, 4096)


def server(*, is_real: bool = True, credential: ScramCredential | None = None) -> ScramServer:
    found = Found(credential or rfc_credential(), is_real)
    return ScramServer(SHA_256, lambda _user: found, lambda: SERVER_NONCE)


def proof(first_bare: str, server_first: str, final_bare: str) -> str:
    """Computed here independently of the code that checks it."""
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", RFC_SALT, 4096)
    key = hmac.digest(salted, b"Client Key", "sha256")
    message = f"{first_bare},{server_first},{final_bare}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), message, "sha256")
    return base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()


def test_the_exchange_of_rfc_7677() -> None:
    """Byte for byte (vector 13)."""
    exchange = server()
    answer = exchange.first(f"n,,n=user,r={CLIENT_NONCE}".encode())
    assert answer == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    last = (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert exchange.final(last) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert exchange.user == "user"


def attempt(
    first: str,
    *,
    nonce: Callable[[str], str] = str,
    binding: str = "n,,",
    exchange: ScramServer | None = None,
) -> bytes:
    """Plays a client that knows the password, and otherwise does what the test says."""
    exchange = exchange or server()
    server_first = exchange.first(first.encode()).decode()
    sent = server_first.split(",")[0].removeprefix("r=")
    bare = f"c={base64.b64encode(binding.encode()).decode()},r={nonce(sent)}"
    first_bare = first.split(",", 2)[2]
    return exchange.final(f"{bare},p={proof(first_bare, server_first, bare)}".encode())


@pytest.mark.parametrize(
    ("first", "binding"),
    [
        ("n,,n=user,r=abc,foo=bar", "n,,"),  # vector 18
        ("n,a=user,n=user,r=abc", "n,a=user,"),
        ("y,,n=user,r=abc", "y,,"),
        ("n,,m=x,n=user,r=abc", "n,,"),
        ("n,,n=user,r=abc,tokenauth=false", "n,,"),
    ],
)
def test_what_clients_may_send_besides(first: str, binding: str) -> None:
    """Unknown extensions are ignored, the user's own name may be the authorization id."""
    assert attempt(first, binding=binding).startswith(b"v=")


def test_a_nonce_that_comes_doubled_is_taken() -> None:
    """As librdkafka 2.6.0 sent it (vector 14)."""
    assert attempt("n,,n=user,r=abc", nonce=lambda sent: "abc" + sent).startswith(b"v=")


@pytest.mark.parametrize(
    "nonce",
    [
        lambda _: "other",
        lambda sent: sent + "x",
        lambda sent: sent[:-1],
        lambda _: "abc",
    ],
)
def test_another_nonce_is_refused_whatever_its_proof(nonce: Callable[[str], str]) -> None:
    """A recorded last message is worth nothing (vector 15, CVE-2024-56128)."""
    with pytest.raises(SaslError, match="invalid credentials"):
        attempt("n,,n=user,r=abc", nonce=nonce)


def test_another_binding_is_refused() -> None:
    """The last message repeats the header of the first."""
    with pytest.raises(SaslError, match="invalid credentials"):
        attempt("n,,n=user,r=abc", binding="y,,")


@pytest.mark.parametrize(
    "first",
    [
        "p=tls-unique,,n=user,r=abc",  # vector 17
        "n,,n=user,r=abc,tokenauth=true",  # vector 19
        "n,,n=user,r=abc,tokenauth=TRUE",
        "n,,n=us=er,r=abc",
        "n,,n=,r=abc",
        "n,,n=user",
        "n,,n=user,r=",
        "n,,n=user,r=a b",
        "n,,r=abc,n=user",
        "",
        "n,,n=user,r=abc,",
    ],
)
def test_a_first_message_that_is_none_is_refused(first: str) -> None:
    """Neither a binding, nor a token, nor what cannot be read."""
    with pytest.raises(SaslError, match="invalid credentials"):
        server().first(first.encode())


def test_no_one_acts_as_another_user() -> None:
    """CVE-2017-12610."""
    with pytest.raises(SaslError, match="different from username"):
        server().first(b"n,a=bob,n=user,r=abc")


def test_an_unknown_user_fails_only_at_the_end() -> None:
    """With the error of a wrong password (vector 16)."""
    with pytest.raises(SaslError) as unknown:
        attempt("n,,n=user,r=abc", exchange=server(is_real=False))
    wrong = ScramServer(SHA_256, lambda _: Found(new_credential(SHA_256, "other", 4096), True))
    with pytest.raises(SaslError) as mistaken:
        attempt("n,,n=user,r=abc", exchange=wrong)
    assert str(unknown.value) == str(mistaken.value)


def test_a_credential_of_too_few_iterations_fails() -> None:
    """The minimum holds for stored credentials, too."""
    salted = salted_password(SHA_256, "pencil", RFC_SALT, 4096)
    weak = credential_of(SHA_256, salted, RFC_SALT, 4095)
    with pytest.raises(SaslError, match="invalid credentials"):
        attempt("n,,n=user,r=abc", exchange=server(credential=weak))


@given(data=st.binary(max_size=60), begins=st.booleans())
def test_any_bytes_are_a_message_or_a_failure(data: bytes, begins: bool) -> None:
    """Nothing else is raised, and no one gets in."""
    exchange = server()
    if begins:
        exchange.first(b"n,,n=user,r=abc")
        with pytest.raises(SaslError):
            exchange.final(data)
    else:
        with contextlib.suppress(SaslError):
            exchange.first(b"n,," + data)
        with pytest.raises(SaslError):
            exchange.final(data)


USERS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


@given(user=USERS)
def test_names_survive_their_escapes(user: str) -> None:
    """Commas, equals signs and all."""
    assert unescaped_name(escaped_name(user)) == user


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
@pytest.mark.parametrize("user", ["alice", "a=b,c", "Jürgen"])
def test_our_client_and_our_server_agree(mechanism: Mechanism, user: str) -> None:
    """And the client notices a server that does not know the password."""
    credential = new_credential(mechanism, "pässword", 4096)
    assert fits_password(mechanism, credential, "pässword")
    assert not fits_password(mechanism, credential, "password")
    exchange = ScramServer(mechanism, lambda name: Found(credential, name == user))
    client = ScramClient(mechanism, user, "pässword")
    verifier = exchange.final(client.final(exchange.first(client.first())))
    client.check(verifier)
    for wrong in (b"v=" + base64.b64encode(bytes(32)), b"e=other-error", b""):
        with pytest.raises(SaslError):
            client.check(wrong)


@pytest.mark.parametrize(
    "answer",
    [
        b"r=%s,s=c2FsdA==,i=16385",
        b"r=%s,s=c2FsdA==,i=999999999",
        b"r=%s,s=c2FsdA==,i=1",
        b"r=x%s,s=c2FsdA==,i=4096",
        b"nothing",
    ],
)
def test_our_client_does_not_do_whatever_a_server_asks(answer: bytes) -> None:
    """Neither count for hours, nor accept a nonce that is not its own (CVE-2026-10143)."""
    client = ScramClient(SHA_256, "user", "pencil", lambda: "abc")
    with pytest.raises(SaslError):
        client.final(answer.replace(b"%s", b"abcdef"))


def test_credentials_are_not_shown() -> None:
    """Neither keys nor salt."""
    assert repr(rfc_credential()) == "ScramCredential(iterations=4096)"
