"""Producer ids from a broker; any broker can allocate them."""

from __future__ import annotations

import asyncio
import random
from typing import Final

from echoless.client.cluster import Cluster, NoLeaderError
from echoless.client.errors import ProducerError
from echoless.client.sequenced_batch import Identity
from echoless.client.settings import Settings
from echoless.protocol.errors import ErrorCode

_TRANSACTION_TIMEOUT_MS: Final = 2**31 - 1
"""The value that Kafka's own client sends for a producer without transactions."""


async def new_identity(cluster: Cluster) -> Identity:
    """An unused id. Raises `NoLeaderError`, with `final_code` if waiting is useless."""
    answer = await cluster.ask_any(
        "init_producer_id",
        {
            "transactional_id": None,
            "transaction_timeout": _TRANSACTION_TIMEOUT_MS,
            "producer_id": -1,
            "producer_epoch": -1,
            "enable2_pc": False,
            "keep_prepared_txn": False,
        },
    )
    code = answer.error_code
    if code.value != ErrorCode.NONE:
        raise NoLeaderError(f"InitProducerId: {code.name.upper()}", code.value)
    return Identity(answer.producer_id, answer.producer_epoch)


async def new_identity_within(cluster: Cluster, settings: Settings, rng: random.Random) -> Identity:
    """The same, retried until the delivery timeout. Raises `ProducerError`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + settings.delivery_timeout_s
    delay = settings.retry_backoff_s
    while True:
        try:
            return await new_identity(cluster)
        except NoLeaderError as error:
            if error.final_code or loop.time() + delay > deadline:
                raise ProducerError(f"no producer id: {error}") from error
        await asyncio.sleep(delay * rng.uniform(0.8, 1.2))
        delay = min(2 * delay, settings.retry_backoff_max_s)
