"""Whatever is late or comes twice, no batch opens a transaction that nothing will end (hazards H2 and H3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from echoless.broker.partitions.core.membership import (
    Membership,
    Question,
    judge,
    question_about,
)
from echoless.protocol.control_records import EndMarker, MarkerType, build_marker, read_marker
from echoless.protocol.record_batch import TRANSACTIONAL_BIT, BatchHeader, read_header
from echoless.protocol.records import Record, build_batch
from echoless.storage.producers.replay import replay_batch
from echoless.storage.producers.state import ProducerStates

P = 7
Judge = Callable[[ProducerStates, BatchHeader, Question, int], Membership]


class Partition:
    """The producer state of a partition, and what is stored there. Sequences are not looked at."""

    def __init__(self) -> None:
        self.producers = ProducerStates()
        self.end = 0

    def write(self, epoch: int, sequence: int = 0) -> None:
        header = header_of(epoch, sequence)
        replay_batch(self.producers, header._replace(base_offset=self.end), None, 0)
        self.end += 1

    def mark(self, epoch: int, number: int, kind: MarkerType = MarkerType.ABORT) -> None:
        batch = build_marker(EndMarker(kind, 0, number), P, epoch, 0, base_offset=self.end)
        replay_batch(self.producers, read_header(batch), read_marker(batch), 0)
        self.end += 1

    def ask(self, epoch: int) -> Question | None:
        return question_about(self.producers, header_of(epoch))

    def judge(self, epoch: int, question: Question, number: int) -> Membership:
        return judge(self.producers, header_of(epoch), question, number)


def header_of(epoch: int, sequence: int = 0) -> BatchHeader:
    batch = build_batch(
        [Record(0, 0, None, b"v")], producer_id=P, producer_epoch=epoch, base_sequence=sequence
    )
    header = read_header(batch)
    return header._replace(attributes=header.attributes | TRANSACTIONAL_BIT)


def asked(partition: Partition, epoch: int) -> Question:
    question = partition.ask(epoch)
    assert question is not None
    return question


def test_an_open_transaction_is_not_asked_about() -> None:
    partition = Partition()
    assert partition.ask(5) is not None
    partition.write(5)
    assert partition.ask(5) is None
    assert partition.ask(4) is None, "the log refuses it"
    assert partition.ask(6) is not None, "it is of another session"
    partition.mark(5, 0)
    assert partition.ask(5) is not None


def test_an_answer_counts_until_a_marker_comes() -> None:
    """H3: verified, then aborted, then the batch arrives."""
    partition = Partition()
    question = asked(partition, 5)
    assert partition.judge(5, question, 0) is Membership.APPEND
    partition.mark(5, 0)
    assert partition.judge(5, question, 0) is Membership.ENDED
    assert partition.judge(5, question, 1) is Membership.APPEND, "of the next one"
    question = asked(partition, 5)
    assert partition.judge(5, question, 0) is Membership.AGAIN, "it had ended before the question"
    assert partition.judge(5, question, 1) is Membership.APPEND


def test_a_yes_of_one_transaction_does_not_count_for_the_next() -> None:
    """The first generation has one epoch for both, and the next is open here when the batch of the first comes."""
    partition = Partition()
    late = asked(partition, 5)
    partition.mark(5, 0)
    partition.write(5)
    assert partition.judge(5, late, 0) is Membership.ENDED
    assert partition.judge(5, late, 1) is Membership.APPEND


def test_a_batch_of_an_old_epoch_is_left_to_the_log() -> None:
    """Which refuses it: a client that was fenced must hear that."""
    partition = Partition()
    late = asked(partition, 5)
    partition.mark(6, 0)
    assert partition.judge(5, late, 0) is Membership.APPEND


def test_a_marker_without_a_number_counts_too() -> None:
    """It is of a tool that ends a hanging transaction."""
    partition = Partition()
    partition.mark(5, 3)
    question = asked(partition, 5)
    partition.mark(5, -1)
    assert partition.judge(5, question, 4) is Membership.AGAIN


def test_a_batch_of_the_same_transaction_may_have_opened_it() -> None:
    partition = Partition()
    question = asked(partition, 5)
    partition.write(5)
    assert partition.judge(5, question, 0) is Membership.APPEND


def test_an_earlier_transaction_that_is_open_here_holds_the_next_one_up() -> None:
    """Its marker is missing: the next one's would commit what was aborted."""
    partition = Partition()
    partition.write(5)
    question = asked(partition, 6)
    assert partition.judge(6, question, 1) is Membership.HELD_UP
    partition.mark(6, 0)
    assert partition.judge(6, question, 1) is Membership.APPEND
    assert partition.judge(6, asked(partition, 6), 1) is Membership.APPEND


