"""Registration: one session per broker id; and the cluster's id."""

from __future__ import annotations

import asyncio
import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.broker.config.advertised import parse_networks
from echoless.broker.metadata.cluster_id import read_or_create_cluster_id
from echoless.broker.metadata.node_data import CLUSTER_ID, NodeDataError, broker_path, encode_uuid
from echoless.broker.metadata.registration import (
    BrokerIdInUseError,
    BrokerInfo,
    Endpoint,
    await_departure,
    decode_broker,
    encode_broker,
    read_brokers,
    register_broker,
    update_registration,
)
from echoless.broker.tree.node_tree import (
    ConnectionLostError,
    Node,
    NodeTree,
    NoNodeError,
    ensure_paths,
)
from tests.fakes.memory_node_tree import MemoryNodeTree, MemoryTree, turns


@pytest.fixture
def server() -> MemoryTree:
    return MemoryTree()


@pytest.fixture
def tree(server: MemoryTree) -> MemoryNodeTree:
    return server.connect()


@pytest.fixture
def other(server: MemoryTree) -> MemoryNodeTree:
    return server.connect()


def info(broker_id: int = 1, host: str = "h", rack: str | None = None) -> BrokerInfo:
    endpoints = {"PLAINTEXT": Endpoint(host=host, port=1)}
    return BrokerInfo(broker_id=broker_id, endpoints=endpoints, started_ms=0, rack=rack)


async def test_a_broker_is_there_while_its_session_lives(
    tree: MemoryNodeTree, other: MemoryNodeTree
) -> None:
    """The node is ephemeral and holds the broker's data."""
    await register_broker(tree, info())
    node = await other.read(broker_path(1))
    assert (node.data, node.owner) == (encode_broker(info()), tree.session_id)
    tree.expire_session()
    assert await other.read_many([broker_path(1)]) == [None]


def test_addresses_for_networks_are_registered() -> None:
    """Beside the endpoints, which are all that Kafka and earlier releases read."""
    networks = parse_networks({"10.0.0.0/8": "a:1", "fd00::/8": "arrival"})
    plain, varying = Endpoint("h", 1), Endpoint("h", 2, "SSL", True, networks)
    before = info()._replace(endpoints={"PLAINTEXT": plain, "EXTERNAL": varying})
    data = encode_broker(before)
    assert decode_broker(broker_path(1), Node(data, 0)) == before
    fields = json.loads(data)
    assert fields["endpoints"] == ["PLAINTEXT://h:1", "EXTERNAL://h:2"]
    assert fields["advertised"] == {
        "EXTERNAL": {"arrival": True, "networks": {"10.0.0.0/8": "a:1", "fd00::/8": "arrival"}}
    }
    assert "advertised" not in json.loads(encode_broker(info()))


@pytest.mark.parametrize(
    "advertised", [{"PLAINTEXT": {"networks": {"here": "a:1"}}}, {"PLAINTEXT": 7}, 7]
)
def test_addresses_for_networks_that_cannot_be_read(advertised: object) -> None:
    """As any other field that is damaged: the node is taken for no broker."""
    fields = {**json.loads(encode_broker(info())), "advertised": advertised}
    with pytest.raises(NodeDataError):
        decode_broker(broker_path(1), Node(json.dumps(fields).encode(), 0))


async def test_a_broker_id_that_is_alive_is_refused(
    tree: MemoryNodeTree, other: MemoryNodeTree
) -> None:
    """The error names the broker that holds the id, and other ids are free."""
    await register_broker(tree, info(host="first"))
    with pytest.raises(BrokerIdInUseError, match=r"broker id 1 .*PLAINTEXT://first:1"):
        await register_broker(other, info(host="second"))
    await register_broker(other, info(broker_id=2))


async def test_a_broker_may_register_twice_in_one_session(tree: MemoryNodeTree) -> None:
    """It meets its own node, not a rival's."""
    await register_broker(tree, info())
    await register_broker(tree, info())


@pytest.mark.parametrize("applied", [True, False])
async def test_a_lost_answer_is_resolved_by_reading(tree: MemoryNodeTree, applied: bool) -> None:
    """If the node exists and is ours, the broker is registered; otherwise the loss is reported."""
    await ensure_paths(tree, ["/brokers/ids"])
    tree.lose_next_reply(applied=applied)
    if applied:
        await register_broker(tree, info())
    else:
        with pytest.raises(ConnectionLostError):
            await register_broker(tree, info())


