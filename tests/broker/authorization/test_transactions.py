"""Requests about transactions that ACLs do not allow: the codes, and what is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from echoless.broker.config.names import Authorizer
from echoless.protocol.acl import AclOperation
from echoless.protocol.errors import ErrorCode
from tests.broker.handlers.one_transaction import (
    ID,
    add,
    begin,
    describe,
    end,
    find,
    init,
)
from tests.compatibility.offsets_in_transactions import Identity, Stage
from tests.support.acls import GROUP, TRANSACTIONAL_ID, AclEditor
from tests.support.in_process import in_process
from tests.support.raw_client import RawConnection

WRITE, READ, DESCRIBE = AclOperation.WRITE, AclOperation.READ, AclOperation.DESCRIBE
NONE = ErrorCode.NONE
DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.fixture
async def kafka(kafka: RawConnection, acls: AclEditor) -> RawConnection:
    """A client that may do all with the id `orders`."""
    await acls.allow(WRITE, ID, resource_type=TRANSACTIONAL_ID)
    return kafka


async def test_another_id_is_denied_in_each_api(kafka: RawConnection) -> None:
    """53, whatever the id's state; nothing is created for it."""
    identity = (7, 0)
    assert (await find(kafka, name="other")).error_code == DENIED
    assert (await init(kafka, name="other")).error_code == DENIED
    assert await add(kafka, identity, {"t": (0,)}, name="other") == {("t", 0): DENIED}
    assert (await end(kafka, identity, name="other")).error_code == DENIED
    (row,) = await describe(kafka, "other")
    assert row.error_code == DENIED


async def test_two_phases_need_a_right_of_their_own(tmp_path: Path) -> None:
    """53 with Write alone, whatever the setting says."""
    settings = {"authorizer": Authorizer.ACL, "transaction_two_phase_commit_enable": True}
    async with in_process(tmp_path, **settings) as running:
        acls = AclEditor(running.broker.access)
        kafka = await RawConnection.open(running.kafka_address)
        await acls.allow(WRITE, ID, resource_type=TRANSACTIONAL_ID)
        await find(kafka)
        assert (await init(kafka, 6, phases=(True, False))).error_code == DENIED
        assert (await init(kafka, 6)).error_code == NONE
        await acls.allow(AclOperation.TWO_PHASE_COMMIT, ID, resource_type=TRANSACTIONAL_ID)
        assert (await init(kafka, 6, phases=(True, False))).error_code == NONE
        await kafka.close()


async def test_a_topic_that_may_not_be_written_is_not_added(
    kafka: RawConnection, acls: AclEditor
) -> None:
    """29, and the others are not tried."""
    identity = await begin(kafka)
    await acls.allow(WRITE, "t")
    assert await add(kafka, identity, {"t": (0,), "u": (0,)}) == {
        ("t", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("u", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    assert await add(kafka, identity, {"t": (0,)}) == {("t", 0): NONE}
    (row,) = await describe(kafka, ID)
    assert [one.topic for one in row.topics] == ["t"]
    await acls.revoke(WRITE, "t")
    (row,) = await describe(kafka, ID)
    assert row.topics == ()


async def test_a_group_that_may_not_be_read_is_not_added(
    kafka: RawConnection, acls: AclEditor
) -> None:
    """30."""
    identity = await begin(kafka)
    fields = {
        "transactional_id": ID,
        "producer_id": identity[0],
        "producer_epoch": identity[1],
        "group_id": "g",
    }
    answer = await kafka.call("add_offsets_to_txn", 3, **fields)
    assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    await acls.allow(READ, "g", resource_type=GROUP)
    assert (await kafka.call("add_offsets_to_txn", 3, **fields)).error_code == NONE


async def test_offsets_are_committed_by_who_may_read_what_they_are_of(
    kafka: RawConnection, acls: AclEditor
) -> None:
    """53, 30, then 29 for a topic alone: as many rights as the client has had to be given."""
    one = Identity(ID, *await begin(kafka))

    async def codes(identity: Identity = one) -> list[ErrorCode]:
        fields = Stage.fields(identity, "g", {0: 5}, topic="t")
        response = await kafka.call("txn_offset_commit", 3, **fields)
        return [ErrorCode(row.error_code) for row in response.topics[0].partitions]

    assert await codes(one._replace(transactional_id="other")) == [DENIED]
    assert await codes() == [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    await acls.allow(READ, "g", resource_type=GROUP)
    assert await codes() == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    await acls.allow(READ, "t")
    assert await codes() == [ErrorCode.NOT_COORDINATOR]  # no group has been asked about yet


async def test_what_brokers_of_kafka_send_needs_the_cluster(
    kafka: RawConnection, acls: AclEditor
) -> None:
    """31 on top, for all transactions."""
    answer = await kafka.call("add_partitions_to_txn", 4, transactions=())
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    await acls.allow(AclOperation.CLUSTER_ACTION)
    answer = await kafka.call("add_partitions_to_txn", 4, transactions=())
    assert answer.error_code == NONE


async def test_ids_that_may_not_be_described_are_not_listed(
    kafka: RawConnection, acls: AclEditor
) -> None:
    """Nor does their number show."""
    await begin(kafka)
    filters = {"state_filters": (), "producer_id_filters": ()}
    answer = await kafka.call("list_transactions", 0, **filters)
    assert [row.transactional_id for row in answer.transaction_states] == [ID]
    await acls.revoke(WRITE, ID, resource_type=TRANSACTIONAL_ID)
    answer = await kafka.call("list_transactions", 0, **filters)
    assert (answer.error_code, answer.transaction_states) == (NONE, ())
