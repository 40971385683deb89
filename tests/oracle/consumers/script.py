"""The script of the consumer protocol (KIP-848), beside Apache Kafka 4.2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tests.oracle.consumers.chooser import TOPICS, Step
from tests.oracle.consumers.differences import NAMES
from tests.oracle.consumers.game import ConsumersGame
from tests.oracle.game import Game
from tests.oracle.script import History, Script, Table, Topic, Variant
from tests.oracle.side import Sides, wait_for_coordinator
from tests.support.apache_kafka import KafkaVersion

_SESSION_MS: Final = "3600000"
"""No member is forgotten: the first histories wait until all have been played, and both brokers restarted."""


class ConsumersScript(Script[Step]):
    """One group for each history, on the same two topics; played one after the other."""

    name = "consumers"
    differences = NAMES
    kafka_version = KafkaVersion.V4
    kafka_settings: Mapping[str, str] = {
        "auto.create.topics.enable": "false",
        "log.cleaner.enable": "false",
        "num.io.threads": "1",
        "group.consumer.session.timeout.ms": _SESSION_MS,
        "group.consumer.max.session.timeout.ms": _SESSION_MS,
    }
    variants = (
        Variant(
            settings={
                "auto_create_topics_enable": "false",
                "offsets_topic_num_partitions": "1",
                "group_consumer_session_timeout_ms": _SESSION_MS,
            }
        ),
    )
    lanes = 1
    together_max = 250

    def games(self, histories: Sequence[History[Step]], table: Table) -> Sequence[ConsumersGame]:
        return [ConsumersGame(history, table.label) for history in histories]

    def topics(self, games: Sequence[Game[Step]]) -> Mapping[str, Topic]:
        return {name: Topic(partitions) for name, partitions in TOPICS.items()}

    async def wait_until_ready(self, sides: Sides) -> None:
        for side in sides:
            await wait_for_coordinator(side)
