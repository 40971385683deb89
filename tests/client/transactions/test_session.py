"""The session's reaction to each answer, by a scripted coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as Code

from echoless.client.cluster import Cluster
from echoless.client.coordinator import Coordinator
from echoless.client.sequenced_batch import Identity
from echoless.client.settings import Settings
from echoless.client.transactions.errors import (
    AbortableError,
    FencedError,
    TransactionError,
    UnansweredError,
)
from echoless.client.transactions.group_metadata import GroupMetadata
from echoless.client.transactions.session import TransactionalSession
from tests.broker.until import until

LOST = None
"""An answer that does not come."""


class Script:
    """The coordinator's answers, in order: codes, or none; after the last it says yes. Epochs are raised by it."""

    def __init__(self, level: int) -> None:
        self.level = level
        self.codes: list[Code | None] = []
        self.asked: list[tuple[str, Mapping[str, Any], int | None]] = []
        self.is_deaf = False
        self.epoch = -1
        self.forgotten = 0

    def names(self) -> list[str]:
        """The requests so far, which are forgotten then."""
        names = [api for api, *_ in self.asked]
        self.asked.clear()
        return names

    async def ask(
        self, api: str, fields: Mapping[str, Any], *, version_max: int | None = None
    ) -> Any:
        self.asked.append((api, fields, version_max))
        code = self.codes.pop(0) if self.codes else Code.none
        if code is LOST or self.is_deaf:
            return None
        if code is Code.none and (api == "init_producer_id" or (api == "end_txn" and self.level)):
            self.epoch += 1
        row = SimpleNamespace(error_code=code, partition_error_code=code)
        topic = SimpleNamespace(partitions=[row], results_by_partition=[row])
        return SimpleNamespace(
            error_code=code,
            producer_id=7,
            producer_epoch=self.epoch,
            topics=[topic],
            results_by_topic_v3_and_below=[topic],
        )

    def forget(self) -> None:
        self.forgotten += 1


