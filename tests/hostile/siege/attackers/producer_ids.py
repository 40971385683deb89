"""Producer ids asked for faster than any client needs them."""

from __future__ import annotations

import datetime
import random

from tests.hostile.siege.attacker import Line, OnOneLine
from tests.support.raw_client import message


class ProducerIdFlood(OnOneLine):
    name = "producer-id-flood"
    does = "InitProducerId, 60 at a time: each thousandth claims a block from the coordinator"
    pause_s = 0.01

    async def ask(self, line: Line, rng: random.Random) -> str:
        request = message("init_producer_id", 1, "Request")(
            transactional_id=None, transaction_timeout=datetime.timedelta(minutes=1)
        )
        for _ in range(60):
            line.send_request(request)
        for _ in range(60):
            answer = await line.receive_response("init_producer_id", 1)
        self.tries["ids"] += 60
        return f"error {int(answer.error_code)}" if answer.error_code else "answered"


class TransactionSeekers(OnOneLine):
    name = "transaction-seekers"
    does = "transactional ids, and coordinators of groups and transactions, which are not served"

    async def ask(self, line: Line, rng: random.Random) -> str:
        if rng.random() < 0.5:
            answer = await line.call(
                "init_producer_id",
                1,
                transactional_id="x" * rng.choice((0, 1, 30_000)),
                transaction_timeout=datetime.timedelta(minutes=1),
            )
        else:
            answer = await line.call("find_coordinator", 2, key="x", key_type=rng.randint(0, 1))
        return f"error {int(answer.error_code)}"