def test_ipv6_addresses_stand_in_brackets() -> None:
    """The port can then be told from the address; the host alone has none."""
    data = encode_broker(info(host="::1"))
    assert b'"endpoints":["PLAINTEXT://[::1]:1"]' in data
    assert b'"host":"::1"' in data


def test_without_a_rack_the_field_is_missing() -> None:
    """The same as in Kafka."""
    assert b"rack" not in encode_broker(info())


async def test_the_cluster_id_is_made_once(tree: MemoryNodeTree, other: MemoryNodeTree) -> None:
    """Every broker, now and later, gets the first one's."""
    first = await read_or_create_cluster_id(tree, lambda: uuid.UUID(int=7))
    assert first == "AAAAAAAAAAAAAAAAAAAABw"
    assert await read_or_create_cluster_id(other) == first


async def test_of_two_first_brokers_one_makes_the_id(
    tree: MemoryNodeTree, other: MemoryNodeTree
) -> None:
    """A lost race is answered with the winner's id."""
    await ensure_paths(tree, ["/cluster"])
    winner = []

    async def rival() -> None:
        winner.append(await read_or_create_cluster_id(other))

    tree.before_next_change(rival)
    assert [await read_or_create_cluster_id(tree)] == winner


@pytest.mark.parametrize("applied", [True, False])
async def test_a_lost_answer_about_the_cluster_id(tree: MemoryNodeTree, applied: bool) -> None:
    """An id that landed is ours; otherwise the start fails and can be tried again."""
    await read_or_create_cluster_id(tree)
    await tree.delete(CLUSTER_ID)
    tree.lose_next_reply(applied=applied)
    if applied:
        expected = encode_uuid(uuid.UUID(int=7))
        assert await read_or_create_cluster_id(tree, lambda: uuid.UUID(int=7)) == expected
    else:
        with pytest.raises(ConnectionLostError):
            await read_or_create_cluster_id(tree)


async def test_a_damaged_cluster_id_is_named(tree: NodeTree) -> None:
    """It is not replaced: the data directories carry the old one."""
    await ensure_paths(tree, ["/cluster"])
    await tree.create(CLUSTER_ID, b"junk")
    with pytest.raises(NodeDataError, match=r"/cluster/id .*junk"):
        await read_or_create_cluster_id(tree)


class TestData:
    """`encode_broker` and `decode_broker`."""

    @given(
        rack=st.none() | st.text(),
        is_leaving=st.booleans(),
        unserved=st.frozensets(st.text(), max_size=3),
        hosts=st.lists(st.sampled_from(["h", "10.0.0.1", "::1", "fe80::1%eth0", ""]), max_size=3),
    )
    def test_what_a_broker_tells_is_what_the_others_read(
        self, rack: str | None, is_leaving: bool, unserved: frozenset[str], hosts: list[str]
    ) -> None:
        """All listeners, IPv6 too."""
        names = ["PLAINTEXT", "EXTERNAL", "NATIVE"]
        told = BrokerInfo(
            broker_id=7,
            endpoints={
                name: Endpoint(host=host, port=9092)
                for name, host in zip(names, hosts, strict=False)
            },
            started_ms=1,
            rack=rack,
            features={"x": 1},
            is_leaving=is_leaving,
            unserved=unserved,
        )
        assert decode_broker("/brokers/ids/7", Node(encode_broker(told), 0)) == told

    @pytest.mark.parametrize(
        ("protocols", "expected"),
        [
            (["PLAINTEXT", "SSL", "SSL"], ("h0", 9092)),
            (["SSL", "PLAINTEXT", "SSL"], ("h1", 9092)),
            (["SSL", "SASL_SSL", "PLAINTEXT"], (None, -1)),  # NATIVE is not for Kafka's clients
        ],
    )
    def test_the_oldest_fields_repeat_a_listener_that_speaks_plaintext(
        self, protocols: list[str], expected: tuple[str | None, int]
    ) -> None:
        """Whatever its name is; null and -1 if there is none, as Kafka writes it."""
        endpoints = {
            name: Endpoint(host=f"h{number}", port=9092, security_protocol=protocols[number])
            for number, name in enumerate(["PLAINTEXT", "EXTERNAL", "NATIVE"])
        }
        info = BrokerInfo(broker_id=7, endpoints=endpoints, started_ms=1)
        fields = json.loads(encode_broker(info))
        assert (fields["host"], fields["port"]) == expected
        assert fields["listener_security_protocol_map"]["PLAINTEXT"] == protocols[0]
        assert decode_broker("/brokers/ids/7", Node(encode_broker(info), 0)) == info

    def test_a_node_that_kafka_wrote_is_read(self) -> None:
        """Version 5: fields in another order, and ours is missing."""
        data = (
            b'{"features":{},"listener_security_protocol_map":{"INTERNAL":"PLAINTEXT",'
            b'"EXTERNAL":"SASL_SSL"},"endpoints":["INTERNAL://kafka-1:9092","EXTERNAL://[::1]:9093"],'
            b'"jmx_port":-1,"port":-1,"host":null,"version":5,"timestamp":"1700000000000"}'
        )
        assert decode_broker("/brokers/ids/1", Node(data, 0)) == BrokerInfo(
            broker_id=1,
            endpoints={
                "INTERNAL": Endpoint(host="kafka-1", port=9092),
                "EXTERNAL": Endpoint(host="::1", port=9093, security_protocol="SASL_SSL"),
            },
            started_ms=1_700_000_000_000,
        )

    @pytest.mark.parametrize(
        "data",
        [
            b'{"version":1,"host":"h","port":9092,"jmx_port":-1,"timestamp":"5"}',
            b'{"version":2,"host":"h","port":9092,"timestamp":"5","endpoints":["PLAINTEXT://h:9092"]}',
        ],
    )
    def test_old_versions_name_their_listener_by_its_protocol(self, data: bytes) -> None:
        """Kafka 0.8 had one listener, 0.9 one per security protocol."""
        endpoints = {"PLAINTEXT": Endpoint(host="h", port=9092)}
        assert decode_broker("/brokers/ids/1", Node(data, 0)).endpoints == endpoints


