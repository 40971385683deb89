"""The judge finds every kind of fault, and nothing in a run without fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.proofs.judge import UNKNOWN_OFFSET, Evidence, Fault, Findings, first_number, judge

OTHER = first_number(1)
GOOD: Sequence[int] = [0, OTHER, 1, 2, OTHER + 1, 3]
"""Two producers in one log."""


def _judge(stored: Sequence[int] = GOOD, **changed: Any) -> dict[Fault, int]:
    """The faults of a run that is correct except for `changed`."""
    evidence = {
        "sent": {0: 4, 1: 2},
        "acknowledged": list(enumerate(GOOD)),
        "stored": stored,
        "read": list(enumerate(stored)),
    }
    return dict(judge(Evidence(**{**evidence, **changed})).counts)


def test_a_run_without_fault_is_acquitted() -> None:
    """Each record once, in its producer's order, acknowledged and read at its offset."""
    assert _judge() == {}


def test_an_acknowledged_record_that_is_not_stored_is_lost() -> None:
    """At the end of the log or in its middle, where the records after it shift."""
    assert _judge([0, OTHER, 1, 2, OTHER + 1]) == {Fault.LOST: 1}
    found = _judge([0, OTHER, 2, OTHER + 1, 3])
    assert found == {Fault.LOST: 1, Fault.MISPLACED: 3}


def test_a_record_stored_twice_is_a_duplicate() -> None:
    """Directly after the first or much later; it is not also reported as out of order."""
    assert _judge([*GOOD, 3]) == {Fault.DUPLICATED: 1}
    assert _judge([*GOOD, 0, 1]) == {Fault.DUPLICATED: 2}


def test_a_record_behind_a_later_one_of_its_producer_is_out_of_order() -> None:
    """Order counts within a producer; producers may interleave freely."""
    exchanged = [0, OTHER, 2, 1, OTHER + 1, 3]
    assert _judge(exchanged, acknowledged=[])[Fault.OUT_OF_ORDER] == 1
    mixed = [OTHER, OTHER + 1, 0, 1, 2, 3]
    assert _judge(mixed, acknowledged=[]) == {}


def test_a_record_that_nobody_sent_is_found() -> None:
    """A number that its producer had not reached, or one of a producer that does not exist."""
    assert _judge([*GOOD, 4]) == {Fault.INVENTED: 1}
    assert _judge([*GOOD, first_number(7)]) == {Fault.INVENTED: 1}


def test_an_acknowledgement_names_the_right_offset_or_none() -> None:
    """An answer to a repeated batch may lack the offset; a wrong one is a fault."""
    assert _judge(acknowledged=[(UNKNOWN_OFFSET, 3)]) == {}
    assert _judge(acknowledged=[(4, 3)]) == {Fault.MISPLACED: 1}
    assert _judge(acknowledged=[(99, 3)]) == {Fault.MISPLACED: 1}


def test_what_was_read_must_stay() -> None:
    """A record that was read and then truncated, or replaced, was not committed."""
    assert _judge(GOOD[:5], read=list(enumerate(GOOD)), acknowledged=[]) == {Fault.MISREAD: 1}
    assert _judge(read=[*enumerate(GOOD[:5]), (5, 2)]) == {Fault.MISREAD: 1}


def test_reading_goes_forward_one_by_one_to_the_end() -> None:
    """No offset twice, none left out, none unread."""
    read = list(enumerate(GOOD))
    assert _judge(read=read[:4]) == {Fault.UNREAD: 2}
    assert _judge(read=read[:3] + read[4:]) == {Fault.READ_OUT_OF_ORDER: 1}
    assert _judge(read=read[:3] + read[2:]) == {Fault.READ_OUT_OF_ORDER: 1}


def test_examples_are_few_and_say_where() -> None:
    """A run that lost a million records still has a readable table."""
    findings = judge(
        Evidence(sent={0: 1000}, acknowledged=[(n, n) for n in range(1000)], stored=[], read=[])
    )
    total = Findings()
    total.join("t-3", findings)
    assert total.counts[Fault.LOST] == 1000
    assert len(total.examples) == 10
    assert total.examples[0].startswith("t-3: lost: 0, acknowledged at 0")
