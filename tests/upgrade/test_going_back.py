"""An older release does not start over transactions, which it would give to readers of committed records as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.support.echoless import SOURCES, Echoless
from tests.support.server_process import ServerStartError
from tests.toolchain import require
from tests.transactions.librdkafka import TOPIC, create_topic, read, send, transactional
from tests.upgrade.releases import Release

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:alter_configs has been deprecated:DeprecationWarning"),
]

_STATE = ResourceType.TOPIC, "__transaction_state"

_REASON = "Unknown topic config name: needs.echoless.0.3.0.for.transactions"


def test_0_2_refuses_to_start_where_an_id_was_used(tmp_path: Path) -> None:
    """It names what it lacks, and the newer release goes on with everything; who insists takes the setting away."""
    require(Release.V0_2.tool_name)
    broker = Echoless(tmp_path)
    broker.start()
    try:
        create_topic(broker.kafka_address)
        _join_a_group(broker.kafka_address)
        _go_back(broker)
        producer = transactional(broker.kafka_address)
        producer.begin_transaction()
        send(producer, ["committed"])
        producer.commit_transaction()
        producer.begin_transaction()
        send(producer, ["open"])
        _alter_settings(broker.kafka_address)
        assert broker.terminate() == 0
        broker.run_from(Release.V0_2.tree)
        with pytest.raises(ServerStartError):
            broker.start()
        assert _REASON in broker.process.log()
        broker.run_from(SOURCES)
        broker.start()
        assert read(broker.kafka_address) == ["committed"]
        _alter(broker.kafka_address, AlterConfigOpType.DELETE, _REASON.rsplit(maxsplit=1)[-1])
        _go_back(broker)
    finally:
        broker.kill()


def _go_back(broker: Echoless) -> None:
    """Runs 0.2.0 for a moment over the same data."""
    assert broker.terminate() == 0
    broker.run_from(Release.V0_2.tree)
    broker.start()
    assert broker.terminate() == 0
    broker.run_from(SOURCES)
    broker.start()


def _alter_settings(bootstrap: str) -> None:
    """Replaces all settings of `__transaction_state`, and then adds one: what older releases refuse stays."""
    replaced = ConfigResource(*_STATE, set_config={"segment.bytes": "1048576"})
    admin = _admin(bootstrap)
    (future,) = admin.alter_configs([replaced]).values()
    future.result(30)
    _alter(bootstrap, AlterConfigOpType.SET, "min.compaction.lag.ms", "1")


def _alter(bootstrap: str, how: AlterConfigOpType, name: str, value: str = "") -> None:
    change = ConfigEntry(name, value, incremental_operation=how)
    resource = ConfigResource(*_STATE, incremental_configs=[change])
    admin = _admin(bootstrap)
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(30)


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def _join_a_group(bootstrap: str) -> None:
    """Has `__consumer_offsets` made: it is no reason."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "log_level": 0})
    consumer.committed([TopicPartition(TOPIC, 0)], timeout=30)
    consumer.close()
