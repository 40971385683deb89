"""The story of a broker while the console looks on: one of everything that it can show."""

from __future__ import annotations

import time

from echoless.protocol.errors import ErrorCode
from echoless.testkit.admin import Admin
from echoless.testkit.native import Native
from echoless.testkit.scripted_producer import NoAnswerError, ScriptedBatch, ScriptedProducer
from tests.support.echoless import Echoless

LOSE_ONE = {
    "name": "lose-one",
    "match": {"api": "produce", "topic": "orders"},
    "schedule": {"times": 1},
    "action": {"type": "drop_response", "later": "send"},
}


class Sender:
    """An idempotent producer whose numbers the test chooses."""

    def __init__(self, broker: Echoless, topic: str, partition: int = 0) -> None:
        self.producer_id = Native(broker.native_address).init_producer_id()
        self._producer = ScriptedProducer.open(broker.kafka_address)
        self._place = topic, partition

    def send(self, base_sequence: int, count: int = 3, epoch: int = 0, timestamp: int = -1) -> str:
        """Sends one batch; returns the name of the error, or `lost`."""
        values = tuple(f"value {base_sequence + one}".encode() for one in range(count))
        batch = ScriptedBatch(
            *self._place, self.producer_id, epoch, base_sequence, values, timestamp
        )
        self._producer.send(batch)
        try:
            _, answer = self._producer.receive(timeout_s=2)
        except NoAnswerError:
            return "lost"
        return ErrorCode(answer[0]).name

    def close(self) -> None:
        self._producer.close()


def tell(broker: Echoless) -> int:
    """Stores, loses, repeats and refuses; returns the producer id of the one all this happens to."""
    native = Native(broker.native_address)
    native.create_topic("orders", partitions=3)
    native.create_topic("payments", partitions=1)
    steady = [Sender(broker, "orders", index) for index in (1, 2)] + [Sender(broker, "payments")]
    for turn in range(12):
        for place, one in enumerate(steady):
            assert one.send(turn * (place + 1) * 4, (place + 1) * 4) == "NONE"
    sender = Sender(broker, "orders")
    for base in (0, 3, 6):
        assert sender.send(base) == "NONE"
    Admin(broker.admin_address).post("/faults", LOSE_ONE)
    assert sender.send(9) == "lost"
    assert sender.send(9) == "NONE"
    assert sender.send(15) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert sender.send(12) == "NONE"
    assert sender.send(12, timestamp=1) == "NONE"
    assert sender.send(0, 5, epoch=1) == "NONE"
    assert sender.send(15) == "INVALID_PRODUCER_EPOCH"
    for one in [*steady, sender]:
        one.close()
    return sender.producer_id


def tell_slowly(broker: Echoless, turns: int, pause_s: float = 0.02) -> None:
    """One producer that goes on for a while."""
    sender = Sender(broker, "orders", 1)
    for turn in range(turns):
        sender.send(turn * 2, 2)
        time.sleep(pause_s)
    sender.close()
