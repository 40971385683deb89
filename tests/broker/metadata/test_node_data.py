"""Node data: Kafka's JSON to the byte, and damaged data is named."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.broker.authorization.acl_nodes import (
    acl_path,
    change_prefix,
    encode_change,
    encode_entries,
)
from echoless.broker.config.feature_levels import SUPPORTED
from echoless.broker.controller.election_requests import decode_requests, encode_requests
from echoless.broker.controller.elections import ElectionType
from echoless.broker.metadata.broker_settings import OF_ALL
from echoless.broker.metadata.features import FEATURES, encode_level
from echoless.broker.metadata.node_data import (
    CLUSTER_ID,
    CONTROLLER,
    CONTROLLER_EPOCH,
    PREFERRED_REPLICA_ELECTION,
    LeaderAndIsr,
    NodeDataError,
    Predecessor,
    Reassignment,
    broker_path,
    decode_cluster_id,
    decode_config,
    decode_controller,
    decode_controller_epoch,
    decode_partition_state,
    decode_topic,
    decode_uuid,
    encode_cluster_id,
    encode_config,
    encode_controller,
    encode_controller_epoch,
    encode_partition_state,
    encode_predecessor,
    encode_topic,
    encode_uuid,
    partition_state_path,
    topic_config_path,
    topic_path,
    topic_predecessor_path,
)
from echoless.broker.metadata.producer_id_block import PATH, ProducerIdBlock
from echoless.broker.metadata.registration import BrokerInfo, Endpoint, decode_broker, encode_broker
from echoless.broker.metadata.tree_mark import encode_mark, mark_path
from echoless.broker.tree.node_tree import Node
from echoless.protocol.acl import (
    AclOperation,
    Entry,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)

PAGE = Path(__file__).parents[3] / "docs/formats/coordination-nodes.md"
TOPIC_ID = uuid.UUID(bytes=bytes(range(16)))
OF_A_PREFIX = Pattern(ResourceType.TRANSACTIONAL_ID, PatternType.PREFIXED, "app-")

EXAMPLES: dict[str, bytes] = {
    CLUSTER_ID: encode_cluster_id(encode_uuid(TOPIC_ID)),
    broker_path(1): encode_broker(
        BrokerInfo(
            broker_id=1,
            endpoints={
                "PLAINTEXT": Endpoint(host="127.0.0.1", port=9092),
                "NATIVE": Endpoint(host="127.0.0.1", port=9093),
            },
            started_ms=1_700_000_000_000,
            rack="r1",
            features=SUPPORTED,
        )
    ),
    FEATURES: encode_level(1),
    topic_path("orders"): encode_topic(
        TOPIC_ID, {0: (1, 2), 1: (3, 1, 2)}, {1: Reassignment(adding=(3,), removing=(2,))}
    ),
    partition_state_path("orders", 0): encode_partition_state(
        LeaderAndIsr(leader=1, leader_epoch=3, isr=(1, 2))
    ),
    topic_config_path("orders"): encode_config(
        {"retention.ms": "1000", "cleanup.policy": "delete"}
    ),
    OF_ALL: encode_config({"log.retention.ms": "3600000", "max.connections": "500"}),
    topic_predecessor_path("orders"): encode_predecessor(Predecessor(4999, 2)),
    PREFERRED_REPLICA_ELECTION: encode_requests(
        {("orders", 0): ElectionType.PREFERRED, ("orders", 1): ElectionType.UNCLEAN}
    ),
    CONTROLLER: encode_controller(1, 1_700_000_000_000),
    CONTROLLER_EPOCH: encode_controller_epoch(4),
    PATH: ProducerIdBlock(35, 4000, 4999).encode(),
    mark_path(1): encode_mark(7),
    acl_path(Pattern(ResourceType.TOPIC, PatternType.LITERAL, "orders")): encode_entries(
        frozenset(
            {
                Entry("User:*", "10.0.0.1", AclOperation.ALL, Permission.DENY),
                Entry("User:alice", "*", AclOperation.DESCRIBE_CONFIGS, Permission.ALLOW),
            }
        )
    ),
    f"{change_prefix(OF_A_PREFIX)}0000000000": encode_change(OF_A_PREFIX),
}


def test_every_example_of_the_page_is_what_the_code_writes() -> None:
    """The format page and the code cannot drift apart."""
    found = re.findall(
        r"^## `(/[^`]+)`\n.*?^```json\n(.*?)\n```", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    assert dict(found) == {path: data.decode() for path, data in EXAMPLES.items()}


def test_what_is_encoded_is_decoded() -> None:
    """Each decoder gives back what the encoder was given."""
    state = LeaderAndIsr(leader=1, leader_epoch=3, isr=(1, 2), node_version=7)
    node = Node(encode_partition_state(state), 7)
    assert decode_partition_state("/p", node) == state
    assert decode_topic("/t", EXAMPLES[topic_path("orders")]) == (
        TOPIC_ID,
        {0: (1, 2), 1: (3, 1, 2)},
        {1: Reassignment(adding=(3,), removing=(2,))},
    )
    assert decode_config("/c", EXAMPLES[topic_config_path("orders")])["retention.ms"] == "1000"
    assert decode_cluster_id(EXAMPLES[CLUSTER_ID]) == encode_uuid(TOPIC_ID)
    asked = decode_requests(EXAMPLES[PREFERRED_REPLICA_ELECTION])
    assert list(asked) == [("orders", 0), ("orders", 1)]
    assert decode_controller(EXAMPLES[CONTROLLER]) == 1
    assert decode_controller_epoch(EXAMPLES[CONTROLLER_EPOCH]) == 4


def test_nodes_that_kafka_wrote_are_read() -> None:
    """Another order of fields, further fields, partitions out of order."""
    state = (
        b'{"isr":[3],"leader":3,"version":1,"leader_epoch":9,"leader_recovery_state":0,'
        b'"controller_epoch":4}'
    )
    assert decode_partition_state("/p", Node(state, 2)) == LeaderAndIsr(
        leader=3, leader_epoch=9, isr=(3,), controller_epoch=4, node_version=2
    )
    topic = (
        b'{"removing_replicas":{},"partitions":{"10":[1],"9":[1],"8":[1],"7":[1],"6":[1],"5":[1],'
        b'"4":[1],"3":[1],"2":[1],"1":[1],"0":[2]},"topic_id":"AAECAwQFBgcICQoLDA0ODw",'
        b'"adding_replicas":{},"version":3}'
    )
    assignment = decode_topic("/t", topic).assignment
    assert list(assignment) == list(range(11))
    assert assignment[0] == (2,)
    controller = b'{"version":2,"brokerid":3,"timestamp":"1","kraftControllerEpoch":-1}'
    assert decode_controller(controller) == 3


def test_a_partition_may_gain_or_lose_replicas_alone() -> None:
    """Kafka names only what exists; a partition with neither is not being moved."""
    data = (
        b'{"topic_id":"AAECAwQFBgcICQoLDA0ODw","partitions":{"0":[1],"1":[1,2],"2":[1]},'
        b'"adding_replicas":{"0":[1],"2":[]},"removing_replicas":{"1":[2]},"version":3}'
    )
    assert decode_topic("/t", data).reassignments == {
        0: Reassignment(adding=(1,), removing=()),
        1: Reassignment(adding=(), removing=(2,)),
    }


@given(st.uuids())
def test_uuids_are_22_characters_of_kafkas_alphabet(value: uuid.UUID) -> None:
    """URL-safe base64 without padding, there and back."""
    text = encode_uuid(value)
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", text)
    assert decode_uuid(text) == value


TOO_DEEP = b"[" * 100_000

DECODERS: list[tuple[Callable[[bytes], object], list[bytes]]] = [
    (
        lambda data: decode_partition_state("/x", Node(data, 0)),
        [b'{"leader":1,"leader_epoch":0,"isr":[1]}', b'{"leader":"a"}', b'{"leader":1e999}'],
    ),
    (
        lambda data: decode_topic("/x", data),
        [
            b'{"topic_id":"AAECAwQFBgcICQoLDA0ODw","partitions":{"1":[1]}}',
            b'{"topic_id":"AAECAwQFBgcICQoLDA0ODw","partitions":[[1]]}',
            b'{"topic_id":"AAECAwQFBgcICQoLDA0ODw","partitions":{}}',
            b'{"topic_id":"AAECAwQFBgcICQoLDA0ODw","partitions":{"0":[]}}',
            b'{"topic_id":"too short","partitions":{"0":[1]}}',
            b'{"topic_id":null,"partitions":{"0":[1]}}',
            b'{"partitions":{"0":[1]}}',
        ],
    ),
    (lambda data: decode_config("/x", data), [b'{"config":[]}', b"{}"]),
    (
        lambda data: decode_broker("/x/1", Node(data, 0)),
        [b'{"endpoints":["nonsense"],"timestamp":"0"}', b'{"host":"h"}', b'{"endpoints":[]}'],
    ),
]


@pytest.mark.parametrize(("decode", "damaged"), DECODERS)
def test_damaged_data_is_named(decode: Callable[[bytes], object], damaged: list[bytes]) -> None:
    """The error says which node holds what."""
    for data in [b"", b"[]", b"\xff", b"{", TOO_DEEP, *damaged]:
        with pytest.raises(NodeDataError) as failure:
            decode(data)
        assert "/x" in str(failure.value)
        assert str(data) in str(failure.value)


@pytest.mark.parametrize(
    ("decode", "path"),
    [
        (decode_controller, CONTROLLER),
        (decode_controller_epoch, CONTROLLER_EPOCH),
        (decode_requests, PREFERRED_REPLICA_ELECTION),
    ],
)
def test_damage_of_the_controllers_nodes_is_named(
    decode: Callable[[bytes], object], path: str
) -> None:
    """Nothing is repaired by guessing."""
    for data in [
        b"",
        b"[]",
        b"\xff",
        b"{}",
        TOO_DEEP,
        b'{"brokerid":null,"partitions":[{"topic":"t"}]}',
    ]:
        with pytest.raises(NodeDataError, match=re.escape(path)):
            decode(data)
