"""A broker as a test's own process: its ports, its data, its end."""

from __future__ import annotations

import pytest

from echoless.testkit.admin import Admin, AdminError
from echoless.testkit.broker_process import BrokerProcess, BrokerStartError


@pytest.mark.slow
def test_a_killed_broker_comes_back_on_the_same_ports() -> None:
    """A producer under test need not know of a crash: the address stays, and the data too."""
    with BrokerProcess() as broker:
        addresses = broker.bootstrap_servers, broker.native, broker.admin
        broker.kill()
        assert not broker.is_running
        broker.start()
        assert (broker.bootstrap_servers, broker.native, broker.admin) == addresses
        assert Admin(broker.admin).get("/health") == {"status": "ok"}
        assert broker.stop() == 0
        assert broker.data_dir.is_dir()
    assert not broker.data_dir.exists()


@pytest.mark.slow
def test_a_broker_that_cannot_start_says_why() -> None:
    """The end of its log is in the error."""
    with (
        pytest.raises(BrokerStartError, match="num_partitions"),
        BrokerProcess({"num_partitions": "many"}),
    ):
        pass


@pytest.mark.slow
def test_an_answer_of_the_admin_port_is_the_error() -> None:
    """The URL and the broker's own words."""
    with BrokerProcess() as broker:
        with pytest.raises(AdminError, match=r"/producers/none/0.*no partition none-0") as error:
            Admin(broker.admin).get("/producers/none/0")
        assert error.value.status == 404
    with pytest.raises(AdminError, match="refused"):
        Admin(broker.admin).get("/health")
