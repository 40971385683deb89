"""Drivers of real clients: where they are built, what they say, how they end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from echoless.testkit.broker_process import BrokerProcess
from echoless.testkit.clients import build
from echoless.testkit.clients.driver import Driver, DriverError
from echoless.testkit.clients.programs import PROGRAMS
from echoless.testkit.native import Native


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess() as process:
        yield process


def test_each_version_is_built_in_a_place_of_its_own() -> None:
    """A change of the sources, or another version of the client, never meets an old build."""
    places = {build.java(version).directory for version in ("3.9.1", "4.4.0")}
    assert len(places | {build.GO.directory, build.NODE.directory}) == 4
    assert build.java("3.9.1").directory in places


def test_a_missing_tool_is_named() -> None:
    """Before anything is written."""
    made = build.Build(
        name="none", language="go", variant="", tools=("no-such-tool",), steps=lambda *_: None
    )
    with pytest.raises(build.BuildError, match="none: `no-such-tool` is not installed"):
        made.make()
    assert not made.is_there


@pytest.mark.slow
@pytest.mark.parametrize("name", ["aiokafka", "librdkafka"])
def test_a_driver_says_what_became_of_each_record(broker: BrokerProcess, name: str) -> None:
    """Acknowledged with its offset; and again by a second producer of the same process."""
    native = Native(broker.native)
    native.create_topic(name)
    driver = Driver(PROGRAMS[name])
    for first in (0, 100):
        driver.open(broker.bootstrap_servers)
        driver.send(name, 0, range(first, first + 5))
        driver.wait()
    driver.end()
    assert [ack.offset for ack in driver.deliveries.acknowledged] == list(range(10))
    numbers = [ack.place.number for ack in driver.deliveries.acknowledged]
    assert native.values(name, 0) == [b"%d" % number for number in numbers]
    assert (driver.deliveries.failed, driver.deliveries.open_count) == ([], 0)


@pytest.mark.slow
def test_what_is_under_way_at_the_close_is_given_up(broker: BrokerProcess) -> None:
    """No one waits for a broker that has gone."""
    driver = Driver(PROGRAMS["aiokafka"])
    driver.open(broker.bootstrap_servers)
    driver.send("nowhere", 7, range(3))
    driver.close()
    assert driver.deliveries.failures == {"CLOSED": 3}
    driver.end()
    with pytest.raises(DriverError):
        driver.open(broker.bootstrap_servers)
