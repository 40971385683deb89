"""The checks depend on the origin of a batch; the resulting state does not."""

from __future__ import annotations

from echoless.protocol.dedup import Duplicate, ProducerEntry, Reject
from echoless.protocol.errors import ErrorCode
from echoless.protocol.record_batch import HEADER_SIZE, read_header, seal_batch
from echoless.storage.append_origin import AppendOrigin
from echoless.storage.appended import Appended
from tests.storage.log_workload import make_batch, read_all
from tests.storage.one_log import NOW_MS, OneLog

MARKER = 0x30
"""The attributes of a transaction marker: transactional and control."""


def append_marker(one: OneLog, epoch: int) -> Appended | Duplicate | Reject:
    plain = make_batch(producer_id=1, epoch=epoch, sequence=-1)
    marked = read_header(plain)._replace(attributes=MARKER)
    marker = seal_batch(marked, plain[HEADER_SIZE:])
    header = read_header(marker)
    return one.log.append(marker, header, 0, NOW_MS, origin=AppendOrigin.COORDINATOR)


def entry_of(one: OneLog) -> ProducerEntry | None:
    return one.log.producers.get(1)


def code_of(answer: object) -> ErrorCode:
    assert isinstance(answer, Reject), answer
    return answer.code


def test_a_client_is_held_to_epoch_and_sequence() -> None:
    """A repeat is answered, a gap and an older epoch are rejected; none of them is written."""
    one = OneLog()
    assert isinstance(one.append(producer_id=1, epoch=1, sequence=0), Appended)
    assert isinstance(one.append(producer_id=1, epoch=1, sequence=0), Duplicate)
    gap = one.append(producer_id=1, epoch=1, sequence=5)
    assert code_of(gap) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    stale = one.append(producer_id=1, epoch=0, sequence=0)
    assert code_of(stale) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert one.log.log_end_offset == 1


def test_a_coordinator_is_held_to_the_epoch_alone() -> None:
    """Kafka's testSequenceNotValidatedForGroupMetadataTopic and testOldEpochForControlRecord."""
    one = OneLog()
    for offset in range(2):
        commit = one.append(producer_id=1, sequence=-1, origin=AppendOrigin.COORDINATOR)
        assert isinstance(commit, Appended)
        assert commit.base_offset == offset
    assert isinstance(append_marker(one, epoch=2), Appended)
    assert code_of(append_marker(one, epoch=1)) is ErrorCode.INVALID_PRODUCER_EPOCH
    late = one.append(producer_id=1, epoch=1, sequence=-1, origin=AppendOrigin.COORDINATOR)
    assert code_of(late) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert one.log.log_end_offset == 3


def test_a_marker_fences_the_client_of_the_epoch_before() -> None:
    """The coordinator's epoch is the one that the next batch of a client is held to."""
    one = OneLog()
    assert isinstance(one.append(producer_id=1, epoch=1, sequence=0), Appended)
    assert isinstance(append_marker(one, epoch=2), Appended)
    stale = one.append(producer_id=1, epoch=1, sequence=1)
    assert code_of(stale) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert isinstance(one.append(producer_id=1, epoch=2, sequence=0), Appended)


def test_every_origin_comes_to_the_same_producer_state() -> None:
    """A replica has the leader's state after its appends, and so does a recovered log."""
    leader, replica = OneLog(), OneLog()
    leader.append(producer_id=1, sequence=-1, origin=AppendOrigin.COORDINATOR)
    assert entry_of(leader) is None  # no sequence, and no marker: nothing to remember
    leader.append(producer_id=1, sequence=0)
    leader.append(producer_id=1, sequence=-1, origin=AppendOrigin.COORDINATOR)
    append_marker(leader, epoch=0)
    leader.append(producer_id=1, sequence=1, count=3)
    known = entry_of(leader)
    assert known is not None
    assert known.last_sequence == 3
    replica.log.append_replicated(read_all(leader.log), NOW_MS)
    assert entry_of(replica) == known
    leader.open()
    assert leader.log.recovery.batches_scanned == 5
    assert entry_of(leader) == known
