"""Our own clients log in by OAUTHBEARER: where tokens come from, when they are renewed, what is refused and shown."""

from __future__ import annotations

import asyncio
import base64
import pickle
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from echoless.broker.authentication import session
from echoless.client import pipelined_connection, tokens
from echoless.client.async_producer import AsyncProducer
from echoless.client.command_config import command_options
from echoless.client.connection_errors import AuthenticationError, ConnectionFailedError
from echoless.client.errors import DeliveryError, ProducerError
from echoless.client.login_options import SecurityOptionError
from echoless.client.security import Security, Tls, TokenEndpoint, TokenLogin
from echoless.client.security_options import java_options, security_of
from echoless.client.tokens import current_token, forget_token, seconds_left
from echoless.protocol.errors import ErrorCode
from tests.broker.authentication.log_in import with_users
from tests.client.test_secure_connections import open_blocking, open_pipelined, quick
from tests.support.certificates import Authority
from tests.support.in_process import Running
from tests.support.stored_values import read_stored_values
from tests.support.token_server import TokenServer
from tests.support.tokens import Issuer

PATIENCE_S = 60.0
SECRET = "hunter2 + more"
BEARER = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
URL = "sasl.oauthbearer.token.endpoint.url"
CLIENT = {"sasl.oauthbearer.client.id": "app", "sasl.oauthbearer.client.secret": SECRET}
HTTPS = {**BEARER, URL: "https://issuer.example/token", **CLIENT}
JAAS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    f'clientId="app" clientSecret="{SECRET}" scope="produce" extension_cluster="lkc-1";'
)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer"))


@pytest.fixture(autouse=True)
def no_tokens() -> Iterator[None]:
    """Nothing is left of another test's tokens."""
    tokens._shared.cache_clear()
    yield
    tokens._shared.cache_clear()


@pytest.fixture
def server(authority: Authority, issuer: Issuer) -> Iterator[TokenServer]:
    with TokenServer(authority, issuer.token) as server:
        yield server


def endpoint(server: TokenServer, authority: Authority, **more: Any) -> TokenLogin:
    fields = {
        "url": server.url,
        "client_id": "app",
        "client_secret": SECRET,
        "ca_location": str(authority.path),
    }
    return TokenLogin(endpoint=TokenEndpoint(**{**fields, **more}))


@asynccontextmanager
async def broker(
    directory: Path, authority: Authority, issuer: Issuer, **more: str
) -> AsyncIterator[Running]:
    """Takes tokens of the issuer on both ports."""
    settings = {"connection_failed_authentication_delay_ms": "0", **issuer.settings(**more)}
    chosen = authority.settings("PLAINTEXT:SASL_SSL,NATIVE:SASL_SSL", **settings)
    async with with_users(directory, **chosen) as running:
        yield running


def secured(authority: Authority, login: TokenLogin) -> Security:
    return Security(tls=Tls(ca_location=str(authority.path)), login=login)


# --- where tokens come from ---


async def test_each_source_logs_in(
    tmp_path: Path, authority: Authority, issuer: Issuer, server: TokenServer
) -> None:
    """By both kinds of connection; a file is read anew each time."""
    file = tmp_path / "token"
    file.write_text(issuer.token() + "\n")
    sources = (
        TokenLogin(token=issuer.token()),
        TokenLogin(file=str(file)),
        TokenLogin(callback=issuer.token),
        endpoint(server, authority, scope="produce consume"),
    )
    async with broker(tmp_path / "broker", authority, issuer) as running:
        for login in sources:
            security = secured(authority, login)
            assert len(await open_blocking(running, security)) == 1
            assert len(await open_pipelined(running, security)) == 1
        file.write_text(issuer.token(aud="others"))
        with pytest.raises(AuthenticationError, match="cannot log in by OAUTHBEARER"):
            await open_blocking(running, secured(authority, sources[1]))
    ((path, headers, fields),) = server.asked
    assert (path, fields) == (
        "/token",
        {"grant_type": ["client_credentials"], "scope": ["produce consume"]},
    )
    assert (
        headers["Authorization"] == f"Basic {base64.b64encode(f'app:{SECRET}'.encode()).decode()}"
    )


