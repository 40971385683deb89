"""Producer ids of transactional ids: of use to any user, but only in requests that name the transactional id."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from echoless.broker.authentication import producer_binding
from echoless.broker.authentication.producer_binding import ProducerBinding
from echoless.broker.metadata.topic import NewTopic
from echoless.protocol.bound_ids import TRANSACTIONAL, tag_of
from echoless.protocol.errors import ErrorCode
from tests.broker.authentication.log_in import with_users
from tests.broker.authentication.test_producer_binding import BOUND, REFUSED, client, produced
from tests.broker.handlers.one_transaction import ID, Identity, add, begin, end
from tests.compatibility.offsets_in_transactions import Stage
from tests.support.in_process import Running
from tests.support.raw_batches import TRANSACTIONAL as TRANSACTIONAL_BIT
from tests.support.raw_batches import plain_batch
from tests.support.raw_client import RawConnection
from tests.support.raw_produce import PartitionData

_OTHER = "of bob"


async def written(
    kafka: RawConnection, identity: Identity, sequence: int, *, name: str = ID, version: int = 11
) -> int:
    """The code of a transactional batch in a request with this transactional id."""
    batch = plain_batch(
        [b"v"], producer_id=identity[0], producer_epoch=identity[1], base_sequence=sequence
    )
    data = replace(batch, attributes=TRANSACTIONAL_BIT).encode()
    (answer,) = await kafka.produce(version, -1, [PartitionData("t", 0, data)], name)
    return answer.error


async def opened(running: Running, kafka: RawConnection) -> Identity:
    """A session whose transaction is open on the partition, with one record."""
    await running.broker.services.topics.create(NewTopic(name="t"))
    identity = await begin(kafka)
    assert await add(kafka, identity, {"t": (0,)}) == {("t", 0): 0}
    assert await written(kafka, identity, 0) == 0
    return identity


async def test_no_one_writes_with_it_by_itself(tmp_path: Path) -> None:
    """Neither a plain batch of a higher epoch, which would fence the producer, nor its own principal's."""
    async with with_users(tmp_path, "alice", "bob", **BOUND) as running:
        alice, bob = await client(running, "alice"), await client(running, "bob")
        identity = await opened(running, alice)
        assert tag_of(identity[0]) == TRANSACTIONAL
        assert await produced(bob, identity[0], epoch=identity[1] + 1) == (REFUSED, -1)
        assert await produced(alice, identity[0], 1) == (REFUSED, -1)
        assert await written(alice, identity, 1) == 0
        assert (await end(alice, identity, version=3)).error_code == 0


@pytest.mark.parametrize("version", [11, 12])
async def test_no_one_writes_with_it_under_another_transactional_id(
    tmp_path: Path, version: int
) -> None:
    """Not even while its transaction is open, when a leader asks its coordinator no more."""
    async with with_users(tmp_path, "alice", "bob", **BOUND) as running:
        alice, bob = await client(running, "alice"), await client(running, "bob")
        identity = await opened(running, alice)
        await begin(bob, _OTHER)
        code = await written(bob, identity, 1, name=_OTHER, version=version)
        assert code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await written(alice, identity, 1) == 0


async def test_another_principal_goes_on_with_the_same_transactional_id(tmp_path: Path) -> None:
    """Who may write with the id is a matter of its ACLs, so a job can get another user; also after a restart."""
    async with with_users(tmp_path, "alice", "bob", **BOUND) as running:
        alice, bob = await client(running, "alice"), await client(running, "bob")
        identity = await opened(running, alice)
        assert await written(bob, identity, 1) == 0
    async with with_users(tmp_path, **BOUND) as running:
        bob = await client(running, "bob")
        assert await produced(bob, identity[0], epoch=identity[1] + 1) == (REFUSED, -1)
        assert await written(bob, identity, 2) == 0
        assert (await end(bob, identity, version=3)).error_code == 0


async def test_no_one_commits_offsets_with_it_under_another_transactional_id(
    tmp_path: Path,
) -> None:
    """The positions would be those of the other's transaction."""
    async with with_users(tmp_path, "alice", "bob", **BOUND) as running:
        await running.broker.services.topics.create(NewTopic(name="t"))
        alice = Stage(await client(running, "alice"), "s")
        bob = Stage(await client(running, "bob"), "s")
        identity = await alice.begin("orders")
        await alice.add(identity)
        await alice.commit(identity, {0: 5}, topic="t")
        others = await bob.begin("of bob")
        stolen = identity._replace(transactional_id=others.transactional_id)
        await bob.commit(stolen, {0: 7}, topic="t")
        await alice.commit(identity, {0: 6}, topic="t")
        assert bob.lines == ["commit v3 t {0: 7}: {0: 'INVALID_PRODUCER_ID_MAPPING'}"]
        assert alice.lines[-1] == "commit v3 t {0: 6}: {0: 'NONE'}"


def test_the_oldest_confirmations_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are asked for again, so that memory is bounded."""
    monkeypatch.setattr(producer_binding, "_WRITERS_KEPT", 2)
    binding = ProducerBinding(b"secret")
    for producer_id in range(3):
        binding.confirm(producer_id, ID)
    assert [binding.is_confirmed(one, ID) for one in range(3)] == [False, True, True]
    assert not binding.is_confirmed(2, _OTHER)
