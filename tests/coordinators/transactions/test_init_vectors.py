"""The test vectors of InitProducerId with a transactional id: 1 to 19 and 81 to 84."""

from __future__ import annotations

import pytest

from echoless.coordinators.transactions.requests import InitTransactionalId
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.transaction_records import TransactionEnd, TransactionPartition
from tests.coordinators.transactions.shell import TIMEOUT_MS, A, B, Shell, ended, stored


def test_vector_1_an_unknown_id_gets_a_new_producer():
    shell = Shell()
    assert shell.init() == (0, 8, 0)
    assert shell.shown == ("E", 8, 0, -1)


def test_vector_2_an_unknown_id_with_an_identity_gets_a_new_producer():
    """It has expired; the identity is worth nothing any more."""
    shell = Shell()
    assert shell.init(9, 3) == (0, 8, 0)
    assert shell.shown == ("E", 8, 0, -1)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_vector_3_a_timeout_out_of_range_is_refused(timeout_ms: int):
    assert Shell(stored("E")).answered(InitTransactionalId(timeout_ms)) == (50,)


@pytest.mark.parametrize(("producer_id", "epoch"), [(7, -1), (-1, 5)])
def test_half_an_identity_is_refused(producer_id: int, epoch: int):
    """Producer id and epoch come together or not at all."""
    assert Shell(stored("E")).init(producer_id, epoch) == (42,)


def test_vector_5_a_new_instance_gets_the_next_epoch():
    shell = Shell(stored("E"))
    assert shell.init() == (0, 7, 6)
    assert shell.shown == ("E", 7, 6, -1)


def test_vector_6_after_a_transaction_the_timeout_is_the_new_one():
    shell = Shell(stored("CC"))
    assert shell.answered(InitTransactionalId(1_000)) == (0, 7, 6)
    assert shell.shown == ("E", 7, 6, -1)
    assert shell.state.value is not None
    assert shell.state.value.timeout_ms == 1_000


def test_vector_7_a_transaction_that_ends_is_waited_for():
    shell = Shell()
    shell.holds_markers = True
    shell.log.append(stored("PC", 7, 5, -1, A))
    shell.load()
    assert shell.init() == (51,)
    assert shell.shown == ("PC*", 7, 5, -1)


def test_vector_8_a_new_instance_aborts_the_open_transaction():
    """It is answered 51 although the abort has begun; the markers carry the raised epoch."""
    shell = Shell(stored("O", 7, 5, -1, A))
    shell.holds_markers = True
    assert shell.init() == (51,)
    assert shell.shown == ("PA*", 7, 6, -1)
    (markers,) = shell.markers
    assert (markers.producer_epoch, markers.is_commit, markers.partitions) == (6, False, {A})


def test_vector_9_then_it_gets_the_epoch_after():
    shell = Shell(stored("O", 7, 5, -1, A))
    shell.init()
    assert shell.shown == ("CA", 7, 6, -1)
    assert shell.init() == (0, 7, 7)