class TestWaiting:
    """`await_departure`, and registering with patience."""

    async def test_a_killed_broker_waits_for_its_earlier_session(
        self, tree: MemoryNodeTree, other: MemoryNodeTree
    ) -> None:
        """The new node appears as soon as the old one is gone."""
        await register_broker(other, info(host="old"))
        registering = asyncio.create_task(register_broker(tree, info(host="new"), wait_s=60))
        await turns()
        assert not registering.done()
        other.expire_session()
        await registering
        assert (await tree.read(broker_path(1))).owner == tree.session_id

    async def test_patience_ends(self, tree: MemoryNodeTree, other: MemoryNodeTree) -> None:
        """A living broker never gives up its id, so a waiting one gets an error in the end."""
        await register_broker(other, info(host="alive"))
        with pytest.raises(BrokerIdInUseError, match="alive"):
            await register_broker(tree, info(), wait_s=0.001)
        with pytest.raises(BrokerIdInUseError, match="alive"):
            await await_departure(tree, 1, wait_s=0.001)

    async def test_of_two_that_wait_one_gets_the_id(
        self, server: MemoryTree, tree: MemoryNodeTree, other: MemoryNodeTree
    ) -> None:
        """The other is refused."""
        await register_broker(other, info())
        rivals = [tree, server.connect()]
        registering = asyncio.gather(
            *(register_broker(rival, info(), wait_s=60) for rival in rivals),
            return_exceptions=True,
        )
        await turns()
        other.expire_session()
        results = await registering
        assert [type(result) for result in results].count(BrokerIdInUseError) == 1

    async def test_nobody_waits_for_a_free_id_or_for_itself(self, tree: MemoryNodeTree) -> None:
        """The own session's node is no obstacle."""
        await await_departure(tree, 1, wait_s=0.001)
        await register_broker(tree, info())
        await await_departure(tree, 1, wait_s=0.001)


class TestUpdate:
    """`update_registration`."""

    @pytest.mark.parametrize("loss", [None, True, False])
    async def test_a_broker_announces_that_it_leaves(
        self, tree: MemoryNodeTree, other: MemoryNodeTree, loss: bool | None
    ) -> None:
        """The node is the same, its data are new, whatever becomes of the answer."""
        await register_broker(tree, info())
        if loss is not None:
            tree.lose_next_reply(applied=loss)
        await update_registration(tree, info()._replace(is_leaving=True))
        assert (await read_brokers(other))[1].is_leaving
        assert (await other.read(broker_path(1))).owner == tree.session_id

    async def test_another_sessions_node_is_left_alone(
        self, tree: MemoryNodeTree, other: MemoryNodeTree
    ) -> None:
        """A broker whose session has ended does not speak for the one that took its place."""
        with pytest.raises(NoNodeError):
            await update_registration(tree, info())
        await register_broker(other, info(host="other"))
        with pytest.raises(BrokerIdInUseError):
            await update_registration(tree, info())
        assert (await read_brokers(tree))[1] == info(host="other")
