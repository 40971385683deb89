"""TLS turned on between running brokers, by the steps of `docs/security.md`, under load."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest

from tests.support.certificates import Authority
from tests.support.cluster import Cluster
from tests.support.echoless import SOURCES
from tests.support.keyed_writer import KeyedWriter
from tests.support.native_client import NativeConnection
from tests.upgrade.rolling import ORDERS, check_log, roll

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.time_limit(300)]

BOTH: Final = {"native_accepts_plaintext": "true"}


def test_tls_between_brokers_is_turned_on_without_an_outage(tmp_path: Path) -> None:
    """In both steps every broker comes back in sync beside those that have not restarted, and records go on."""
    tls = Authority(tmp_path / "certificates").settings("NATIVE:SSL", ssl_client_auth="required")
    with Cluster(tmp_path, {"min_insync_replicas": "2"}) as cluster:
        cluster.start()
        cluster.create_topic(ORDERS, 1)
        with KeyedWriter(cluster.bootstrap, ORDERS, seed=1, records_per_s=150) as writer:
            for settings in ({**tls, **BOTH}, tls):
                for broker_id in cluster.brokers:
                    roll(cluster, [broker_id], SOURCES, settings)
                    reached = len(writer.acknowledged)
                    cluster.wait_until(
                        lambda reached=reached: len(writer.acknowledged) > reached,  # type: ignore[misc]
                        "records go on",
                    )
        check_log(cluster, writer)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError, EOFError)):
            asyncio.run(_ask_without_tls(cluster.brokers[1].native_address))


async def _ask_without_tls(address: str) -> None:
    connection = await NativeConnection.open(address)
    await connection.call("metadata", topics=[], correlation_id=1)
