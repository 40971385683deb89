"""The leader of a partition is asked by what both sides know of the topic."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from echoless.client.connection import BrokerConnection
from echoless.client.security import NO_SECURITY
from echoless.pipeline.batches import partition_leader
from echoless.pipeline.batches.partition_leader import PartitionLeader
from tests.pipeline.exactly_once.broker_thread import BrokerThread
from tests.pipeline.reading.written import TOPIC, write


def test_a_topic_without_an_id_is_fetched_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers of one cluster begin to serve Fetch 13, and topics to have ids, one after the other."""
    read_metadata = partition_leader.read_metadata

    def without_ids(connection: BrokerConnection, topic: str | None) -> Any:
        answer = read_metadata(connection, topic)
        return replace(answer, topics=tuple(replace(one, topic_id=None) for one in answer.topics))

    monkeypatch.setattr(partition_leader, "read_metadata", without_ids)
    with BrokerThread(tmp_path) as broker:
        broker.create(TOPIC, 1)
        write(broker.address, 0, 3)
        with PartitionLeader(broker.address, TOPIC, 0, NO_SECURITY) as leader:
            assert leader.fetch(0)
