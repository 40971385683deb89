"""Transactional ids at the admin port."""

from __future__ import annotations

from typing import Any

import pytest

from echoless.broker.admin import transaction_documents
from echoless.broker.admin.callers import Caller
from echoless.broker.admin.readings import Readings
from echoless.broker.authentication.admin_tokens import Role
from echoless.coordinators.transactions.state import TransactionalIdState
from echoless.protocol.acl import AclOperation, ResourceType
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.transaction_records import (
    TransactionPartition,
    TransactionStatus,
    TransactionValue,
)
from tests.broker.admin.admin_client import AdminClient
from tests.broker.handlers.one_transaction import ID, add, begin
from tests.support.in_process import Running
from tests.support.raw_client import RawConnection, create_topic
from tests.support.transactions_by_hand import HandMadeTransactions

A, B = TransactionPartition("orders", 0), TransactionPartition("orders", 1)
AWAY = TransactionPartition("away", 0)


def known(
    status: TransactionStatus, start_ms: int, *partitions: TransactionPartition, **more: Any
) -> TransactionalIdState:
    value = TransactionValue(7, 2, 60_000, status, frozenset(partitions), start_ms=start_ms)
    return TransactionalIdState(value, **more)


def fill(admin: AdminClient) -> None:
    admin.broker.transactions.states = {
        "idle": known(TransactionStatus.EMPTY, -1),
        "young": known(TransactionStatus.ONGOING, 200, A),
        "done": known(TransactionStatus.COMPLETE_COMMIT, 50),
        "old": known(TransactionStatus.PREPARE_ABORT, 100, A, B, AWAY, unmarked=frozenset({B})),
    }


async def names(admin: AdminClient, query: str = "") -> list[str]:
    _, document = await admin.get(f"/transactions{query}")
    return [one["transactional_id"] for one in document["transactions"]]


async def test_open_transactions_come_first_by_age(admin: AdminClient) -> None:
    """A limit leaves the youngest and the idle ones out, and says how many there are."""
    fill(admin)
    assert await names(admin) == ["old", "young", "idle", "done"]
    assert await names(admin, "?limit=1") == ["old"]
    assert await names(admin, "?limit=3") == ["old", "young", "idle"]
    _, document = await admin.get("/transactions?limit=1")
    assert (document["count"], document["complete"]) == (4, True)
    assert document["transactions"] == [
        {
            "transactional_id": "old",
            "state": "PrepareAbort",
            "producer_id": 7,
            "producer_epoch": 2,
            "timeout_ms": 60_000,
            "start_ms": 100,
            "partitions": 3,
        }
    ]
    admin.broker.transactions.ready = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await admin.get("/transactions"))[1]["complete"] is False


async def test_one_id_is_shown_with_its_partitions(
    admin: AdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which have their marker; what another broker holds is not known here."""
    fill(admin)
    _, document = await admin.get("/transactions/old")
    rows = [
        (one["topic"], one["has_marker"], one["first_offset"], one["last_stable_offset"])
        for one in document["partitions"]
    ]
    assert rows == [
        ("away", True, None, None),
        ("orders", True, None, 6),
        ("orders", False, None, 6),
    ]
    assert document["is_complete"]
    _, document = await admin.get("/transactions/young")
    assert [one["has_marker"] for one in document["partitions"]] == [False]
    assert (await admin.get("/transactions/idle"))[1]["start_ms"] is None
    monkeypatch.setattr(transaction_documents, "PARTITIONS_MAX", 2)
    _, document = await admin.get("/transactions/old")
    assert (len(document["partitions"]), document["is_complete"]) == (2, False)


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, 404, "there is no transactional id 'x'"),
        (ErrorCode.NOT_COORDINATOR, 404, "this broker coordinates no transactional id 'x'"),
        (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            503,
            "transactional id 'x': COORDINATOR_LOAD_IN_PROGRESS",
        ),
    ],
)
async def test_an_id_that_cannot_be_shown(
    admin: AdminClient, code: ErrorCode, status: int, said: str
) -> None:
    """With the reason."""
    admin.broker.transactions.look_at = lambda _: code  # type: ignore[method-assign]
    assert await admin.get("/transactions/x") == (status, {"error": said})


class _Rights:
    """Allows what is named."""

    def __init__(self, *allowed: tuple[ResourceType, str]) -> None:
        self._allowed = allowed

    def may(self, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        return operation is AclOperation.DESCRIBE and (kind, name) in self._allowed


class _Access:
    def __init__(self, rights: _Rights) -> None:
        self._rights = rights

    def rights(self, _peer: object) -> _Rights:
        return self._rights


async def test_only_what_a_caller_may_describe_is_shown(admin: AdminClient) -> None:
    """Ids, and the topics of their partitions."""
    fill(admin)
    access: Any = _Access(
        _Rights((ResourceType.TRANSACTIONAL_ID, "old"), (ResourceType.TOPIC, "orders"))
    )
    caller = Caller("h", "h:1", "User:a", Role.READ, access)
    readings = Readings(admin.broker)
    listed = await readings.transactions(caller, {}, {})
    assert [one["transactional_id"] for one in listed["transactions"]] == ["old"]
    assert listed["count"] == 1
    shown = await readings.transaction(caller, {}, {"transactional_id": "old"})
    assert [one["topic"] for one in shown["partitions"]] == ["orders", "orders"]
    with pytest.raises(Exception, match="Describe on this transactional id"):
        await readings.transaction(caller, {}, {"transactional_id": "young"})


async def test_the_first_offset_is_that_of_the_log(
    running: Running, kafka: RawConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator says which producer it is; another transaction holds readers back."""
    await create_topic(kafka, "t", 1)
    identity = await begin(kafka)
    assert await add(kafka, identity, {"t": (0,)}) == {("t", 0): ErrorCode.NONE}
    by_hand = HandMadeTransactions(running.broker.partitions["t", 0])
    by_hand.write(identity[0] + 1, b"a", b"b")
    assert by_hand.write(identity[0], b"c") == 2
    caller, readings = Caller("h", "h:1", "User:a", Role.READ, None), Readings(running.broker)
    (listed,) = (await readings.transactions(caller, {}, {}))["transactions"]
    assert (listed["transactional_id"], listed["producer_id"]) == (ID, identity[0])
    shown = await readings.transaction(caller, {}, {"transactional_id": ID})
    (row,) = shown["partitions"]
    assert (row["has_marker"], row["first_offset"], row["last_stable_offset"]) == (False, 2, 0)
