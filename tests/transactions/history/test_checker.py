"""Correct histories pass, and every way of breaking a promise is found."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.transactions.history.checker import Anomaly, check
from tests.transactions.history.cycles import Edge
from tests.transactions.history.events import History, Outcome, Seen, Sent, Stored, Transaction
from tests.transactions.history.generated import ACTIONS, Flaw, Model, Step

A, B = ("t", 0), ("t", 1)
FOUND_AS = {
    Flaw.READS_TO_THE_END: {Anomaly.PRECOMMITTED_READ, Anomaly.ABORTED_READ},
    Flaw.SHOWS_ABORTED: {Anomaly.ABORTED_READ, Anomaly.LOST},
    Flaw.FORGETS_ONE_PARTITION: {Anomaly.UNSTABLE_END},
    Flaw.COMMITS_ALL_BUT_ONE: {Anomaly.LOST},
    Flaw.ABORTS_ALL_BUT_ONE: {Anomaly.ABORTED_READ},
    Flaw.STORES_TWICE: {Anomaly.DUPLICATE},
    Flaw.LOSES: {Anomaly.LOST},
    Flaw.JOINS_THE_NEXT: {Anomaly.WRONG_MARKER, Anomaly.ABORTED_READ},
    Flaw.COMMITS_OFFSETS_OF_ABORTED: {Anomaly.SKIPPED_INPUT},
    Flaw.FORGETS_OFFSETS: {Anomaly.PROCESSED_TWICE, Anomaly.UNCOMMITTED_INPUT},
    Flaw.SKIPS: {Anomaly.SKIP},
    Flaw.READS_AGAIN: {Anomaly.NONMONOTONIC_POLL},
    Flaw.MIXES_UP: {Anomaly.INCONSISTENT_OFFSET},
    Flaw.REORDERS: {Anomaly.NONMONOTONIC_SEND},
}
"""One of these is found, whatever else is."""


def steps_of(seed: int) -> list[Step]:
    dice = random.Random(seed)
    return [(dice.randrange(ACTIONS), *(dice.randrange(60) for _ in range(3))) for _ in range(250)]  # type: ignore[misc]


@given(st.lists(st.tuples(*[st.integers(0, 59)] * 4), max_size=120))
def test_a_correct_history_passes(steps: list[Step]) -> None:
    """Aborts, unknown outcomes, lost acknowledgements and late markers included."""
    verdict = check(Model().run(steps))
    assert not verdict.broken, str(verdict)


def test_long_correct_histories_pass_and_have_everything() -> None:
    """Else the flaws below would be looked for in histories without transactions, copies and readers."""
    histories = [Model().run(steps_of(seed)) for seed in range(40)]
    for history in histories:
        assert not check(history).broken, str(check(history))
    transactions = [one for history in histories for one in history.transactions]
    assert {one.outcome for one in transactions} == set(Outcome)
    assert any(sent.source for one in transactions for sent in one.sent)
    assert any(one.seen for one in transactions)
    assert all(len(rows) > 10 for history in histories for rows in history.readers.values())
    kinds = {cycle.kind for history in histories for cycle in check(history).legal_cycles}
    assert {"G0", "G-single", "G2"} <= kinds  # legal in Kafka


@pytest.mark.parametrize("flaw", Flaw)
def test_a_flaw_is_found_wherever_it_shows(flaw: Flaw) -> None:
    shown = 0
    for seed in range(60):
        model = Model(flaw)
        history = model.run(steps_of(seed))
        if not model.took_effect:
            continue
        shown += 1
        verdict = check(history)
        assert verdict.anomalies & FOUND_AS[flaw], f"seed {seed}: {verdict}"
    assert shown > 20


def transaction(
    process: str,
    *sent: Sent,
    seen: tuple[Seen, ...] = (),
    outcome: Outcome = Outcome.OK,
    committing: float | None = 1.0,
) -> Transaction:
    return Transaction(
        process=process,
        name=process,
        sent=list(sent),
        seen=list(seen),
        outcome=outcome,
        committing=committing,
    )


@pytest.mark.parametrize(
    ("history", "anomaly"),
    [
        (
            History(
                transactions=[
                    transaction("p", Sent(A, "1", 0), Sent(B, "2"), outcome=Outcome.UNKNOWN)
                ],
                final={A: [(0, "1")]},
            ),
            Anomaly.TORN,
        ),
        (
            History(
                transactions=[transaction("p", Sent(A, "1", 0), outcome=Outcome.UNKNOWN)],
                readers={"r": [Seen(A, 0, "1", 2.0)]},
            ),
            Anomaly.LOST,
        ),
        (History(final={A: [(0, "1")]}), Anomaly.INVENTED),
        (
            History(transactions=[transaction("p", Sent(A, "1", 0))], final={B: [(0, "1")], A: []}),
            Anomaly.DUPLICATE,
        ),
        (
            History(
                transactions=[
                    transaction("p", Sent(A, "1"), seen=(Seen(B, 0, "2", 2.0),)),
                    transaction("q", Sent(B, "2"), seen=(Seen(A, 0, "1", 2.0),)),
                ],
                final={A: [(0, "1")], B: [(0, "2")]},
            ),
            Anomaly.CYCLE,
        ),
        (
            History(
                transactions=[transaction("p", Sent(A, "1", 0))],
                final={A: [(0, "1")]},
                log={A: [Stored(0, "1", True), Stored(2, "3", True)]},
            ),
            Anomaly.MISREAD_LOG,
        ),
        (
            History(
                transactions=[
                    transaction(
                        "p", Sent(A, "1"), Sent(B, "2"), committing=None, outcome=Outcome.UNKNOWN
                    )
                ],
                readers={"r": [Seen(A, 0, "1", 2.0)]},
                final={A: [(0, "1")], B: [(0, "2")]},
            ),
            Anomaly.PRECOMMITTED_READ,
        ),
        (
            History(
                transactions=[
                    transaction("p", Sent(A, "1", 0)),
                    transaction("c", Sent(B, "2"), Sent(B, "3")),
                ],
                final={A: [(0, "1")], B: [(0, "2"), (1, "3")]},
                inputs={A: 1},
            ),
            Anomaly.SKIPPED_INPUT,
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Anomaly) else "",
)
def test_what_is_broken_is_named(history: History, anomaly: Anomaly) -> None:
    """Cases of one or two transactions."""
    assert anomaly in check(history).anomalies


def test_a_cycle_of_reads_is_found_inside_of_legal_ones() -> None:
    """Every pair of three transactions is in a cycle of writes as well."""
    history = History(
        transactions=[
            transaction("p", Sent(A, "1"), Sent(B, "2"), seen=(Seen(A, 2, "5", 2.0),)),
            transaction("q", Sent(A, "3"), Sent(B, "4"), seen=(Seen(A, 0, "1", 2.0),)),
            transaction("s", Sent(A, "5"), Sent(B, "6"), seen=(Seen(A, 1, "3", 2.0),)),
        ],
        final={A: [(0, "1"), (1, "3"), (2, "5")], B: [(0, "6"), (1, "4"), (2, "2")]},
    )
    verdict = check(history)
    assert verdict.anomalies == {Anomaly.CYCLE}
    assert verdict.legal_cycles[0].kind == "G0"


def test_cycles_that_are_legal_are_reported_only() -> None:
    """Writes that cross, writes that cross a read, and reads of two that did not see each other's writes."""
    crossed = History(
        transactions=[
            transaction("p", Sent(A, "1", 0), Sent(B, "2", 1)),
            transaction("q", Sent(A, "3", 1), Sent(B, "4", 0)),
        ],
        final={A: [(0, "1"), (1, "3")], B: [(0, "4"), (1, "2")]},
    )
    verdict = check(crossed)
    assert not verdict.broken
    assert [cycle.kind for cycle in verdict.legal_cycles] == ["G0"]
    verdict = check(  # q reads what p wrote after a record of q
        History(
            transactions=[
                transaction("p", Sent(A, "1", 1), Sent(B, "2", 0)),
                transaction("q", Sent(A, "3", 0), seen=(Seen(B, 0, "2", 2.0),)),
            ],
            final={A: [(0, "3"), (1, "1")], B: [(0, "2")]},
        )
    )
    assert not verdict.broken
    assert [cycle.kind for cycle in verdict.legal_cycles] == ["G1c"]
    first = [transaction("a", Sent(A, "1", 0)), transaction("b", Sent(B, "2", 0))]
    skewed = History(
        transactions=[
            *first,
            transaction("p", Sent(A, "3", 1), seen=(Seen(B, 0, "2", 2.0),)),
            transaction("q", Sent(B, "4", 1), seen=(Seen(A, 0, "1", 2.0),)),
        ],
        final={A: [(0, "1"), (1, "3")], B: [(0, "2"), (1, "4")]},
    )
    verdict = check(skewed)
    assert not verdict.broken
    (cycle,) = verdict.legal_cycles
    assert cycle.kind == "G2"
    assert {edge for _, edge in cycle.steps} == {Edge.RW}
