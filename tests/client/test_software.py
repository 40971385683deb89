"""The name by which our clients appear among the connections of a broker."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from echoless.client.connection import BrokerConnection
from echoless.client.pipelined_connection import PipelinedConnection
from echoless.client.software import software_fields
from tests.support.cluster import get_json
from tests.support.echoless import Echoless


async def test_every_connection_names_its_software(tmp_path: Path) -> None:
    """The blocking and the pipelined one, by the name and version of the package."""
    broker = Echoless(tmp_path)
    broker.start()
    try:
        host, port = broker.kafka_address.split(":")
        with BrokerConnection.open(host, int(port)):
            pipelined = await PipelinedConnection.open(host, int(port), 10)
            rows = get_json(broker.admin_address, "/connections", timeout_s=30)["connections"]
            await pipelined.close()
    finally:
        broker.kill()
    named = [(one["software_name"], one["software_version"]) for one in rows]
    assert named == [("echoless", version("echoless"))] * 2


@pytest.mark.parametrize(
    ("ours", "shown"),
    [("0.3.0", "0.3.0"), ("0.3.1.dev2+g12ab.d2", "0.3.1.dev2-g12ab.d2"), (None, "source")],
)
def test_a_version_is_one_that_brokers_take(
    ours: str | None, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the package was built from: others are refused with INVALID_REQUEST."""

    def of_package(name: str) -> Any:
        if ours is None:
            raise PackageNotFoundError(name)
        return ours

    monkeypatch.setattr("echoless.client.software.version", of_package)
    software_fields.cache_clear()
    assert software_fields()["client_software_version"] == shown
    software_fields.cache_clear()
