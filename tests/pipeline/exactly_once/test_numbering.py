"""The four states of a batch, and what each attempt does in them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from echoless.client.sequencer import Identity, LeaderEntry
from echoless.client.topic_partition import TopicPartition
from echoless.pipeline.exactly_once.entries import End
from echoless.pipeline.exactly_once.errors import SinkError
from echoless.pipeline.exactly_once.leader_queries import LeaderState
from echoless.pipeline.exactly_once.ledger import Ledger
from echoless.pipeline.exactly_once.local_files import LocalFiles
from echoless.pipeline.exactly_once.numbering import BatchState, Coverage, Numbering
from tests.pipeline.exactly_once.attempts import QUERY, location

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


class FakeLeaders:
    """Leaders of one cluster that have stored nothing."""

    def __init__(self) -> None:
        self.identities = 0

    def cluster_id(self) -> str:
        return "cluster"

    def partition_count(self, topic: str) -> int:
        return len((FIRST, SECOND))

    def new_identity(self) -> Identity:
        self.identities += 1
        return Identity(self.identities, 0)

    def ask(
        self, targets: Iterable[TopicPartition], producer_id: int
    ) -> dict[TopicPartition, LeaderState]:
        return {target: LeaderState(0, LeaderEntry(0, -1)) for target in targets}

    def log_ends(self, targets: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(targets, 0)


@pytest.fixture
def leaders() -> FakeLeaders:
    return FakeLeaders()


def attempt(directory: Path, leaders: FakeLeaders) -> tuple[Ledger, Numbering]:
    """An attempt that has read the ledger and sent nothing yet."""
    ledger = Ledger(LocalFiles(directory), location())
    return ledger, Numbering(ledger, leaders, lambda *_: 0, lambda: None, now_ms=1)


def test_a_batch_that_nobody_began_is_begun_by_us(tmp_path, leaders):
    """The first targets choose the identity, further ones are recorded under it."""
    ledger, numbering = attempt(tmp_path, leaders)
    numbering.resume()
    assert numbering.state is BatchState.NOT_BEGUN
    assert numbering.cover([FIRST]) is Coverage.COMPLETE
    assert numbering.state is BatchState.BEGUN_BY_US
    assert numbering.cover([FIRST, SECOND]) is Coverage.COMPLETE
    assert [[one.target for one in begin.sequence_ranges] for begin in ledger.begins] == [
        [FIRST],
        [SECOND],
    ]
    assert leaders.identities == 1


def test_a_batch_that_another_began_is_adopted(tmp_path, leaders):
    """The identity in the ledger becomes that of the later attempt."""
    attempt(tmp_path, leaders)[1].cover([FIRST])
    ledger, numbering = attempt(tmp_path, leaders)
    assert numbering.state is BatchState.BEGUN_BY_ANOTHER
    numbering.resume()
    assert numbering.state is BatchState.BEGUN_BY_US
    assert numbering.cover([FIRST]) is Coverage.COMPLETE
    assert len(ledger.begins) == 1


def test_rows_are_routed_again_if_another_was_faster(tmp_path, leaders):
    """Its entry is adopted; the same question is then answered from the ledger."""
    ledger, slow = attempt(tmp_path, leaders)
    attempt(tmp_path, leaders)[1].cover([FIRST])
    assert slow.cover([FIRST]) is Coverage.CHANGED
    assert slow.state is BatchState.BEGUN_BY_US
    assert ledger.begins[-1].identity == Identity(1, 0)
    assert slow.cover([FIRST]) is Coverage.COMPLETE


def test_an_attempt_that_sends_does_not_change_its_identity(tmp_path, leaders):
    """Its records are under way, and another attempt has gone on to the next epoch."""
    ledger, slow = attempt(tmp_path, leaders)
    slow.cover([FIRST])
    other = Ledger(LocalFiles(tmp_path), location())
    other.add(replace(ledger.begins[0], identity=Identity(1, 1)))
    with pytest.raises(SinkError, match="another attempt continues under another identity"):
        slow.cover([SECOND])


def test_nothing_is_recorded_after_the_end(tmp_path, leaders):
    """Whatever rows there are, they are only compared."""
    ledger, numbering = attempt(tmp_path, leaders)
    numbering.cover([FIRST])
    state = numbering.producer_state_after({FIRST: 3})
    ledger.add(End(query_id=QUERY, cluster_id="cluster", rows=3, targets=(), state=state))
    later_ledger, later = attempt(tmp_path, leaders)
    later.resume()
    assert later.state is BatchState.ENDED
    assert later.cover([FIRST, SECOND]) is Coverage.COMPLETE
    assert len(later_ledger.begins) == 1