def test_vector_10_a_fence_that_failed_is_not_counted():
    """The epoch rises once, however often the record is refused."""
    shell = Shell(stored("O", 7, 5, -1, A))
    shell.holds_records = shell.holds_markers = True
    first = shell.ask(InitTransactionalId(TIMEOUT_MS))
    shell.refuse_record(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert shell.answers[first].error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert shell.shown == ("O", 7, 5, -1)
    shell.ask(InitTransactionalId(TIMEOUT_MS))
    shell.commit_record()
    assert shell.shown == ("PA*", 7, 6, -1)


def test_vector_11_a_session_goes_on_with_the_next_epoch():
    shell = Shell(stored("E"))
    assert shell.init(7, 5) == (0, 7, 6)
    assert shell.shown == ("E", 7, 6, 5)


def test_vector_12_a_repeated_request_gets_the_same_answer():
    """The next coordinator gives it, too, any number of times."""
    shell = Shell(stored("E"))
    shell.init(7, 5)
    for _ in range(3):
        assert shell.init(7, 5) == (0, 7, 6)
        shell.load()
    assert shell.shown == ("E", 7, 6, 5)
    assert len(shell.log) == 2


@pytest.mark.parametrize(
    ("producer_id", "epoch", "last"),
    [
        pytest.param(7, 5, -1, id="13"),
        pytest.param(7, 4, 5, id="14"),
        pytest.param(8, 5, 5, id="15"),
        pytest.param(8, 6, 5, id="15, its epoch"),
        pytest.param(7, 7, 5, id="an epoch to come"),
    ],
)
def test_vectors_13_to_15_another_identity_is_fenced(producer_id: int, epoch: int, last: int):
    shell = Shell(stored("E", 7, 6, last))
    assert shell.init(producer_id, epoch) == (90,)
    assert shell.shown == ("E", 7, 6, last)


def test_vector_16_the_last_epoch_is_followed_by_a_new_producer():
    shell = Shell(stored("E", 7, 32_766))
    assert shell.init() == (0, 8, 0)
    assert shell.shown == ("E", 8, 0, -1)
    assert shell.state.value is not None
    assert shell.state.value.previous_producer_id == 7


def test_vector_17_a_repeated_rotation_gets_the_same_answer():
    """The answer stays the same for any number of repetitions."""
    shell = Shell(stored("E", 8, 0, 32_766, previous=7))
    for _ in range(3):
        assert shell.init(7, 32_766) == (0, 8, 0)
        shell.load()


def test_vector_18_an_earlier_epoch_of_the_previous_producer_is_fenced():
    assert Shell(stored("E", 8, 0, 32_766, previous=7)).init(7, 32_700) == (90,)


def test_vector_19_a_fence_at_the_last_epoch_in_the_first_generation():
    """The markers take the epoch that clients never get; the next answer has a new producer."""
    shell = Shell(stored("O", 7, 32_766, -1, A))
    assert shell.init() == (51,)
    assert shell.shown == ("CA", 7, 32_767, -1)
    assert shell.init() == (0, 8, 0)


def test_vector_81_after_a_rotation_the_session_goes_on():
    shell = Shell(stored("CC", 8, 0, 32_766, previous=7))
    assert shell.init(7, 32_766) == (0, 8, 0)
    assert shell.init(7, 32_766) == (0, 8, 0)


def test_vector_83_a_fence_at_the_last_epoch_in_the_second_generation():
    shell = Shell(stored("O", 7, 32_766, -1, A), version=2)
    shell.holds_markers = True
    assert shell.init() == (51,)
    assert shell.shown == ("PA*", 7, 32_767, -1)
    assert shell.state.value is not None
    assert shell.state.value.next_producer_id == 8
    shell.holds_markers = False
    shell.load()
    assert shell.shown == ("CA", 8, 0, -1)
    assert shell.init() == (0, 8, 1)


@pytest.mark.parametrize("version", [0, 2])
def test_vector_84_a_session_that_timed_out_goes_on(version: int):
    """Kafka 3.9 has forgotten the epoch, and fences it."""
    shell = Shell(stored("O", 7, 5, -1, A), version=version)
    shell.time_out()
    assert shell.commit() == (49,)
    assert shell.init(7, 5) == (0, 7, 6)
    assert shell.add(A, epoch=6) == (0,)


def test_a_fenced_session_does_not_abort_what_its_successor_has_begun():
    """Kafka aborts it for any epoch, and only the repetition is fenced."""
    shell = Shell(stored("O", 7, 5, 4, A))
    for epoch in (3, 4):
        assert shell.init(7, epoch) == (90,)
    assert shell.shown == ("O", 7, 5, 4)


def test_a_session_that_aborts_its_transaction_by_a_new_epoch_goes_on():
    """A client that does not know how its EndTxn ended asks for a new epoch instead; it is not fenced by itself."""
    shell = Shell(stored("O", 7, 5, -1, A))
    assert shell.init(7, 5) == (51,)
    assert shell.init(7, 5) == (0, 7, 6)
    assert shell.commit() == (90,)


def test_without_a_spare_producer_id_the_client_asks_again():
    shell = Shell()
    shell.spare = None  # type: ignore[assignment]
    assert shell.init() == (15,)
    assert shell.state.value is None


def test_the_highest_epoch_is_never_given_to_a_client():
    """Version 1 of the feature leaves it behind when a transaction times out in the last epoch."""
    shell = Shell(stored("O", 7, 32_766, -1, A))
    shell.time_out()
    assert shell.shown == ("CA", 7, 32_767, 32_766)
    assert shell.abort(7, 32_766, 2) == (90,)
    assert shell.init(7, 32_766) == (0, 8, 0)
    assert shell.init(7, 32_766) == (0, 8, 0)


def test_an_expired_partition_of_the_same_name_is_another_one():
    """A topic that was created again is not the one in the transaction."""
    reborn = TransactionPartition("t", 0, bytes(range(16)))
    shell = Shell(stored("O", 7, 5, -1, A))
    assert shell.add(reborn, B) == (0,)
    assert shell.state.value is not None
    assert shell.state.value.partitions == {A, B, reborn}


def test_the_last_result_outlives_a_new_session():
    """A commit of the session before is still answered with the truth, in the generation that gives no identity."""
    shell = Shell(stored("CC", 7, 5, ended=ended(TransactionEnd.COMMITTED)))
    shell.init()
    assert shell.commit() == (0,)
    assert shell.abort() == (90,)
    assert shell.commit(version=2) == (90,)