def test_the_header_may_be_encoded_as_the_rfc_has_it(
    authority: Authority, server: TokenServer
) -> None:
    """By `sasl.oauthbearer.header.urlencode`, as in Java's client."""
    current_token(endpoint(server, authority, encodes_header=True))
    expected = base64.b64encode(b"app:hunter2+%2B+more").decode()
    assert server.asked[0][1]["Authorization"] == f"Basic {expected}"


@pytest.mark.parametrize("open_one", [open_blocking, open_pipelined])
async def test_a_token_that_is_refused_is_final_and_not_shown_again(
    tmp_path: Path, authority: Authority, issuer: Issuer, open_one: Callable[..., Any]
) -> None:
    """The error names the client and what the broker says; the next log-in asks for another token."""
    issued = [issuer.token(iss="https://elsewhere"), issuer.token()]
    with TokenServer(authority, lambda: issued.pop(0)) as server:
        login = endpoint(server, authority)
        refused = current_token(login)
        async with broker(tmp_path, authority, issuer) as running:
            with pytest.raises(AuthenticationError, match=r"client app .*invalid_token") as caught:
                await open_one(running, secured(authority, login))
            assert refused not in str(caught.value)
            assert len(await open_one(running, secured(authority, login))) == 1


async def test_leases_are_had_by_a_token(
    tmp_path: Path, authority: Authority, issuer: Issuer
) -> None:
    """The native port has the same log-in, and the same refusal."""
    async with broker(tmp_path, authority, issuer) as running, asyncio.timeout(PATIENCE_S):
        for token, is_valid in ((issuer.token(), True), (issuer.token(aud="x"), False)):
            kafka = secured(authority, TokenLogin(token=token))
            settings = quick(kafka, lease_servers=running.native_address, delivery_timeout_s=600)
            producer = AsyncProducer(running.kafka_address, settings)
            await producer.start()
            delivery = await producer.send("t", b"x", partition=0)
            if is_valid:
                assert (await delivery).sequence == 0
            else:
                with pytest.raises(DeliveryError, match="invalid_token") as caught:
                    await delivery
                assert caught.value.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            await producer.close()


# --- renewal ---


