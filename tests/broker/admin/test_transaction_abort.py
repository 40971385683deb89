"""`POST /transactions/{id}/abort`, and who holds readers back in `/topics`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.broker.admin.raw_http import Answer, ask
from tests.broker.faults.lab import TOPIC, Lab
from tests.broker.faults.test_transaction_faults import opened
from tests.broker.handlers.one_transaction import ID, begin, end, until_state
from tests.broker.until import until
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection


@pytest.fixture
async def lab(running: Running) -> Lab:
    """A broker with a topic of two partitions."""
    lab = Lab(running)
    await lab.create_topic(partitions=2)
    return lab


async def abort(address: str, name: str = ID) -> Answer:
    return await ask(address, f"POST /transactions/{name}/abort HTTP/1.1", f"Host: {address}")


async def partition(address: str) -> Any:
    answer = await ask(address, "GET /topics HTTP/1.1", f"Host: {address}")
    (topic,) = [one for one in answer.document["topics"] if one["name"] == TOPIC]
    return topic["partitions"][0]


async def test_an_open_transaction_is_aborted(
    lab: Lab, kafka: RawConnection, admin_address: str
) -> None:
    """202 when it is decided; its producer is fenced, and readers go on."""
    identity = await opened(kafka, 0)
    row = await partition(admin_address)
    assert row["held_back_by"] == {"producer_id": identity[0], "first_offset": 0}
    answer = await abort(admin_address)
    assert (answer.status, answer.document["producer_id"]) == (202, identity[0])
    await until_state(kafka, "CompleteAbort")
    await until(lambda: lab.broker.partitions[TOPIC, 0].last_stable_offset == 2)
    assert (await partition(admin_address))["held_back_by"] is None
    assert (await end(kafka, identity)).error_code == 90


async def test_what_is_not_open_is_not_aborted(
    lab: Lab, kafka: RawConnection, admin_address: str
) -> None:
    """409 with the state, and while it is being committed; 404 for an id that no one knows."""
    await begin(kafka)
    answer = await abort(admin_address)
    assert (answer.status, answer.document["error"]) == (
        409,
        f"{ID!r} has no open transaction: it is Empty",
    )
    identity = await opened(kafka, 0)
    lab.add({"type": "delay_request", "ms": 3_600_000}, {"api": "write_markers"})
    await end(kafka, identity, version=5)
    answer = await abort(admin_address)
    assert answer.status == 409
    assert "is being committed" in answer.document["error"]
    assert (await abort(admin_address, "nobody")).status == 404
