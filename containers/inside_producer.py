"""A real producer (aiokafka), run in a separate container of the brokers' network.

    python3 - BOOTSTRAP TOPIC COUNT < inside_producer.py

Sends 0 ... COUNT-1 with idempotence and prints how many were acknowledged.
"""

from __future__ import annotations

import asyncio
import sys

from aiokafka import AIOKafkaProducer


async def main(bootstrap: str, topic: str, count: int) -> None:
    """Sends; ends with an exception if a record is not acknowledged."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, acks="all")
    async with producer:
        sends = [await producer.send(topic, str(number).encode()) for number in range(count)]
        acknowledged = await asyncio.gather(*sends)
    print(len(acknowledged))


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
