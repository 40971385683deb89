"""Which broker the client takes for a partition's leader, with brokers that say so."""

from __future__ import annotations

import pytest

from echoless.client.cluster import BrokerAddress, Cluster, NoLeaderError, parse_addresses
from tests.support.in_process import in_process


class Told:
    """Metadata without the bytes."""

    def __init__(self, **fields):
        self.__dict__.update(fields)


def topic(leader, leader_epoch, *, topic_id="one"):
    code = Told(value=0, name="none")
    partition = Told(partition_index=0, leader_id=leader, leader_epoch=leader_epoch)
    return Told(error_code=code, topic_id=topic_id, partitions=[partition])


def told(*topics):
    """A cluster of brokers 1 and 2 that received these, one after the other."""
    cluster = Cluster([BrokerAddress("127.0.0.1", 1)], timeout_s=1)
    cluster._brokers = {1: BrokerAddress("127.0.0.1", 1), 2: BrokerAddress("127.0.0.1", 2)}
    for one in topics:
        cluster._take_topic("t", one)
    return cluster


def leader_of(cluster):
    return cluster._partitions["t", 0].leader


def test_older_leader_epoch_is_not_believed():
    """A lagging broker does not send the client back to a deposed leader."""
    assert leader_of(told(topic(1, 5), topic(2, 4))) == 1
    assert leader_of(told(topic(1, 5), topic(2, 6))) == 2


def test_new_topic_of_the_name_begins_anew():
    """Its leader epochs have nothing to do with the old ones."""
    assert leader_of(told(topic(1, 5), topic(2, 0, topic_id="two"))) == 2


def test_hint_of_the_broker_counts_when_it_is_newer():
    """NOT_LEADER_OR_FOLLOWER names the leader from version 10 on; an unknown broker is no help."""
    cluster = told(topic(1, 5))
    cluster.note_leader("t", 0, 2, 5)
    assert leader_of(cluster) == 1
    cluster.note_leader("t", 0, 3, 6)
    assert leader_of(cluster) == 1
    cluster.note_leader("t", 0, 2, 6)
    assert leader_of(cluster) == 2
    cluster.note_leader("unknown", 0, 2, 6)


async def test_bootstrap_goes_on_to_the_next_address(tmp_path):
    """One of the listed brokers is enough."""
    async with in_process(tmp_path) as running:
        cluster = Cluster(parse_addresses(f"127.0.0.1:1,{running.kafka_address}"), timeout_s=10)
        connection = await cluster.leader("t", 0)
        assert connection is cluster.known_leader("t", 0)
        assert await cluster.partition_count("t") == 1
        with pytest.raises(NoLeaderError, match="1 partitions, none of number 3"):
            await cluster.leader("t", 3)
        await cluster.close()


async def test_lost_connection_is_opened_again(tmp_path):
    """The next request finds a new one."""
    async with in_process(tmp_path) as running:
        cluster = Cluster(parse_addresses(running.kafka_address), timeout_s=10)
        first = await cluster.leader("t", 0)
        await first.close()
        assert cluster.known_leader("t", 0) is None
        second = await cluster.leader("t", 0)
        assert second is not first
        await cluster.close()


async def test_an_outage_is_logged_once_and_so_is_its_end(tmp_path, caplog):
    """A producer tries for two minutes by default: its user sees why nothing happens."""
    cluster = Cluster(parse_addresses("127.0.0.1:1"), timeout_s=10)
    for _ in range(3):
        with pytest.raises(NoLeaderError):
            await cluster.leader("t", 0)
    unreachable = "127.0.0.1:1 cannot be reached (Connection refused); trying again"
    assert caplog.messages == [unreachable]
    async with in_process(tmp_path) as running:
        cluster._bootstrap = parse_addresses(running.kafka_address)
        await cluster.leader("t", 0)
        await cluster.partition_count("t")
        answers = f"a broker answers at {running.kafka_address}"
        assert [one for one in caplog.messages if "broker answers" in one] == [answers]
        await cluster.close()


@pytest.mark.parametrize("text", ["", "broker", "broker:", ":9092", "broker:x", "a:1,,b:2"])
def test_bad_addresses_are_refused(text):
    """The error shows the whole form."""
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_addresses(text)


def test_addresses_may_be_ipv6():
    """They are in brackets, as everywhere."""
    assert parse_addresses("[::1]:9092, b:1") == (BrokerAddress("::1", 9092), BrokerAddress("b", 1))
