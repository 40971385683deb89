"""Access rights in ZooKeeper, and its identity: digest credentials and TLS."""

from __future__ import annotations

import asyncio
import logging
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from echoless.broker.config.loading import Config
from echoless.broker.config.security import EndpointIdentification
from echoless.broker.tree.kazoo_errors import AccessDeniedError
from echoless.broker.tree.node_tree import (
    CoordinationError,
    Create,
    MultiFailedError,
    SessionState,
    SetData,
)
from echoless.broker.tree.zookeeper import ZooKeeperNodeTree
from echoless.testkit.free_ports import free_port
from tests.broker.until import until
from tests.support.zookeeper import ZooKeeper
from tests.toolchain import require

pytestmark = pytest.mark.cluster

SECRET = "hunter2-and-more"
_PATIENCE_MS = 60_000
_REFUSED_WITHIN_MS = 3000


# Digest


async def test_a_stranger_reads_and_changes_nothing(zookeeper: ZooKeeper) -> None:
    """Nodes created with credentials are closed to everybody else: data, children, the chroot."""
    hosts = f"zookeeper://{zookeeper.fresh_hosts()}/deep"
    own = await ZooKeeperNodeTree.open(Config(coordinator=hosts, zookeeper_digest=f"us:{SECRET}"))
    await own.create("/a", b"ours")
    await own.multi([Create("/b")])
    for digest in (None, "us:guessed", f"them:{SECRET}"):
        with pytest.raises(AccessDeniedError):  # already at the chroot
            await ZooKeeperNodeTree.open(Config(coordinator=hosts + "/x", zookeeper_digest=digest))
        stranger = await ZooKeeperNodeTree.open(
            Config(coordinator=hosts.removesuffix("/deep"), zookeeper_digest=digest)
        )
        for call in (
            stranger.read("/deep/a"),
            stranger.children("/deep"),
            stranger.write("/deep/a", b"theirs", 0),
            stranger.delete("/deep/a"),
            stranger.create("/deep/c"),
        ):
            with pytest.raises(AccessDeniedError, match="denies access"):
                await call
        with pytest.raises(MultiFailedError) as caught:
            await stranger.multi([SetData("/deep/b", b"theirs", 0)])
        assert isinstance(caught.value.cause, AccessDeniedError)
        await stranger.close()
    assert await own.read_many(["/a", "/b", "/c"]) == [(b"ours", 0, 0), (b"", 0, 0), None]
    await own.close()


async def test_the_credentials_outlive_a_session(zookeeper: ZooKeeper) -> None:
    """A second broker with the same ones is no stranger."""
    hosts = f"zookeeper://{zookeeper.fresh_hosts()}"
    config = Config(coordinator=hosts, zookeeper_digest=f"us:{SECRET}")
    one, two = await ZooKeeperNodeTree.open(config), await ZooKeeperNodeTree.open(config)
    await one.create("/a")
    await one.close()
    assert await two.write("/a", b"1", 0) == 1
    await two.close()


async def test_credentials_are_not_logged(
    zookeeper: ZooKeeper, caplog: pytest.LogCaptureFixture
) -> None:
    """kazoo logs every request at DEBUG, that with the password too; it cannot be asked to."""
    caplog.set_level(logging.NOTSET)
    logging.getLogger("kazoo").setLevel(1)
    hosts = f"zookeeper://{zookeeper.fresh_hosts()}"
    tree = await ZooKeeperNodeTree.open(Config(coordinator=hosts, zookeeper_digest=f"us:{SECRET}"))
    await tree.create("/a")
    await tree.close()
    assert "connected to ZooKeeper" in caplog.text
    assert SECRET not in caplog.text


# TLS


