"""The effect of each answer on the numbers, row by row of `docs/protocol/client-reactions.md`."""

from __future__ import annotations

import gc
import weakref

import pytest

from echoless.client.answers import PartitionProduceResponse
from echoless.client.sequenced_batch import EPOCH_MAX, BatchAcknowledged, Identity
from echoless.client.sequencer import BAD_NEWS_MAX, Phase, Sequencer
from echoless.client.sequencer_actions import (
    AfterFailure,
    Ask,
    BackOff,
    Divided,
    Failed,
    Failure,
    LeaderEntry,
    NewId,
    Renumbered,
    Send,
    Start,
)
from echoless.protocol.errors import ErrorCode

ME = Identity(40, 3)
STORED = PartitionProduceResponse(ErrorCode.NONE, 100)


def sequencer(*, next_sequence=7, in_flight_max=5, after=AfterFailure.STOP, **start):
    """One whose producer is known to the partition already, unless it begins at 0."""
    begin = Start(identity=start.pop("identity", ME), next_sequence=next_sequence, **start)
    return Sequencer(begin, in_flight_max=in_flight_max, after_failure=after)


def given(one, *counts):
    return [one.add(count, None) for count in counts]


def send(one):
    """The batches that are sent now, until there is nothing to do."""
    batches = []
    while isinstance(step := one.next_step(), Send):
        batches.append(step.batch)
    return batches


def answered_alone(code, **start):
    """A sequencer, its lone batch of two records, and what the answer made it do."""
    one = sequencer(**start)
    (batch,) = given(one, 2)
    assert send(one) == [batch]
    return one, batch, one.on_answer(batch, PartitionProduceResponse(code))


def test_numbers_follow_each_other():
    """The n-th record has the n-th sequence."""
    batches = given(sequencer(), 2, 1, 4)
    assert [batch.base_sequence for batch in batches] == [7, 9, 10]


def test_sequences_wrap():
    """After 2**31 - 1 comes 0, also in the middle of a batch."""
    one = sequencer(next_sequence=2**31 - 2)
    first, second = given(one, 3, 1)
    assert (first.last_sequence, second.base_sequence) == (0, 1)


def test_window_bounds_what_is_in_flight():
    """At most `in_flight_max` batches are sent before an answer comes."""
    one = sequencer(in_flight_max=3)
    batches = given(one, 1, 1, 1, 1)
    assert send(one) == batches[:3]
    one.on_answer(batches[0], STORED)
    assert send(one) == batches[3:]


def test_first_batch_of_an_identity_goes_alone():
    """A broker that does not know the producer must not see its second batch first."""
    one = sequencer(next_sequence=0)
    batches = given(one, 1, 1, 1)
    assert send(one) == batches[:1]
    one.on_answer(batches[0], STORED)
    assert send(one) == batches[1:]


def test_success_acknowledges_with_its_offset():
    """0: stored at base_offset, and no duplicate: it was the first attempt."""
    one = sequencer()
    (batch,) = given(one, 2)
    send(one)
    assert one.on_answer(batch, STORED) == [BatchAcknowledged(batch, 100, False)]
    assert one.is_idle
    assert one.first_unacknowledged == 9


def test_46_is_success_without_an_offset():
    """46: stored long ago."""
    _, batch, actions = answered_alone(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert actions == [BatchAcknowledged(batch, None, True)]


@pytest.mark.parametrize(
    ("code", "elsewhere", "leaves_doubt"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True, False),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True, False),
        (ErrorCode.LEADER_NOT_AVAILABLE, True, False),
        (ErrorCode.FENCED_LEADER_EPOCH, True, False),
        (ErrorCode.UNKNOWN_TOPIC_ID, True, False),
        (ErrorCode.KAFKA_STORAGE_ERROR, True, True),
        (ErrorCode.NETWORK_EXCEPTION, True, True),
        (ErrorCode.CORRUPT_MESSAGE, False, False),
        (ErrorCode.NOT_ENOUGH_REPLICAS, False, False),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, False, True),
        (ErrorCode.REQUEST_TIMED_OUT, False, True),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, False, False),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, False, False),
        (51, False, True),
        (89, False, True),
    ],
)
def test_passing_trouble_is_sent_again(code, elsewhere, leaves_doubt):
    """The same batch goes again under the same numbers, after a while, perhaps to another broker."""
    one, batch, actions = answered_alone(code)
    assert actions == [BackOff(elsewhere)]
    assert batch.is_in_doubt is leaves_doubt
    assert send(one) == [batch]
    assert (batch.base_sequence, batch.identity) == (7, ME)


