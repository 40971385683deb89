"""Transactional producers: Echoless serves no transactions, and each client has to say so at once.

A client that takes the refusal for something that passes asks for ever: `init_transactions` then
ends by its own timeout, after a minute or never, without the reason.
"""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from tests.compatibility.programs import FRANZ_GO, JAVA, KAFKAJS, Program
from tests.support.echoless import Echoless

_ENDS_WITHIN_S = 5.0
_CLIENT_TIMEOUT_S = 20
"""Longer than `_ENDS_WITHIN_S`, so that a client that retries fails the test instead of passing it."""
_REASON = "transactions are not served; use an idempotent producer without a transactional id"


@pytest.mark.slow
def test_librdkafka_ends_with_the_reason(echoless: Echoless) -> None:
    """The error is fatal to the producer, and carries the broker's own words."""
    from confluent_kafka import KafkaError, KafkaException, Producer

    producer = Producer(
        {"bootstrap.servers": echoless.kafka_address, "transactional.id": "t", "log_level": 0}
    )
    began = time.monotonic()
    with pytest.raises(KafkaException, match=_REASON) as refused:
        producer.init_transactions(_CLIENT_TIMEOUT_S)
    assert time.monotonic() - began < _ENDS_WITHIN_S
    error: KafkaError = refused.value.args[0]
    assert error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert error.fatal()


@pytest.mark.slow
async def test_aiokafka_ends(echoless: Echoless) -> None:
    """Starting the producer fails, and names the refused id."""
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import TransactionalIdAuthorizationFailed

    producer = AIOKafkaProducer(bootstrap_servers=echoless.kafka_address, transactional_id="t")
    async with asyncio.timeout(_ENDS_WITHIN_S):
        with pytest.raises(TransactionalIdAuthorizationFailed, match="t"):
            await producer.start()
        await producer.stop()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # its own use of importlib.resources
def test_kafka_python_ends(echoless: Echoless) -> None:
    """`init_transactions` raises the error by its name."""
    from kafka import KafkaProducer
    from kafka.errors import TransactionalIdAuthorizationFailedError

    producer = KafkaProducer(
        bootstrap_servers=echoless.kafka_address,
        transactional_id="t",
        max_block_ms=_CLIENT_TIMEOUT_S * 1000,
    )
    began = time.monotonic()
    with pytest.raises(TransactionalIdAuthorizationFailedError):
        producer.init_transactions()
    producer.close(timeout=1)
    assert time.monotonic() - began < _ENDS_WITHIN_S


@pytest.mark.clients
@pytest.mark.slow
@pytest.mark.parametrize(
    ("client", "error"),
    [
        *((java, "TransactionalIdAuthorizationException") for java in JAVA),
        (FRANZ_GO, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"),
        (KAFKAJS, "Failed to find group coordinator"),  # whatever the code, it says no more
    ],
    ids=lambda value: value.name if isinstance(value, Program) else "",
)
def test_other_clients_end(echoless: Echoless, client: Program, error: str) -> None:
    """Java, Go and JavaScript: no record is taken, and the client names its error."""
    process = client.start(
        "produce",
        bootstrap=echoless.kafka_address,
        topic="t",
        partitions=1,
        codec="none",
        count=1,
        seed=1,
        transactional_id="t",
    )
    try:
        output, said = process.communicate(timeout=_CLIENT_TIMEOUT_S)
    finally:
        process.kill()
    assert output, said
    summary = json.loads(output.splitlines()[-1])
    assert error in summary["fatal"]
    assert summary["sent"] == 0
    assert summary["seconds"] < _ENDS_WITHIN_S