class Certificates:
    """An authority, and what it has signed; a PEM file each, with key and certificate."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.authority = self._make("authority", ["-addext", "basicConstraints=critical,CA:TRUE"])
        signed = ["-CA", str(self.authority), "-CAkey", str(self.authority), "-addext"]
        self.server = self._make("server", [*signed, "subjectAltName=IP:127.0.0.1"])
        self.broker = self._make("broker", [*signed, "subjectAltName=DNS:broker"])
        self.locked_broker = self._make(
            "locked-broker", [*signed, "subjectAltName=DNS:broker"], ["-passout", f"pass:{SECRET}"]
        )

    def _make(
        self, name: str, options: Sequence[str], protection: Sequence[str] = ("-nodes",)
    ) -> Path:
        key, certificate = self._directory / f"{name}.key", self._directory / f"{name}.crt"
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-days", "2"]
        files = ["-keyout", str(key), "-out", str(certificate), "-subj", f"/CN={name}"]
        command += [*files, *options, *protection]
        subprocess.run(command, check=True, capture_output=True)
        pem = self._directory / f"{name}.pem"
        pem.write_text(key.read_text() + certificate.read_text())
        return pem


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    require("openssl")
    return Certificates(tmp_path_factory.mktemp("certificates"))


class TlsZooKeeper:
    """A ZooKeeper with a secure port beside the plain one."""

    def __init__(self, directory: Path, certificates: Certificates, asks: str) -> None:
        self._port = free_port()
        self.server = ZooKeeper(
            directory,
            {
                "secureClientPort": str(self._port),
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "ssl.keyStore.location": str(certificates.server),
                "ssl.trustStore.location": str(certificates.authority),
                "ssl.clientAuth": asks,
                "ssl.clientHostnameVerification": "false",
            },
        )
        self._trusted = str(certificates.authority)
        self.server.start()

    def config(self, host: str = "127.0.0.1", **settings: object) -> Config:
        """The configuration to connect to it, except for `settings`."""
        values: dict[str, object] = {
            # Much for a machine that is busy; what is to fail has to wait for less.
            "zookeeper_connection_timeout_ms": _PATIENCE_MS,
            "coordinator": f"zookeeper://{host}:{self._port}/tls",
            "zookeeper_ssl_client_enable": True,
            "zookeeper_ssl_truststore_location": self._trusted,
        }
        return Config(**{**values, **settings})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def start_tls(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[Callable[[str], TlsZooKeeper]]:
    """Starts servers; the argument says whether they ask the broker for a certificate."""
    started: list[TlsZooKeeper] = []

    def start(asks: str) -> TlsZooKeeper:
        started.append(TlsZooKeeper(tmp_path_factory.mktemp("tls"), certificates, asks))
        return started[-1]

    yield start
    for tls in started:
        tls.server.kill()


@pytest.fixture(scope="module")
def tls_open(start_tls: Callable[[str], TlsZooKeeper]) -> TlsZooKeeper:
    return start_tls("none")


@pytest.fixture(scope="module")
def tls_asking(start_tls: Callable[[str], TlsZooKeeper]) -> TlsZooKeeper:
    return start_tls("need")


async def test_a_session_by_tls(tls_open: TlsZooKeeper) -> None:
    """Works as any other, with large nodes and watches, and over the end of a connection."""
    tree = await ZooKeeperNodeTree.open(tls_open.config())
    calls: list[str] = []
    connected = asyncio.Event()
    await tree.watch("/a", calls.append)
    await tree.create("/a", b"x" * 500_000)
    assert (await tree.read("/a")).data == b"x" * 500_000
    tree.on_session(lambda state: state is SessionState.CONNECTED and connected.set())
    tree._client.drop_connection()
    await connected.wait()
    assert (await tree.read("/a")).version == 0
    await until(lambda: calls)  # the news of the creation may come after the answers
    assert set(calls) == {"/a"}
    await tree.close()


async def test_an_unknown_authority_is_refused(tls_open: TlsZooKeeper) -> None:
    """Without the file only the system's authorities count; the error has the reason."""
    config = tls_open.config(
        zookeeper_ssl_truststore_location=None, zookeeper_connection_timeout_ms=_REFUSED_WITHIN_MS
    )
    with pytest.raises(CoordinationError, match="CERTIFICATE_VERIFY_FAILED"):
        await ZooKeeperNodeTree.open(config)


async def test_a_certificate_for_another_host_is_refused_unless_told_otherwise(
    tls_open: TlsZooKeeper,
) -> None:
    """Kafka's rule, and Kafka's way around it."""
    with pytest.raises(CoordinationError, match="CERTIFICATE_VERIFY_FAILED"):
        await ZooKeeperNodeTree.open(
            tls_open.config("localhost", zookeeper_connection_timeout_ms=_REFUSED_WITHIN_MS)
        )
    algorithm = EndpointIdentification.NONE
    config = tls_open.config("localhost", zookeeper_ssl_endpoint_identification_algorithm=algorithm)
    await (await ZooKeeperNodeTree.open(config)).close()


async def test_zookeeper_may_ask_the_broker_for_its_certificate(
    tls_asking: TlsZooKeeper, certificates: Certificates
) -> None:
    """The key may have a password; without the certificate there is no session."""
    for settings in (
        {"zookeeper_ssl_keystore_location": str(certificates.broker)},
        {
            "zookeeper_ssl_keystore_location": str(certificates.locked_broker),
            "zookeeper_ssl_keystore_password": SECRET,
        },
    ):
        await (await ZooKeeperNodeTree.open(tls_asking.config(**settings))).close()
    with pytest.raises(CoordinationError, match="no connection to ZooKeeper"):
        await ZooKeeperNodeTree.open(
            tls_asking.config(zookeeper_connection_timeout_ms=_REFUSED_WITHIN_MS)
        )
