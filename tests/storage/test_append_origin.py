"""The checks depend on the origin of a batch; the resulting state does not."""

from __future__ import annotations

import pytest

from echoless.protocol.control_records import EndMarker, MarkerType, build_marker
from echoless.protocol.dedup import Duplicate, ProducerEntry, Reject
from echoless.protocol.errors import DecodeError, ErrorCode
from echoless.protocol.record_batch import read_header, seal_batch
from echoless.protocol.records import Record, build_batch, encode_records
from echoless.storage.append_origin import AppendOrigin
from echoless.storage.appended import Appended
from echoless.storage.file_system import CorruptLogError
from tests.storage.log_workload import read_all, stamped
from tests.storage.one_log import NOW_MS, OneLog


def append_marker(one: OneLog, epoch: int) -> Appended | Duplicate | Reject:
    marker = build_marker(EndMarker(MarkerType.COMMIT, 0), 1, epoch, NOW_MS)
    return append(one, marker)


def append(one: OneLog, batch: bytes) -> Appended | Duplicate | Reject:
    """Appends as a coordinator."""
    header = read_header(batch)
    return one.log.append(batch, header, 0, NOW_MS, origin=AppendOrigin.COORDINATOR)


def control_batch(key: bytes | None) -> bytes:
    """A control batch with this key, or without a record."""
    value = b"\0\0\0\0\0\3"
    header = read_header(build_marker(EndMarker(MarkerType.COMMIT, 0), 1, 5, NOW_MS))
    if key is None:
        return seal_batch(header._replace(record_count=0), b"")
    return seal_batch(header, encode_records([Record(0, NOW_MS, key, value)]))


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


def transactional(epoch: int) -> bytes:
    """Offsets that are committed within a transaction: its id and epoch, and no sequence."""
    record = Record(0, NOW_MS, b"group", b"offset")
    return build_batch([record], producer_id=1, producer_epoch=epoch, is_transactional=True)


def test_offsets_within_a_transaction_raise_the_epoch() -> None:
    """Kafka's as well: a batch of a transaction without a sequence sets the producer's epoch."""
    one = OneLog()
    assert isinstance(append(one, transactional(epoch=3)), Appended)
    entry = entry_of(one)
    assert entry is not None
    assert (entry.producer_epoch, entry.batches) == (3, ())
    assert code_of(append(one, transactional(epoch=2))) is ErrorCode.INVALID_PRODUCER_EPOCH
    one.open()
    assert entry_of(one) == entry


@pytest.mark.parametrize("key", [None, b"\0\0\0\6", b"\0\0\0\x63"])
def test_a_control_batch_that_ends_nothing_changes_no_producer(key: bytes | None) -> None:
    """Neither an emptied one nor one of another type does, appended, replicated or recovered."""
    leader, replica = OneLog(), OneLog()
    leader.append(producer_id=1, sequence=0)
    before = entry_of(leader)
    assert isinstance(append(leader, control_batch(key)), Appended)
    replica.log.append_replicated(read_all(leader.log), NOW_MS)
    assert entry_of(leader) == entry_of(replica) == before
    leader.open()
    assert entry_of(leader) == before


def test_a_marker_is_replayed_from_the_log() -> None:
    """Truncation and a start from a snapshot read the records of control batches alone."""
    one = OneLog()
    one.append(producer_id=1, sequence=0)
    append_marker(one, epoch=2)
    one.append()
    known = entry_of(one)
    one.log.truncate_to(2)
    assert entry_of(one) == known
    one.log.truncate_to(1)
    entry = entry_of(one)
    assert entry is not None
    assert entry.producer_epoch == 0


def test_an_unreadable_marker_is_refused_before_it_is_written() -> None:
    """Whole batches with the right CRC, of which the last says nothing that can be read."""
    one = OneLog()
    one.append(producer_id=1, sequence=0)
    broken = stamped(control_batch(b"\0"), 1, 0).data
    with pytest.raises(DecodeError, match="key of a control record takes at least 4 bytes"):
        one.log.append_replicated(broken, NOW_MS)
    assert one.log.log_end_offset == 1


def test_an_unreadable_marker_in_the_log_is_named() -> None:
    """A start refuses it below the recovery point, with the place."""
    one = OneLog()
    one.append(producer_id=1, sequence=0)
    path = one.log._segments.active.file.path
    size = one.log.size_bytes
    one.log.close()
    file = one.fs.open(path)
    file.append([stamped(control_batch(b"\0"), 1, 0).data])
    file.close()
    with pytest.raises(CorruptLogError, match=f"{size}.*a control batch: the key") as caught:
        one.open(recovery_point=2)
    assert caught.value.position == size
