"""`echoless listeners` on a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from echoless.testing import Echoless
from tests.cli.command import Command

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[Echoless]:
    """One broker for all tests of this file."""
    with Echoless() as broker:
        yield broker


def test_an_address_is_set_listed_and_reset(echoless: Command, broker: Echoless) -> None:
    """A table for people, the admin port's JSON for machines."""
    place = ("--admin", broker.admin.address)
    network = ("--network", "10.88.0.0/16=broker:9092", "--network", "fd00::/8=arrival")
    (found,) = echoless(
        *("listeners", "set", "plaintext", "localhost:49153", *network, *place, "--json")
    ).json
    assert (found["advertise"], found["is_changed"]) == ("localhost:49153", True)
    assert found["networks"] == {"10.88.0.0/16": "broker:9092", "fd00::/8": "arrival"}
    table = echoless("listeners", "list", *place).out
    assert "2 listeners" in table
    assert "localhost:49153" in table
    assert "10.88.0.0/16=broker:9092" in table
    assert broker.bootstrap_servers in table
    table = echoless("listeners", "reset", "PLAINTEXT", *place).out
    assert "1 listener" in table
    assert "localhost:49153" not in table
    (first, _) = echoless("listeners", "list", *place, "--json").json
    assert (first["advertise"], first["is_changed"]) == (broker.bootstrap_servers, False)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("set", "PLAINTEXT"), "listeners set: takes an address, or --network, or both"),
        (("set", "PLAINTEXT", "--network", "10.0.0.0/8"), "--network: takes NETWORK=ADDRESS"),
        (("set", "PLAINTEXT", "0.0.0.0:1"), "400: advertise: takes HOST:PORT that clients can"),
        (("reset", "EXTERNAL"), "404: there is no listener 'EXTERNAL' on this broker, only"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    echoless: Command, broker: Echoless, arguments: tuple[str, ...], reason: str
) -> None:
    """Exit code 1, and the reason on standard error."""
    ran = echoless("listeners", *arguments, "--admin", broker.admin.address)
    assert ran.code == 1
    assert reason in ran.err
