"""The faults that made the Java clients give up records in the soak: one swap after another."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Final

import pytest

from echoless.testkit.admin import Admin
from echoless.testkit.broker_process import BrokerProcess
from echoless.testkit.clients.driver import Driver
from echoless.testkit.clients.programs import JAVA_VERSIONS, PROGRAMS
from echoless.testkit.faults import Faults
from echoless.testkit.native import Native
from tests.toolchain import require

_TOPIC: Final = "swapped"
_SLOW: Final = {"type": "delay_response", "ms": 700}
_SWAP: Final = {"type": "swap", "ms": 900}
_WAIT_S: Final = 120.0
_ASK_AGAIN_S: Final = 0.01


@pytest.mark.clients
@pytest.mark.slow
@pytest.mark.parametrize("name", list(JAVA_VERSIONS))
def test_no_record_is_given_up_behind_a_raised_epoch(name: str) -> None:
    """A batch still in transit under the old epoch is not overtaken by its own resend.

    One slow answer holds back those after it, so that the third batch is held for its swap before
    the client learns of the gap that the swap of the first two has caused. If the machine stalls
    for as long there is no gap, and nothing is given up either.
    """
    require("java", f"driver-java-{JAVA_VERSIONS[name]}")
    driver = Driver(PROGRAMS[name])
    with BrokerProcess() as broker, ExitStack() as stack:
        stack.callback(driver.end)
        Native(broker.native).create_topic(_TOPIC)
        driver.open(broker.bootstrap_servers)
        driver.send(_TOPIC, 0, range(10))
        driver.wait()
        _swap_twice(driver, Admin(broker.admin))
        driver.wait()
        assert driver.deliveries.failures == {}
        assert Native(broker.native).values(_TOPIC, 0) == [b"%d" % number for number in range(50)]


def _swap_twice(driver: Driver, admin: Admin) -> None:
    """Sends four batches; the second and third are swapped, the fourth is held when this returns."""
    faults, match = Faults(admin), {"api": "produce", "topic": _TOPIC}
    slow = faults.add(_SLOW, match={**match, "base_sequence": 10}, times=1)
    driver.send(_TOPIC, 0, range(10, 20))
    slow.wait_for_hits(1)
    first = faults.add(_SWAP, match={**match, "base_sequence": "20-30"}, times=1)
    driver.send(_TOPIC, 0, range(20, 30))
    first.wait_for_hits(1)
    driver.send(_TOPIC, 0, range(30, 40))
    _wait_until_decided(admin, 39)
    second = faults.add(_SWAP, match=match, times=1)
    driver.send(_TOPIC, 0, range(40, 50))
    second.wait_for_hits(1)


def _wait_until_decided(admin: Admin, last_sequence: int) -> None:
    """Waits for a decision on it, under another epoch if the client was quicker."""
    deadline = time.monotonic() + _WAIT_S
    while not any(
        one["last_sequence"] == last_sequence or one["producer_epoch"]
        for one in admin.get("/decisions", n=100, topic=_TOPIC)["decisions"]
    ):
        assert time.monotonic() < deadline, f"nothing was decided about {last_sequence}"
        time.sleep(_ASK_AGAIN_S)