def test_deposed_leader_leaves_doubt():
    """6 with an offset: the leader had appended it, and lost its office while it waited."""
    one = sequencer()
    (batch,) = given(one, 1)
    send(one)
    one.on_answer(batch, PartitionProduceResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, 12))
    assert batch.is_in_doubt


@pytest.mark.parametrize(
    ("code", "may_be_stored"),
    [
        (ErrorCode.INVALID_RECORD, False),
        (ErrorCode.INVALID_TIMESTAMP, False),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, False),
        (ErrorCode.RECORD_LIST_TOO_LARGE, False),
        (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, False),
        (ErrorCode.INVALID_PRODUCER_EPOCH, False),
        (ErrorCode.UNKNOWN_SERVER_ERROR, True),
        (9999, True),
    ],
)
def test_refusals_fail_the_batch_and_stop_the_partition(code, may_be_stored):
    """An error that resending cannot cure fails the batch; later records are not sent past the gap."""
    one, batch, actions = answered_alone(code)
    failure = Failure.FENCED if code == ErrorCode.INVALID_PRODUCER_EPOCH else Failure.REFUSED
    assert actions == [Failed(batch, failure, PartitionProduceResponse(code), may_be_stored)]
    assert one.phase is Phase.STOPPED
    assert one.first_unacknowledged == 7


