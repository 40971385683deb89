"""A copier's position as the metadata of a commit: what is written can be read, and nothing else is taken for one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.client.copier.position import Position, PositionError
from echoless.client.state import PartitionState, ProducerState

PAGE = Path(__file__).parents[3] / "docs/formats/copier-position.md"
NUMBERS = st.integers(0, 2**63 - 1)
SEQUENCES = st.integers(0, 2**31 - 1)


@st.composite
def positions(draw):
    producer_id, epoch = draw(NUMBERS), draw(st.integers(0, 2**15 - 1))
    names = draw(st.lists(st.tuples(st.text(), SEQUENCES), max_size=5, unique=True))
    partitions = [
        PartitionState(
            topic=topic,
            partition=index,
            producer_id=producer_id,
            producer_epoch=epoch,
            next_sequence=draw(SEQUENCES),
        )
        for topic, index in names
    ]
    return Position(
        offset=draw(NUMBERS),
        state=ProducerState(
            producer_id=producer_id, producer_epoch=epoch, partitions=tuple(partitions)
        ),
        born_ms=draw(NUMBERS),
        at_ms=draw(NUMBERS),
        is_clean=draw(st.booleans()),
    )


@given(positions())
def test_position_survives_its_text(position):
    """Reading what was written gives the same, whatever the order of the partitions; the text is ASCII."""
    text = position.metadata(1_000_000)
    assert text.isascii()
    found = Position.read(position.offset, text)
    assert {*found.state.partitions} == {*position.state.partitions}
    assert found.metadata(1_000_000) == text


def test_example_of_the_page():
    """The page's example is read, and written in the same way."""
    (example,) = re.findall(r"```json\n(.*?)\n```", PAGE.read_text(), re.DOTALL)
    position = Position.read(500, example)
    assert position.metadata() == example
    assert position.state.producer_id == 4000
    assert [one.next_sequence for one in position.state.partitions] == [120, 97]


def test_text_that_does_not_fit_is_refused():
    """The message says how long it is and what to do; at the limit it is written."""
    partitions = tuple(
        PartitionState(
            topic="orders",
            partition=index,
            producer_id=1,
            producer_epoch=0,
            next_sequence=2**31 - 1,
        )
        for index in range(250)
    )
    state = ProducerState(producer_id=1, producer_epoch=0, partitions=partitions)
    position = Position(offset=1, state=state, born_ms=1, at_ms=1)
    length = len(position.metadata(1_000_000))
    assert len(position.metadata(length)) == length
    with pytest.raises(PositionError, match=rf"250 output partitions takes {length} characters"):
        position.metadata(length - 1)


@pytest.mark.parametrize(
    "metadata",
    [
        "{",
        "[]",
        "null",
        "12",
        '{"v": 2}',
        "offset saved by somebody else",
    ],
)
def test_other_metadata_is_refused(metadata):
    """The commit of another program is no position."""
    with pytest.raises(PositionError, match="metadata"):
        Position.read(5, metadata)


GOOD = {"v": 1, "id": 1, "epoch": 0, "born": 1, "at": 1, "clean": 0, "next": {"t": {"0": 1}}}


@pytest.mark.parametrize(
    "change",
    [
        *({name: value} for name in GOOD for value in (-1, 2**63, "1", None, True, 1.0)),
        {"epoch": 2**15},
        {"clean": 2},
        {"next": {"t": 1}},
        {"next": {"t": {"x": 1}}},
        {"next": {"t": {"-1": 1}}},
        {"next": {"t": {"²": 1}}},
        {"next": {"t": {"0": 2**31}}},
        {"next": {"t": {"0": "1"}}},
    ],
)
def test_damaged_positions_are_refused(change):
    """A field of another kind or size is named, never guessed at."""
    with pytest.raises(PositionError):
        Position.read(5, json.dumps({**GOOD, **change}))
