"""Brokers with TLS, users and ACLs for tests, in one line."""

from __future__ import annotations

import pytest

from echoless.client.connection import AuthenticationError, BrokerConnection
from echoless.client.errors import DeliveryError, ProducerError
from echoless.client.producer import Producer
from echoless.client.security_options import security_of
from echoless.client.settings import Settings
from echoless.testkit.broker_process import BrokerProcess
from echoless.testkit.echoless import Echoless

pytest_plugins = ["pytester"]


def producer(options: dict[str, str]) -> Producer:
    return Producer(options["bootstrap.servers"], Settings(security=security_of(options)))


@pytest.mark.slow
def test_a_right_is_given_and_records_are_compared() -> None:
    """Alice may write nothing at first; then to one topic; a fault does not change what is stored."""
    with Echoless({"authorizer": "acl"}, security="SASL_SSL") as echoless:
        with pytest.raises(ProducerError, match="CLUSTER_AUTHORIZATION_FAILED"):
            producer(echoless.client_options).start()
        topic, other = echoless.topic(), echoless.topic()
        echoless.broker.allow("alice", "write", topic=topic)
        sent = [b"%d" % number for number in range(20)]
        with producer(echoless.client_options) as writer:
            with echoless.faults.drop_responses(times=1, topic=topic) as lost:
                for value in sent:
                    writer.send(topic, value, partition=0)
                writer.flush()
            assert lost.hits == 1
            writer.send(other, b"x", partition=0)
            with pytest.raises(DeliveryError, match="TOPIC_AUTHORIZATION_FAILED"):
                writer.flush()
        echoless.assert_exactly_once(topic, sent)


@pytest.mark.slow
def test_users_survive_a_restart() -> None:
    """An added one as well; a wrong password is refused as before."""
    with BrokerProcess(security="SASL_PLAINTEXT") as broker:
        bob = broker.add_user("bob")
        broker.kill()
        broker.start()
        for options in (broker.client_options, bob):
            with producer(options) as writer:
                assert writer.send("t", b"x", partition=0).result(30).topic == "t"
        host, _, port = broker.bootstrap_servers.rpartition(":")
        wrong = security_of({**bob, "sasl.password": "wrong"})
        with pytest.raises(AuthenticationError):
            BrokerConnection.open(host, int(port), security=wrong)


@pytest.mark.slow
def test_the_plugin_takes_it_by_marker(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside settings of the broker, for a client of any library."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(
        """
        import pytest
        from confluent_kafka import Producer

        @pytest.mark.echoless(security="SASL_SSL", num_partitions=1)
        def test_over_sasl_ssl(echoless):
            producer = Producer({**echoless.client_options, "enable.idempotence": True})
            producer.produce("orders", "one")
            assert producer.flush(30) == 0
            echoless.assert_exactly_once("orders", ["one"])

        @pytest.mark.echoless(security="SSL")
        def test_over_tls(echoless):
            assert echoless.client_options["security.protocol"] == "SSL"
            producer = Producer(echoless.client_options)
            producer.produce("orders", "one")
            assert producer.flush(30) == 0
        """
    )
    ran = pytester.runpytest_inprocess("-p", "echoless.testkit.plugin", "--strict-markers")
    ran.assert_outcomes(passed=2)


@pytest.mark.slow
def test_an_unknown_protocol_is_refused() -> None:
    """With those that there are."""
    with pytest.raises(ValueError, match=r"takes one of SSL, .* not 'TLS'"):
        BrokerProcess(security="TLS")
    with (
        BrokerProcess() as broker,
        pytest.raises(ValueError, match="start the broker with security"),
    ):
        broker.add_user("bob")
