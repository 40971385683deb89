"""The fixture's broker behind a proxy, whose address is known only when both run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from echoless.testing import AdminError, Echoless
from tests.support.lossy_proxy import LossyProxy

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[Echoless]:
    with Echoless() as broker:
        yield broker


def servers_of(bootstrap: str) -> set[str]:
    """The brokers that a client knows once it has asked one."""
    found = Producer({"bootstrap.servers": bootstrap}).list_topics(timeout=10).brokers
    return {f"{one.host}:{one.port}" for one in found.values()}


def test_a_client_goes_on_through_a_proxy(broker: Echoless) -> None:
    """One call: every record comes through the proxy, and each is stored once."""
    with LossyProxy(1, target=broker.bootstrap_servers, is_lossy=False) as proxy:
        assert servers_of(proxy.address) == {broker.bootstrap_servers}
        broker.advertise(proxy.address)
        assert servers_of(broker.bootstrap_servers) == {proxy.address}
        before = proxy.connections
        options = {"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True}
        producer = Producer(options)
        sent = [f"order-{number}" for number in range(100)]
        for value in sent:
            producer.produce("orders", value)
        assert producer.flush(20) == 0
        assert proxy.connections > before
        broker.assert_exactly_once("orders", sent)
        broker.advertise()
        assert servers_of(proxy.address) == {broker.bootstrap_servers}


def test_a_change_lasts_as_long_as_the_process(broker: Echoless) -> None:
    """The next start is as configured, on the same ports: what is in front of a broker is not its state."""
    broker.advertise("elsewhere.example:1")
    broker.broker.kill()
    broker.broker.start()
    assert servers_of(broker.bootstrap_servers) == {broker.bootstrap_servers}


def test_clients_of_a_network_get_their_own_address(broker: Echoless) -> None:
    """Everyone else gets what is configured."""
    broker.advertise(networks={"127.0.0.0/8": "arrival", "10.0.0.0/8": "broker:9092"})
    assert servers_of(broker.bootstrap_servers) == {broker.bootstrap_servers}
    broker.advertise("elsewhere.example:1", networks={"127.0.0.1": "near.example:2"})
    assert servers_of(broker.bootstrap_servers) == {"near.example:2"}
    broker.advertise("arrival")
    assert servers_of(broker.bootstrap_servers) == {broker.bootstrap_servers}
    with pytest.raises(AdminError, match="404: there is no listener 'EXTERNAL'"):
        broker.advertise("a:1", listener="EXTERNAL")
    broker.advertise()
