"""The scripts of transactions, beside Apache Kafka 3.9 and 4.2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

from tests.oracle.game import Game
from tests.oracle.messages import request_of
from tests.oracle.script import History, Script, Table, Topic, Variant
from tests.oracle.side import Side, Sides, wait_for_coordinator
from tests.oracle.transactions.asker import SEGMENT_MS
from tests.oracle.transactions.differences import NAMES
from tests.oracle.transactions.game import TransactionsGame
from tests.oracle.transactions.requests import Versions
from tests.oracle.transactions.step import PARTITIONS, Request
from tests.support.apache_kafka import KafkaVersion

_HIGHEST: Final = {
    "init_producer_id": 5,
    "add_offsets_to_txn": 4,
    "fetch": 12,
    "list_offsets": 9,
    "offset_fetch": 7,
    "list_transactions": 1,
    "find_coordinator": 6,
}


class TransactionsScript(Script[Request]):
    """Two transactional ids and a topic for each history."""

    name = "transactions"
    differences = NAMES
    kafka_settings: Mapping[str, str] = {
        "auto.create.topics.enable": "false",
        "log.cleaner.enable": "false",
        "log.retention.ms": "-1",
        # On a busy machine it would lose its leads for a moment, and with them what it keeps in memory only.
        "broker.session.timeout.ms": "9000",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    }
    variants = (
        Variant(
            settings={
                "auto_create_topics_enable": "false",
                "offsets_topic_num_partitions": "1",
                "transaction_state_log_num_partitions": "1",
                "unknown_producer_id": "accept",
                "log_retention_ms": "-1",
            }
        ),
    )
    lanes = 6
    together_max = 120
    versions = Versions((1,), _HIGHEST)

    def games(
        self, histories: Sequence[History[Request]], table: Table
    ) -> Sequence[TransactionsGame]:
        is_kafka_4 = self.kafka_version is KafkaVersion.V4
        return [
            TransactionsGame(history, table.label, self.versions, is_kafka_4=is_kafka_4)
            for history in histories
        ]

    def topics(self, games: Sequence[Game[Request]]) -> Mapping[str, Topic]:
        topic = Topic(PARTITIONS, {"segment.ms": str(SEGMENT_MS)})
        return {cast("TransactionsGame", game).topic: topic for game in games}

    async def wait_until_ready(self, sides: Sides) -> None:
        for side in sides:
            await wait_for_coordinator(side)
            await _wait_for_transactions(side)


class TransactionsOf4Script(TransactionsScript):
    """The same with both generations of the protocol."""

    name = "transactions-4"
    kafka_version = KafkaVersion.V4
    versions = Versions((1, 2, 2), {**_HIGHEST, "list_transactions": 2})


async def _wait_for_transactions(side: Side) -> None:
    """Returns when transactional ids have a coordinator that answers: connections from now on are newer than its election."""
    connection = await side.borrow()
    code = -1
    while code:
        await connection.call("find_coordinator", 4, key_type=1, coordinator_keys=("x",))
        values = {"transactional_id": "x", "transaction_timeout": 60_000}
        connection.send_request(request_of("init_producer_id", 4, values))
        code = int((await connection.receive_response("init_producer_id", 4)).error_code)
    side.give_back(connection)