def test_trouble_drains_and_then_goes_one_by_one():
    """After a failure nothing is sent until all answers are in; then one batch at a time."""
    one = sequencer()
    batches = given(one, 1, 1, 1, 1)
    one._in_flight_max = 3
    first, second, third, fourth = batches
    assert send(one) == [first, second, third]
    one.on_answer(first, PartitionProduceResponse(ErrorCode.NOT_ENOUGH_REPLICAS))
    assert send(one) == []
    one.on_answer(second, PartitionProduceResponse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    one.on_answer(third, PartitionProduceResponse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    for batch in (first, second, third):
        assert send(one) == [batch]
        one.on_answer(batch, STORED)
    assert send(one) == [fourth]


def test_answer_to_one_of_several_is_no_verdict():
    """A refusal is believed only from a batch that was alone: before, it is sent again."""
    one = sequencer()
    first, second = given(one, 1, 1)
    send(one)
    assert one.on_answer(first, PartitionProduceResponse(ErrorCode.INVALID_RECORD)) == []
    one.on_answer(second, PartitionProduceResponse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    assert send(one) == [first]
    assert isinstance(
        one.on_answer(first, PartitionProduceResponse(ErrorCode.INVALID_RECORD))[0], Failed
    )


def test_lost_answer_leaves_doubt_and_unsent_does_not():
    """Only what went out may be stored."""
    one = sequencer()
    first, second = given(one, 1, 1)
    send(one)
    one.on_lost(first)
    one.on_unsent(second)
    assert (first.is_in_doubt, second.is_in_doubt) == (True, False)
    assert send(one) == [first]


def test_acknowledgements_keep_their_order():
    """A later success waits for an earlier batch, whose repeat returns its offset."""
    one = sequencer()
    first, second = given(one, 1, 1)
    send(one)
    one.on_answer(first, PartitionProduceResponse(ErrorCode.REQUEST_TIMED_OUT))
    assert one.on_answer(second, PartitionProduceResponse(ErrorCode.NONE, 101)) == []
    send(one)
    actions = one.on_answer(first, PartitionProduceResponse(ErrorCode.NONE, 100))
    assert [(done.batch, done.base_offset) for done in actions] == [(first, 100), (second, 101)]


@pytest.mark.parametrize("is_late", [False, True])
def test_acknowledged_batch_is_freed_at_once(is_late):
    """A batch and its acknowledgement do not hold each other until the garbage collector looks at all there is."""
    one = sequencer()
    payload = Payload()
    one.add(1, payload)
    one.add(1, payload)
    is_freed = weakref.ref(payload)
    del payload
    batches = send(one)
    for batch in reversed(batches) if is_late else batches:
        actions = one.on_answer(batch, STORED)
    assert len(actions) == 2 if is_late else 1
    gc.disable()
    try:
        del batch, batches, actions
        assert is_freed() is None
    finally:
        gc.enable()


class Payload:
    """The content of a batch: a weak reference tells whether the batch still holds it."""


def asked(code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, *counts, **start):
    """A sequencer that has to ask about the first of its batches, which was in doubt."""
    one = sequencer(**start)
    batches = given(one, *(counts or (2,)))
    send(one)
    for batch in batches:
        one.on_lost(batch)
    (first,) = send(one)
    assert one.on_answer(first, PartitionProduceResponse(code)) == []
    assert one.next_step() == Ask(one.identity)
    return one, batches


@pytest.mark.parametrize(
    "code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID]
)
def test_45_of_a_stored_batch_is_success(code):
    """Kafka answers 45 to a repeat older than its window; the last sequence shows it."""
    one, (batch,) = asked(code)
    assert one.on_found(LeaderEntry(3, 8)) == [BatchAcknowledged(batch, None, True)]


def test_45_with_nothing_missing_is_sent_again():
    """The leader has exactly what was acknowledged: the 45 came from something that has passed."""
    one, (batch,) = asked()
    assert one.on_found(LeaderEntry(3, 6)) == [BackOff(elsewhere=False)]
    assert send(one) == [batch]


def test_batch_that_is_stored_in_part_is_divided():
    """An earlier run cut its batches elsewhere: only the records that are missing are sent."""
    one, _ = asked(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 4)
    (divided,) = one.on_found(LeaderEntry(3, 8))
    assert isinstance(divided, Divided)
    stored, missing = divided.parts
    assert (stored.base_sequence, stored.record_count) == (7, 2)
    assert send(one) == [missing]
    assert one.on_answer(missing, STORED) == [
        BatchAcknowledged(stored, None, True),
        BatchAcknowledged(missing, 100, None),
    ]


def test_lost_records_are_believed_when_told_again():
    """Acknowledged records are gone: the partition stops, and says that the batch is not stored."""
    one, (batch,) = asked()
    for _ in range(BAD_NEWS_MAX - 1):
        assert one.on_found(LeaderEntry(3, 4)) == [BackOff(elsewhere=True)]
    assert one.on_found(LeaderEntry(3, 4)) == [
        Failed(batch, Failure.RECORDS_LOST, None, may_be_stored=False)
    ]


def test_forgotten_producer_stops_in_doubt():
    """59 and no entry: whether the batch was stored before can no longer be known."""
    one, (batch,) = asked(ErrorCode.UNKNOWN_PRODUCER_ID)
    for _ in range(BAD_NEWS_MAX - 1):
        one.on_found(None)
    assert one.on_found(None) == [Failed(batch, Failure.FORGOTTEN, None, may_be_stored=True)]


def test_leader_that_will_not_tell_stops_the_partition():
    """Without DescribeProducers an out-of-order batch cannot be settled."""
    one, (batch,) = asked()
    answer = PartitionProduceResponse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert one.on_unanswerable(answer) == [Failed(batch, Failure.UNANSWERED, answer, True)]


def test_resumed_partition_asks_before_it_sends():
    """Batches stored by an earlier run are skipped, up to the last stored one."""
    one = sequencer(is_resumed=True, asks=True)
    assert one.next_step() is None
    first, second, third = given(one, 2, 2, 2)
    assert one.next_step() == Ask(ME)
    assert one.on_found(LeaderEntry(3, 10)) == []
    assert send(one) == [third]
    actions = one.on_answer(third, PartitionProduceResponse(ErrorCode.NONE, 50))
    assert [(done.batch, done.base_offset) for done in actions] == [
        (first, None),
        (second, None),
        (third, 50),
    ]


def test_skipped_batches_are_sent_when_the_leader_has_lost_them():
    """Batches that a deposed leader had not committed are sent to the next one after all."""
    one = sequencer(is_resumed=True, asks=True)
    first, second = given(one, 2, 2)
    one.next_step()
    one.on_found(LeaderEntry(3, 8))
    assert send(one) == [second]
    one.on_answer(second, PartitionProduceResponse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    assert one.next_step() == Ask(ME)
    one.on_found(LeaderEntry(3, 6))
    assert send(one) == [first]


def test_nothing_is_skipped_behind_the_last_acknowledgement():
    """A batch that no later acknowledgement can confirm is settled directly."""
    one = sequencer(is_resumed=True, asks=True)
    (first,) = given(one, 1)
    one.next_step()
    one.on_found(LeaderEntry(3, 8))
    send(one)
    (second,) = given(one, 1)
    send(one)
    one.on_answer(second, STORED)
    one.on_lost(first)
    assert send(one) == [first]
    one.on_answer(first, PartitionProduceResponse(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    assert one.next_step() == Ask(ME)
    assert [done.batch for done in one.on_found(LeaderEntry(3, 8))] == [first, second]


def test_resumed_partition_with_a_newer_epoch_is_fenced():
    """Another producer continued from here under a new epoch: this state is too old."""
    one = sequencer(is_resumed=True, asks=True)
    (batch,) = given(one, 1)
    for _ in range(BAD_NEWS_MAX):
        one.next_step()
        actions = one.on_found(LeaderEntry(4, 0))
    assert [(done.batch, done.failure) for done in actions] == [(batch, Failure.FENCED)]


def test_too_large_batch_is_halved():
    """10: the halves keep the numbers; a record that is too large alone fails."""
    one, _, (divided,) = answered_alone(ErrorCode.MESSAGE_TOO_LARGE)
    first, second = divided.parts
    assert [first.base_sequence, second.base_sequence] == [7, 8]
    assert send(one) == [first]
    (failed, stopped) = one.on_answer(first, PartitionProduceResponse(ErrorCode.MESSAGE_TOO_LARGE))
    assert (failed.failure, stopped.failure) == (Failure.REFUSED, Failure.STOPPED)


def test_overdue_batch_says_whether_it_may_be_stored():
    """The delivery timeout fails the oldest batch, and those after it."""
    one = sequencer()
    first, second = given(one, 1, 1)
    send(one)
    one.on_lost(first)
    one.on_unsent(second)
    assert one.on_overdue() == [
        Failed(first, Failure.TIMED_OUT, None, may_be_stored=True),
        Failed(second, Failure.STOPPED, None, may_be_stored=False),
    ]


def test_overdue_batch_before_a_success_is_stored():
    """The log holds everything before an acknowledged batch of the same epoch."""
    one = sequencer()
    first, second = given(one, 1, 1)
    send(one)
    one.on_lost(first)
    one.on_answer(second, STORED)
    assert [done.batch for done in one.on_overdue()] == [first, second]


def test_new_epoch_renumbers_what_is_certainly_not_stored():
    """After a batch that was refused for good, the others begin at 0 of the next epoch."""
    one = sequencer(after=AfterFailure.NEW_EPOCH)
    first, second, third = given(one, 1, 2, 1)
    one._in_flight_max = 2
    send(one)
    one.on_answer(first, PartitionProduceResponse(ErrorCode.INVALID_RECORD))
    one.on_lost(second)
    (again,) = send(one)
    actions = one.on_answer(again, PartitionProduceResponse(ErrorCode.INVALID_RECORD))
    assert actions[1:] == [Renumbered(second), Renumbered(third)]
    assert [(b.identity, b.base_sequence) for b in (second, third)] == [
        (Identity(40, 4), 0),
        (Identity(40, 4), 2),
    ]
    assert send(one) == [second]


def test_new_epoch_gives_up_what_may_be_stored():
    """A batch in doubt never gets other numbers: it could be stored under both."""
    one = sequencer(after=AfterFailure.NEW_EPOCH)
    first, second = given(one, 1, 1)
    send(one)
    one.on_lost(first)
    one.on_lost(second)
    third = one.add(1, None)
    actions = one.on_overdue()
    assert [(done.batch, done.may_be_stored) for done in actions[:2]] == [
        (first, True),
        (second, True),
    ]
    assert actions[2:] == [Renumbered(third)]


@pytest.mark.parametrize(
    ("code", "epoch"),
    [(ErrorCode.INVALID_RECORD, EPOCH_MAX), (ErrorCode.INVALID_PRODUCER_EPOCH, 3)],
    ids=["last epoch", "fenced"],
)
def test_exhausted_or_fenced_id_is_replaced(code, epoch):
    """After epoch 32767, or if another producer has a newer one, comes a new producer id."""
    one = sequencer(after=AfterFailure.NEW_EPOCH, identity=Identity(40, epoch))
    (batch,) = given(one, 1)
    send(one)
    one.on_answer(batch, PartitionProduceResponse(code))
    later = one.add(1, None)
    assert one.next_step() == NewId()
    assert one.on_new_id(Identity(41, 0)) == [Renumbered(later)]
    assert send(one) == [later]
    assert (later.identity, later.base_sequence) == (Identity(41, 0), 0)


def test_an_id_that_is_refused_stops_the_partition():
    """Without a producer id nothing can be sent, whatever is to happen after a failure."""
    one = sequencer(after=AfterFailure.NEW_EPOCH)
    (batch,) = given(one, 1)
    send(one)
    one.on_answer(batch, PartitionProduceResponse(ErrorCode.INVALID_PRODUCER_EPOCH))
    later = one.add(1, None)
    assert one.next_step() == NewId()
    refused = PartitionProduceResponse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    (failed,) = one.on_id_refused(refused)
    assert failed == Failed(later, Failure.REFUSED, refused, may_be_stored=False)
    assert one.phase is Phase.STOPPED
    assert one.next_step() is None
