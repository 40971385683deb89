"""Has a fake broker decide."""

from __future__ import annotations

from typing import Any

from echoless.broker.decisions.events import FaultedBatch, FaultHit
from echoless.broker.network.request import ANONYMOUS, Peer, Request
from echoless.protocol.dedup import Reject
from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_batch import BatchHeader
from echoless.storage.appended import Appended
from tests.broker.admin.fake_broker import FakeBroker


class Decider:
    """The reports of a produce path, without one."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker

    def append(
        self,
        producer_id: int = 7,
        base_sequence: int = 0,
        topic: str = "orders",
        principal: str = ANONYMOUS,
    ) -> None:
        """The broker has appended a batch of two records."""
        result = Appended(base_offset=4, last_offset=5, timestamp=0, log_append_time=-1)
        self._decide(producer_id, base_sequence, topic, result, principal)

    def refuse(self, producer_id: int = 7, base_sequence: int = 9, topic: str = "orders") -> None:
        """The broker has refused a batch of two records."""
        reject = Reject(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "sequence 9 does not follow 1")
        self._decide(producer_id, base_sequence, topic, reject)

    def hit(self, producer_id: int = 7, base_sequence: int = 0) -> None:
        """The broker has lost an acknowledgement on purpose."""
        batch = FaultedBatch("orders", 0, producer_id, 2, base_sequence, base_sequence + 1)
        self._broker.decisions.record_fault(
            FaultHit(
                0, 1000, "lose-acks", "drop_response", "produce", 1, 1, "billing",
                "10.0.0.1:5000", (batch,), "later=wait",
            )
        )  # fmt: skip

    def _decide(
        self,
        producer_id: int,
        base_sequence: int,
        topic: str,
        result: Appended | Reject,
        principal: str = ANONYMOUS,
    ) -> None:
        header = BatchHeader(0, 100, 0, 2, 5, 0, 1, 0, 0, producer_id, 2, base_sequence, 2)
        peer = Peer(1, "10.0.0.1:5000", principal=principal)
        request = Request(0, 9, 1, "billing", None, peer)
        partition: Any = self._broker.partitions[topic, 0]
        self._broker.decisions.record(request, partition, header, result, 1000)
