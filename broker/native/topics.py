"""`metadata` and `create_topic`: the topics, as on the Kafka port, but with native-port addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from echoless.broker.handlers import create_topics, metadata
from echoless.broker.handlers.mutations import Mutations
from echoless.broker.metadata.topic import NewTopic
from echoless.broker.network.request import Peer
from echoless.broker.network.turns import Described
from echoless.protocol.metadata_request import WantedTopic
from echoless.protocol.native.messages import CreateTopic, Metadata

if TYPE_CHECKING:
    from echoless.broker.services import Services


def handle_metadata(message: Metadata, peer: Peer, services: Services) -> Described:
    """Brokers, topics, partitions, leaders; a topic's own error is in its row."""
    names = message.topics
    wanted = None if names is None else [WantedTopic(name) for name in names]
    return metadata.describe(
        services,
        wanted,
        may_create=message.may_create,
        peer=peer,
        rights=None if services.access is None else services.access.rights(peer),
    )


async def handle_create_topic(
    message: CreateTopic, peer: Peer, services: Services
) -> dict[str, Any]:
    """Answers once the topic's partitions can accept records. Raises `KafkaError`."""
    new = NewTopic(
        name=message.topic,
        partitions=message.partitions,
        replication_factor=message.replication_factor,
        config=message.configs,
    )
    mutations = Mutations(services.quotas, peer, peer.client_id, is_strict=True)
    topic = await create_topics.create(services, new, mutations, validate_only=False)
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "partitions": topic.partition_count,
        "replication_factor": topic.replication_factor,
    }