# --- histories ---


class Sent(NamedTuple):
    """A batch that is on its way, perhaps more than once."""

    number: int
    """Number of its transaction."""
    epoch: int


@dataclass(slots=True)
class Asked:
    """A batch whose coordinator has been asked."""

    sent: Sent
    question: Question
    number: int | None = None
    """The answer, if it was yes."""


class History:
    """One transactional id, one partition, and requests that may be late and come twice."""

    def __init__(self, judge_batch: Judge, *, raises_epoch: bool) -> None:
        """`raises_epoch`: every end does, and batches add their partition (KIP-890's second part)."""
        self.judge, self.raises_epoch = judge_batch, raises_epoch
        self.partition = Partition()
        self.number, self.epoch = 0, 0
        self.is_ongoing, self.is_in = True, False
        self.missing_marker: tuple[int, int] | None = None
        """Epoch and number of the marker that the partition has to get."""
        self.sent: list[Sent] = []
        self.asked: list[Asked] = []
        self.strays = 0
        """Batches that were appended in another transaction than theirs."""
        self.misplaced = 0
        """Batches that were appended in another transaction than the coordinator had named."""

    def act(self, action: int, pick: int) -> None:
        match action:
            case 0 | 1 if self.is_ongoing:
                self.is_in = self.is_in or not self.raises_epoch
                self.sent.append(Sent(self.number, self.epoch))
            case 2 | 3 if self.sent:
                self._arrive(self.sent[pick % len(self.sent)])
            case 4 if self.asked:
                self._answer(self.asked[pick % len(self.asked)])
            case 5 if self.asked:
                self._come_to_append(self.asked.pop(pick % len(self.asked)))
            case 6 if self.is_ongoing:
                self.end()
            case 7:
                self.mark()
            case 8 if not self.is_ongoing and self.missing_marker is None:
                self.is_ongoing, self.is_in = True, False
                self.number += 1
            case _:
                pass

    def _arrive(self, sent: Sent) -> None:
        question = self.partition.ask(sent.epoch)
        if question is None:
            self._append(sent)
        else:
            self.asked.append(Asked(sent, question))

    def _answer(self, one: Asked) -> None:
        """The coordinator's decision, now."""
        one.number = None
        if self.is_ongoing and one.sent.epoch == self.epoch and (self.is_in or self.raises_epoch):
            self.is_in = True
            one.number = self.number

    def _come_to_append(self, one: Asked) -> None:
        if one.number is None:
            return
        header = header_of(one.sent.epoch)
        verdict = self.judge(self.partition.producers, header, one.question, one.number)
        if verdict is Membership.APPEND:
            self.misplaced += self._append(one.sent) and one.number != self.number
        elif verdict is Membership.AGAIN:
            self._arrive(one.sent)

    def _append(self, sent: Sent) -> bool:
        """Returns whether the log takes the batch."""
        entry = self.partition.producers.get(P)
        if entry is not None and sent.epoch < entry.producer_epoch:
            return False  # 47
        self.partition.write(sent.epoch)
        self.strays += sent.number != self.number
        return True

    def end(self) -> None:
        self.is_ongoing = False
        self.epoch += self.raises_epoch
        if self.is_in:
            self.missing_marker = self.epoch, self.number

    def mark(self) -> None:
        if self.missing_marker is not None:
            self.partition.mark(*self.missing_marker)
            self.missing_marker = None

    @property
    def hangs(self) -> bool:
        """Whether a transaction is open for ever, once everything that must come has come."""
        if self.is_ongoing:
            self.end()
        self.mark()
        while self.asked:
            self._come_to_append(self.asked.pop())
        return self.partition.producers.open_transaction(P) is not None


ACTIONS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 20)), max_size=60)


@given(actions=ACTIONS, raises_epoch=st.booleans())
def test_no_transaction_hangs(actions: list[tuple[int, int]], raises_epoch: bool) -> None:
    """Besides, none gets a batch that its coordinator has placed in another; with epochs that rise, none that is not its own."""
    history = History(judge, raises_epoch=raises_epoch)
    for one in actions:
        history.act(*one)
    assert not history.hangs
    assert not history.misplaced
    assert not (raises_epoch and history.strays)


def test_without_the_look_at_markers_one_hangs() -> None:
    """The histories can show what they are for: a yes that is believed whenever it comes."""
    history = History(lambda *_: Membership.APPEND, raises_epoch=False)
    for action in (0, 2, 4, 6, 7):  # sent, asked about, "yes"; ended, and its marker written
        history.act(action, 0)
    assert history.hangs