@pytest.fixture(params=[0, 2], ids=["first", "second"])
def script(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Script:
    """A coordinator of each generation."""
    script = Script(request.param)
    monkeypatch.setattr(Coordinator, "ask", script.ask)
    monkeypatch.setattr(Coordinator, "forget", script.forget)
    monkeypatch.setattr(Coordinator, "finalized_level", lambda *_: script.level)
    monkeypatch.setattr("echoless.client.coordinator.Backoff.pause", lambda _: asyncio.sleep(0))
    return script


@pytest.fixture
async def session(script: Script) -> TransactionalSession:
    """A session that has begun its first transaction."""
    cluster = Cluster([], timeout_s=1)
    session = TransactionalSession(cluster, "t", Settings())
    await session.begin()
    await session.begin_transaction()
    assert script.names() == ["init_producer_id"]
    assert session.identity == Identity(7, 0)
    return session


AGAIN = [
    Code.coordinator_load_in_progress,
    Code.coordinator_not_available,
    Code.not_coordinator,
    Code.concurrent_transactions,
    Code.request_timed_out,
    LOST,
]


@pytest.mark.parametrize("code", AGAIN, ids=str)
async def test_requests_are_repeated_until_they_are_answered(
    session: TransactionalSession, script: Script, code: Code | None
) -> None:
    """A coordinator that loads, has moved, is busy or does not answer decides nothing."""
    script.codes = [code] * 3
    await session.commit()
    assert script.names() == ["end_txn"] * 4
    assert script.forgotten == (3 if code is not None and 14 <= code.value <= 16 else 0)


async def test_what_each_generation_sends(session: TransactionalSession, script: Script) -> None:
    """The first one adds partitions and the group by itself, and sends old versions."""
    if script.level < 2:
        await session.add_partitions([("t", 0)])
    await session.commit_offsets({("t", 0): 5}, GroupMetadata("g", 3, "m"), "")
    await session.commit()
    sent = [(api, version) for api, _, version in script.asked]
    first = [("add_partitions_to_txn", None), ("add_offsets_to_txn", None)]
    if script.level < 2:
        assert sent == [*first, ("txn_offset_commit", 4), ("end_txn", 4)]
    else:
        assert sent == [("txn_offset_commit", None), ("end_txn", None)]
    assert session.terms == ("t", 11 if script.level < 2 else 12)
    assert session.identity == Identity(7, 0 if script.level < 2 else 1)


@pytest.mark.parametrize(
    ("codes", "error", "may_be_committed"),
    [
        ([Code.producer_fenced], FencedError, False),
        ([Code.invalid_producer_epoch], FencedError, False),
        ([LOST, Code.producer_fenced], FencedError, True),
        ([Code.coordinator_not_available, Code.producer_fenced], FencedError, True),
        ([Code.not_coordinator, Code.producer_fenced], FencedError, False),
        ([Code.concurrent_transactions, Code.producer_fenced], FencedError, False),
        ([LOST, Code.not_coordinator, Code.producer_fenced], FencedError, True),
        ([Code.transactional_id_authorization_failed], TransactionError, False),
        ([Code.transaction_abortable], AbortableError, False),
        ([LOST, Code.transaction_abortable], AbortableError, False),
        ([Code.invalid_txn_state], AbortableError, False),
        ([Code.invalid_producer_id_mapping], AbortableError, False),
        ([LOST, Code.invalid_txn_state], TransactionError, True),
        ([LOST, Code.invalid_producer_id_mapping], TransactionError, True),
    ],
    ids=str,
)
async def test_a_commit_that_is_refused(
    session: TransactionalSession,
    script: Script,
    codes: list[Code | None],
    error: type[TransactionError],
    *,
    may_be_committed: bool,
) -> None:
    """A refusal proves that nothing is committed, unless an earlier copy of the request may have been accepted."""
    script.codes = list(codes)
    with pytest.raises(TransactionError) as caught:
        await session.commit()
    assert type(caught.value) is error
    assert caught.value.may_be_committed is may_be_committed
    assert ("not known" in str(caught.value)) is may_be_committed


async def test_a_commit_without_an_answer_is_repeated_by_its_caller(
    session: TransactionalSession, script: Script
) -> None:
    """The earlier call may have had an effect: a refusal of the second one proves nothing."""
    session._settings = Settings(delivery_timeout_s=0.05)
    script.is_deaf = True
    with pytest.raises(UnansweredError) as caught:
        await session.commit()
    assert caught.value.may_be_committed
    script.is_deaf = False
    script.codes = [Code.producer_fenced]
    with pytest.raises(FencedError) as fenced:
        await session.commit()
    assert fenced.value.may_be_committed


@pytest.mark.parametrize("lost", ["add_partitions", "commit_offsets", "commit"])
async def test_a_late_copy_cannot_count_for_the_next_transaction(
    session: TransactionalSession, script: Script, lost: str
) -> None:
    """First generation: after a request without an answer the next transaction has a new epoch. The second needs none."""
    calls: dict[str, Callable[[], Any]] = {
        "add_partitions": lambda: session.add_partitions([("t", 0)]),
        "commit_offsets": lambda: session.commit_offsets({("t", 0): 5}, GroupMetadata("g"), ""),
        "commit": session.commit,
    }
    script.codes = [LOST]
    await calls[lost]()
    if lost != "commit":
        await session.commit()
    script.names()
    await session.begin_transaction()
    expected = [("init_producer_id", (7, 0))] if script.level < 2 else []
    found = [
        (api, (fields["producer_id"], fields["producer_epoch"])) for api, fields, _ in script.asked
    ]
    assert found == expected
    assert session.identity == Identity(7, 1)
    script.names()
    await session.begin_transaction()
    assert not script.asked


async def test_an_abort_ends_with_a_new_epoch(
    session: TransactionalSession, script: Script
) -> None:
    """By its answer or by a request: batches that are still on their way are fenced by it."""
    await session.abort()
    assert script.names() == (["end_txn", "init_producer_id"] if script.level < 2 else ["end_txn"])
    assert session.identity == Identity(7, 1)


@pytest.mark.parametrize("code", [Code.invalid_txn_state, Code.invalid_producer_id_mapping])
async def test_an_abort_of_what_is_over(
    session: TransactionalSession, script: Script, code: Code
) -> None:
    """The coordinator has aborted it before: a new epoch says whether the session goes on."""
    script.codes = [code]
    await session.abort()
    assert script.names() == ["end_txn", "init_producer_id"]
    script.codes = [code, Code.producer_fenced]
    with pytest.raises(FencedError):
        await session.abort()


async def test_an_abort_that_ends_before_its_new_epoch(
    session: TransactionalSession, script: Script
) -> None:
    """The next one asks for the epoch alone: an end under the old one is fenced, if only an answer was lost."""
    script.codes = [Code.invalid_txn_state, *[LOST] * 100_000]
    aborting = asyncio.create_task(session.abort())
    await until(lambda: len(script.asked) > 2)
    aborting.cancel()
    await asyncio.gather(aborting, return_exceptions=True)
    script.codes, _ = [], script.names()
    await session.abort()
    assert script.names() == ["init_producer_id"]
    await session.abort()
    assert script.names()[0] == "end_txn"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (Code.illegal_generation, AbortableError),
        (Code.fenced_instance_id, AbortableError),
        (Code.transaction_abortable, AbortableError),
        (Code.invalid_producer_id_mapping, AbortableError),
        (Code.group_authorization_failed, AbortableError),
        (Code.producer_fenced, FencedError),
        (Code.transactional_id_authorization_failed, TransactionError),
    ],
    ids=str,
)
async def test_offsets_that_are_refused(
    session: TransactionalSession, script: Script, code: Code, error: type[TransactionError]
) -> None:
    """Nothing is committed by that, so the transaction can be aborted; only fencing and a missing right end the session."""
    script.codes = [code] if script.level == 2 else [Code.none, code]
    with pytest.raises(TransactionError) as caught:
        await session.commit_offsets({("t", 0): 5}, GroupMetadata("g"), "")
    assert type(caught.value) is error


async def test_an_upgrade_to_the_second_generation(
    session: TransactionalSession, script: Script
) -> None:
    """It is spoken from the next transaction on, which begins with a new epoch; the way back is the same."""
    before = script.level
    for level in (2 - before, before):
        await session.commit()
        epoch = session.identity.producer_epoch
        script.level = level
        script.names()
        await session.begin_transaction()
        assert script.names() == ["init_producer_id"]
        assert session.raises_epoch is (level == 2)
        assert session.identity.producer_epoch == epoch + 1