@pytest.mark.slow
async def test_tokens_end_under_load_and_each_record_is_stored_once(
    tmp_path: Path, authority: Authority, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new token is shown on the open connection before the old one ends; no session ever expires."""
    monkeypatch.setattr(session, "AGAIN_INTERVAL_S", 0.0)
    monkeypatch.setattr(
        tokens, "RENEWED_AT", 0.15
    )  # at 0.8 and 0.85 of short ones a stall would end a session
    monkeypatch.setattr(pipelined_connection, "RENEWED_AT", 0.2)
    settings = {"listen": "127.0.0.1:0,127.0.0.1:0", "sasl_oauthbearer_clock_skew_seconds": "0"}
    with TokenServer(authority, lambda: issuer.token(lasts_s=16)) as server:
        async with broker(tmp_path, authority, issuer, **settings) as running:
            metrics, count = running.broker.services.metrics, 0
            producing = quick(secured(authority, endpoint(server, authority)), batch_records_max=7)
            async with (
                asyncio.timeout(PATIENCE_S),
                AsyncProducer(running.kafka_address, producing) as producer,
            ):
                asked = len(server.asked)
                while len(server.asked) < asked + 2:
                    for _ in range(100):
                        await producer.send("t", b"%d" % count, partition=0)
                        count += 1
                    await asyncio.sleep(0.01)
            assert metrics.sessions_expired_total == 0
            assert running.external_address is not None
            address = running.external_address
            (values,) = await asyncio.to_thread(read_stored_values, address, "t", 1)
    assert values == [b"%d" % number for number in range(count)]


class Clock:
    """The monotonic clock of `client/tokens.py`, and the wall clock with it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(tokens.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(tokens.time, "time", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that the test moves."""
    return Clock(monkeypatch)


class Source:
    """A callback whose tokens last for 100 s from when they were asked for."""

    def __init__(self, clock: Clock, issuer: Issuer) -> None:
        self.issued: list[str] = []
        self.fails = False
        self._clock = clock
        self._issuer = issuer

    def __call__(self) -> str:
        if self.fails:
            raise OSError("unreachable, with hunter2")
        self.issued.append(
            self._issuer.token(exp=int(self._clock.now + 100), jti=str(len(self.issued)))
        )
        return self.issued[-1]


def test_a_token_is_shown_until_most_of_its_time_has_passed(clock: Clock, issuer: Issuer) -> None:
    """Then another is asked for; the old one is shown while that fails, until it ends."""
    source = Source(clock, issuer)
    login = TokenLogin(callback=source)
    first = current_token(login)
    clock.now += 79
    assert current_token(login) == first
    assert len(source.issued) == 1
    clock.now += 2
    source.fails = True
    assert current_token(login) == first
    source.fails = False
    assert current_token(login) == first, "not asked again before a pause"
    clock.now += 1
    second = current_token(login)
    assert second != first
    source.fails = True
    clock.now += 99
    with pytest.raises(
        ConnectionFailedError, match="callback for tokens failed: OSError"
    ) as caught:
        current_token(login)
    assert "hunter2" not in str(caught.value)
    assert not isinstance(caught.value, AuthenticationError)


def test_pauses_between_failures_grow(clock: Clock, issuer: Issuer) -> None:
    """An endpoint that is down is not asked with each attempt to connect; a success ends that."""
    asked = []

    def fail() -> str:
        asked.append(clock.now)
        raise OSError

    login = TokenLogin(callback=fail)
    for _ in range(3000):
        with pytest.raises(ConnectionFailedError):
            current_token(login)
        clock.now += 0.01
    assert 7 <= len(asked) <= 10  # 30 s: pauses of 0.1 s, doubling to 10 s
    forget_token(login)


def test_many_connections_ask_once(clock: Clock, issuer: Issuer) -> None:
    """Those that come while a token is being requested wait for it."""
    entered, may_go = threading.Event(), threading.Event()
    source = Source(clock, issuer)

    def slow() -> str:
        entered.set()
        assert may_go.wait(PATIENCE_S)
        return source()

    login = TokenLogin(callback=slow)
    with ThreadPoolExecutor(8) as pool:
        found = [pool.submit(current_token, login) for _ in range(8)]
        assert entered.wait(PATIENCE_S)
        may_go.set()
        assert {one.result(PATIENCE_S) for one in found} == {source.issued[0]}


def test_a_token_without_an_end_is_not_kept() -> None:
    """Nothing says how long it may be shown."""
    issued = iter(["opaque-1", "opaque-2"])
    login = TokenLogin(callback=lambda: next(issued))
    assert [current_token(login), current_token(login)] == ["opaque-1", "opaque-2"]


@pytest.mark.parametrize("payload", ["", "!", "bnVsbA", "e30", "eyJleHAiOiB0cnVlfQx", "W1tb"])
def test_a_token_that_says_no_end(payload: str) -> None:
    """None for what is no JSON Web Token, or has no `exp`."""
    assert seconds_left(f"a.{payload}.c") is None


# --- endpoints that fail ---


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        ((401, {}, b'{"error": "invalid_client"}'), AuthenticationError, "401 invalid_client; are"),
        ((400, {}, b"hunter2"), AuthenticationError, "refuses client app: 400; are"),
        ((403, {}, b'{"error": "hunter2"}'), AuthenticationError, "refuses client app: 403; are"),
        ((503, {}, b""), ConnectionFailedError, "status 503"),
        ((302, {"Location": "/other"}, b""), ConnectionFailedError, "status 302"),
        ((200, {}, b"[]"), ConnectionFailedError, "without access_token"),
        ((200, {}, b"[" * 100_000), ConnectionFailedError, "without access_token"),
        ((200, {}, b'{"access_token": 1}'), ConnectionFailedError, "without access_token"),
        ((200, {}, b" " * 300_000 + b'{"access_token": "a"}'), ConnectionFailedError, "without"),
        ((200, {"Content-Length": "9"}, b"x"), ConnectionFailedError, "no token can be had"),
        (
            (200, {}, b'{"access_token": "a\\u0001host=x"}'),
            AuthenticationError,
            "is none: a bearer",
        ),
        ((200, {}, b'{"access_token": ""}'), AuthenticationError, "is none: a bearer"),
    ],
)
def test_an_endpoint_that_issues_no_token(
    authority: Authority,
    server: TokenServer,
    answer: tuple[int, dict[str, str], bytes],
    kind: type[Exception],
    words: str,
) -> None:
    """A refusal is final, other failures are not; redirections are not followed, and no secret is shown."""
    server.answer = answer
    with pytest.raises(ConnectionFailedError, match=words) as caught:
        current_token(endpoint(server, authority))
    assert type(caught.value) is kind
    assert "hunter2" not in str(caught.value)
    assert [path for path, _, _ in server.asked] == ["/token"]


def test_the_certificate_of_an_endpoint_is_checked(
    tmp_path: Path, authority: Authority, issuer: Issuer
) -> None:
    """Another authority, another host, an expired one: no secret is sent."""
    other = Authority(tmp_path / "other")
    cases: list[tuple[TokenServer, str, str]] = [
        (TokenServer(other, issuer.token), str(authority.path), "does https.ca.location"),
        (TokenServer(authority, issuer.token), "", "does https.ca.location"),
        (TokenServer(authority, issuer.token, "elsewhere"), str(authority.path), "mismatch"),
        (TokenServer(authority, issuer.token, is_expired=True), str(authority.path), "expired"),
        (TokenServer(authority, issuer.token), "/nowhere", "https.ca.location: /nowhere: No such"),
    ]
    for server, trusted, words in cases:
        with server, pytest.raises(AuthenticationError, match=words):
            current_token(endpoint(server, authority, ca_location=trusted))
        assert server.asked == []


def test_an_endpoint_that_cannot_be_reached(authority: Authority, issuer: Issuer) -> None:
    """May be reached later."""
    with TokenServer(authority, issuer.token) as server:
        pass
    with pytest.raises(ConnectionFailedError, match=r"no token can be had .* refused") as caught:
        current_token(endpoint(server, authority))
    assert not isinstance(caught.value, AuthenticationError)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """Is named."""
    with pytest.raises(AuthenticationError, match=r"cannot read the token in .*nowhere: No such"):
        current_token(TokenLogin(file=str(tmp_path / "nowhere")))


async def test_a_producer_waits_for_an_endpoint_that_is_down(
    tmp_path: Path, authority: Authority, issuer: Issuer, server: TokenServer
) -> None:
    """A refusal fails it at once."""
    server.answer = (503, {}, b"")
    login = endpoint(server, authority)
    async with broker(tmp_path, authority, issuer) as running, asyncio.timeout(PATIENCE_S):
        producer = AsyncProducer(running.kafka_address, quick(secured(authority, login)))
        starting = asyncio.create_task(producer.start())
        await asyncio.to_thread(server.wait_until_asked, 2, PATIENCE_S)
        assert not starting.done()
        server.answer = None
        await starting
        assert (await (await producer.send("t", b"x", partition=0))).offset == 0
        await producer.close()
        server.answer = (401, {}, b"")
        forget_token(login)
        with pytest.raises(ProducerError, match="refuses client app: 401"):
            await AsyncProducer(running.kafka_address, quick(secured(authority, login))).start()


# --- options ---


def test_both_families_of_names_say_the_same() -> None:
    """librdkafka's, Java's in JAAS, and Java's since 4.1."""
    librdkafka = {
        **HTTPS,
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.scope": "produce",
        "sasl.oauthbearer.extensions": "cluster=lkc-1",
    }
    java = {
        **BEARER,
        URL: HTTPS[URL],
        "sasl.login.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
        ),
        "sasl.jaas.config": JAAS,
    }
    newer = {
        **BEARER,
        URL: HTTPS[URL],
        "sasl.oauthbearer.client.credentials.client.id": "app",
        "sasl.oauthbearer.client.credentials.client.secret": SECRET,
        "sasl.oauthbearer.scope": "produce",
        "sasl.oauthbearer.extensions": "cluster=lkc-1",
    }
    expected = TokenLogin(
        endpoint=TokenEndpoint(
            url=HTTPS[URL], client_id="app", client_secret=SECRET, scope="produce"
        ),
        extensions=(("cluster", "lkc-1"),),
    )
    found = security_of(librdkafka)
    assert found.login == security_of(java).login == security_of(newer).login == expected
    assert pickle.loads(pickle.dumps(found)) == found
    assert "hunter2" not in f"{found} {found!r} {found.login}"


@pytest.mark.parametrize(
    "more",
    [
        {**HTTPS},
        {**HTTPS, "sasl.oauthbearer.scope": "a b", "https.ca.location": "/ca.pem"},
        {**HTTPS, "sasl.oauthbearer.header.urlencode": "true"},
        {**BEARER, URL: "file:///run/secrets/my%20token"},
    ],
)
def test_spark_gets_the_same_by_javas_names(more: dict[str, str]) -> None:
    """Read back they give the same, but for the endpoint's authorities, which Java has in JAAS."""
    security = security_of(more)
    java = java_options(security)
    assert ("https.ca.location" in more) == ("ssl.truststore.location" in java["sasl.jaas.config"])
    java["sasl.jaas.config"] = java["sasl.jaas.config"].replace(
        ' ssl.truststore.type="PEM" ssl.truststore.location="/ca.pem"', ""
    )
    found = {name: value for name, value in more.items() if name.startswith("https.")}
    assert security_of({**java, **found}) == security


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (BEARER, "needs one of sasl.oauthbearer.token.endpoint.url"),
        ({**HTTPS, "sasl.oauthbearer.token": SECRET}, "needs one of"),
        ({**BEARER, URL: HTTPS[URL]}, "client.id is needed"),
        ({**HTTPS, "sasl.oauthbearer.client.secret": ""}, "client.secret is needed"),
        ({**HTTPS, URL: "http://issuer.example/token"}, "http:// on loopback only"),
        ({**HTTPS, URL: "https://a:hunter2@issuer.example/"}, "takes https://HOST"),
        ({**HTTPS, URL: "https://issuer.example:x/"}, "takes https://HOST"),
        ({**HTTPS, URL: "https://issuer.example/a b"}, "takes https://HOST"),
        ({**HTTPS, "sasl.password": SECRET}, "sasl.password has no effect with"),
        ({**HTTPS, "sasl.mechanism": "PLAIN"}, "has no effect with sasl.mechanism=PLAIN"),
        ({**HTTPS, "sasl.oauthbearer.method": "default"}, "takes oidc"),
        ({**HTTPS, "sasl.login.callback.handler.class": "a.B"}, "takes Kafka's own"),
        ({**HTTPS, "sasl.oauthbearer.extensions": "auth=x"}, "takes NAME=VALUE"),
        ({**HTTPS, "sasl.oauthbearer.extensions": "a=x\x01"}, "takes NAME=VALUE"),
        ({**HTTPS, "sasl.oauthbearer.header.urlencode": "maybe"}, "takes true or false"),
        ({**HTTPS, "https.ca.location": "a", "https.ca.pem": "b"}, "give one of them"),
        ({**HTTPS, "sasl.jaas.config": JAAS.replace("app", "b")}, "given twice, and differs"),
        ({**HTTPS, "sasl.jaas.config": JAAS.replace("scope", "x")}, "x is not served"),
        ({**BEARER, URL: "file:///t", **CLIENT}, "no effect without an endpoint"),
        ({**BEARER, URL: "file://host/t"}, "takes file:///PATH"),
        ({**BEARER, "sasl.oauthbearer.jwks.endpoint.url": "x"}, "is not served"),
        ({"https.ca.location": "x"}, "has no effect with security.protocol=PLAINTEXT"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, str], words: str) -> None:
    """With the remedy, and without a secret."""
    with pytest.raises(SecurityOptionError, match=words) as caught:
        security_of(options)
    assert "hunter2" not in str(caught.value)


def test_java_has_no_token_as_an_option() -> None:
    """The message says what to give instead."""
    with pytest.raises(SecurityOptionError, match=r"give .*=file://"):
        java_options(security_of({**BEARER, "sasl.oauthbearer.token": "abc"}))


def test_the_secret_of_a_client_may_be_left_out_of_the_file(tmp_path: Path) -> None:
    """It is taken from the environment, as a user's password is."""
    path = tmp_path / "client.properties"
    path.write_text(
        "\n".join(f"{name}={value}" for name, value in HTTPS.items() if value != SECRET)
    )
    found = command_options(str(path), environment={"ECHOLESS_SASL_PASSWORD": SECRET})
    assert found == HTTPS
    with pytest.raises(SecurityOptionError, match=r"has no sasl.oauthbearer.client.secret"):
        command_options(str(path), environment={})
