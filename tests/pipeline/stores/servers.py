"""Servers of object stores and of HDFS, each with an empty bucket, container or directory for ledgers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Final, NamedTuple

from echoless.testkit.free_ports import free_port
from tests.pipeline.stores.google_front import create_bucket, google_front
from tests.pipeline.tools import AZURITE, FAKE_GCS, HADOOP, S3PROXY, VERSITYGW
from tests.support.server_process import ServerProcess
from tests.toolchain import require

BUCKET: Final = "ledgers"
S3_SECRET: Final = "open-sesame-of-the-server"
_AZURE_KEY: Final = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""Azurite's account has one key, which is no secret."""
_ACCOUNT: Final = "devstoreaccount1"
_UP_WITHIN_S: Final = 240


class Store(NamedTuple):
    """A place for ledgers: the URI, and the options `ledger.*` to reach it."""

    uri: str
    options: dict[str, str]


def s3_options(port: int) -> dict[str, str]:
    """The options for an S3 server on this machine."""
    return {
        "endpoint": f"http://127.0.0.1:{port}",
        "region": "us-east-1",
        "access_key_id": "key",
        "secret_access_key": S3_SECRET,
    }


@contextmanager
def versitygw(directory: Path) -> Iterator[Store]:
    """S3 in front of a directory, in Go."""
    require("go", "versitygw")
    port = free_port()
    (directory / "data" / BUCKET).mkdir(parents=True)
    server = ServerProcess(re.compile(rf"127\.0\.0\.1:{port}"), directory / "versitygw.log")
    account = {"ROOT_ACCESS_KEY": "key", "ROOT_SECRET_KEY": S3_SECRET}
    place = f"127.0.0.1:{port}"
    server.start(
        [str(VERSITYGW), "--port", place, "posix", str(directory / "data")], environment=account
    )
    try:
        yield Store(f"s3://{BUCKET}/l", s3_options(port))
    finally:
        server.terminate()


@contextmanager
def s3proxy(directory: Path) -> Iterator[Store]:
    """S3 in memory, in Java."""
    require("java", "s3proxy")
    port = free_port()
    settings = directory / "s3proxy.conf"
    settings.write_text(
        f"s3proxy.authorization=none\ns3proxy.endpoint=http://127.0.0.1:{port}\n"
        "jclouds.provider=transient-nio2\njclouds.identity=id\njclouds.credential=secret\n"
    )
    server = ServerProcess(re.compile("Started Server@"), directory / "s3proxy.log")
    server.start(["java", "-Xmx256m", "-jar", str(S3PROXY), "--properties", str(settings)])
    try:
        _put(port, f"/{BUCKET}", {})
        yield Store(f"s3a://{BUCKET}/l", s3_options(port))
    finally:
        server.terminate()


@contextmanager
def azurite(directory: Path) -> Iterator[Store]:
    """Azure's blobs in memory, in JavaScript."""
    require("node", "azurite")
    port = free_port()
    server = ServerProcess(re.compile("successfully listens"), directory / "azurite.log")
    place = ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    flags = ["--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck"]
    server.start([str(AZURITE), *place, *flags])
    try:
        target = f"/{_ACCOUNT}/{BUCKET}?restype=container"
        _put(
            port, target, _signed_by_account(f"/{_ACCOUNT}/{_ACCOUNT}/{BUCKET}\nrestype:container")
        )
        options = {
            "account_name": _ACCOUNT,
            "account_key": _AZURE_KEY,
            "endpoint": f"http://127.0.0.1:{port}/{_ACCOUNT}",
        }
        yield Store(f"az://{BUCKET}/l", options)
    finally:
        server.terminate()


@contextmanager
def google(directory: Path) -> Iterator[Store]:
    """Google's store in memory, in Go; behind a front, for it has no uploads of the API that obstore uses."""
    require("go", "fake-gcs-server")
    port = free_port()
    server = ServerProcess(re.compile("server started"), directory / "google.log")
    place = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    names = ["-public-host", f"127.0.0.1:{port}"]
    server.start([str(FAKE_GCS), "-backend", "memory", *place, *names])
    key = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    try:
        with google_front(port) as front:
            create_bucket(port, BUCKET)
            options = {
                "base_url": f"http://127.0.0.1:{front}",
                "service_account_key": json.dumps({**key, "disable_oauth": True}),
            }
            yield Store(f"gs://{BUCKET}/l", options)
    finally:
        server.terminate()


@contextmanager
def hdfs(directory: Path) -> Iterator[Store]:
    """A name node and a data node of Hadoop."""
    require("java", "hadoop")
    web, port = free_port(), free_port()
    log = directory / "hadoop.log"
    manager = "org.apache.hadoop.test.MiniDFSClusterManager"
    details = directory / "details.json"
    ports = ["-nnport", str(port), "-httpport", str(web), "-writeDetails", str(details)]
    files = [f"-Dtest.build.data={directory}", "-cp", f"{HADOOP}/*"]
    server = ServerProcess(re.compile("SLF4J: See"), log)
    server.start(["java", "-Xmx512m", *files, manager, "-format", "-datanodes", "1", *ports])
    try:
        wait_until(details.exists)
        yield Store(f"hdfs://127.0.0.1:{port}/l", {"webhdfs_addresses": f"127.0.0.1:{web}"})
    finally:
        server.kill()


def wait_until(is_so: Callable[[], bool]) -> None:
    """Waits for something that a server does after its ready line."""
    ends = time.monotonic() + _UP_WITHIN_S
    while not is_so():
        assert time.monotonic() < ends, "it has not happened"
        time.sleep(0.05)


def _put(port: int, target: str, headers: dict[str, str]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("PUT", target, headers={"Content-Length": "0", **headers})
    assert connection.getresponse().status in (200, 201)
    connection.close()


def _signed_by_account(resource: str) -> dict[str, str]:
    """Azure's headers for a PUT without content."""
    date, version = formatdate(usegmt=True), "2021-12-02"
    text = "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{version}\n{resource}"
    digest = hmac.new(base64.b64decode(_AZURE_KEY), text.encode(), hashlib.sha256).digest()
    return {
        "x-ms-date": date,
        "x-ms-version": version,
        "Authorization": f"SharedKey {_ACCOUNT}:{base64.b64encode(digest).decode()}",
    }
