"""Transactions whose requests are answered in vain: connections are cut and answers swallowed, from a seed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from echoless.client.coordinator import Coordinator
from echoless.client.producer import Producer
from echoless.client.settings import Settings
from echoless.client.transactions.group_metadata import GroupMetadata
from tests.support.echoless import Echoless
from tests.support.lossy_proxy import LossyProxy
from tests.transactions.librdkafka import TOPIC, create_topic, read_until

pytestmark = pytest.mark.slow

TRANSACTIONS = 60
SETTINGS = Settings(
    batch_records_max=2, request_timeout_s=0.5, retry_backoff_s=0.002, retry_backoff_max_s=0.05
)


@pytest.mark.parametrize("generation", [1, 2], ids=["first", "second"])
def test_exactly_the_committed_records_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, generation: int
) -> None:
    """Whatever answer is lost: of a session's beginning, an add, offsets, a batch or an end."""
    if generation == 1:
        monkeypatch.setattr(Coordinator, "finalized_level", lambda *_: 0)
    dice = random.Random(generation)
    committed: list[str] = []
    with LossyProxy(5, fault_after_chunks_max=12) as proxy:
        broker = Echoless(tmp_path, arguments=["--advertise", proxy.address])
        broker.start()
        proxy.target, proxy.is_lossy = broker.kafka_address, False
        create_topic(proxy.address)
        proxy.is_lossy = True
        with Producer(proxy.address, SETTINGS, transactional_id="t") as producer:
            for number in range(TRANSACTIONS):
                values = [f"{number}-{index}" for index in range(dice.randint(1, 6))]
                producer.begin_transaction()
                for value in values:
                    producer.send(TOPIC, value.encode(), partition=dice.randrange(3))
                if dice.random() < 0.3:
                    producer.send_offsets({(TOPIC, 0): number}, GroupMetadata("g"))
                if dice.random() < 0.7:
                    producer.commit_transaction()
                    committed += values
                else:
                    producer.abort_transaction()
        proxy.is_lossy = False
        read_until(proxy.address, committed)
        assert min(proxy.swallowed, proxy.cut) > 5
        broker.kill()
