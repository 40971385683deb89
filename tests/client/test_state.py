"""The producer's state as JSON: what is written can be read, and nothing else is taken for it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.client.state import PartitionState, ProducerState, StateError

IDS = st.integers(0, 2**63 - 1)
EPOCHS = st.integers(0, 2**15 - 1)
SEQUENCES = st.integers(0, 2**31 - 1)
PARTITIONS = st.builds(
    PartitionState,
    topic=st.text(),
    partition=SEQUENCES,
    producer_id=IDS,
    producer_epoch=EPOCHS,
    next_sequence=SEQUENCES,
    unacknowledged=SEQUENCES,
)
STATES = st.builds(
    ProducerState,
    producer_id=IDS,
    producer_epoch=EPOCHS,
    partitions=st.lists(PARTITIONS, max_size=3).map(tuple),
)
GOLDEN = (
    '{"version": 1, "producer_id": 4000, "producer_epoch": 0, "partitions": [{"topic": "orders", '
    '"partition": 0, "producer_id": 4000, "producer_epoch": 0, "next_sequence": 120, '
    '"unacknowledged": 0}]}'
)


@given(STATES)
def test_state_survives_its_json(state):
    """Reading what was written gives the same state."""
    assert ProducerState.from_json(state.to_json()) == state


def test_form_is_the_documented_one():
    """The example of `docs/client.md`, byte for byte: saved states outlive releases."""
    one = PartitionState(
        topic="orders", partition=0, producer_id=4000, producer_epoch=0, next_sequence=120
    )
    state = ProducerState(producer_id=4000, producer_epoch=0, partitions=(one,))
    assert state.to_json() == GOLDEN


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["version"], 2),
        (["producer_id"], -1),
        (["producer_id"], "4000"),
        (["producer_epoch"], 2**15),
        (["partitions"], None),
        (["partitions", 0], "orders"),
        (["partitions", 0, "topic"], None),
        (["partitions", 0, "partition"], -1),
        (["partitions", 0, "next_sequence"], 2**31),
        (["partitions", 0, "next_sequence"], True),
        (["partitions", 0, "next_sequence"], 1.5),
        (["partitions", 0, "unacknowledged"], None),
    ],
    ids=str,
)
def test_wrong_fields_are_named(path, value):
    """A producer never begins with numbers that cannot be."""
    fields = json.loads(GOLDEN)
    place = fields
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    name = next(step for step in reversed(path) if isinstance(step, str))
    with pytest.raises(StateError, match=name):
        ProducerState.from_json(json.dumps(fields))


@given(st.integers(0, len(GOLDEN) - 1))
def test_truncated_state_is_refused(end):
    """A file that was half written is no state."""
    with pytest.raises(StateError):
        ProducerState.from_json(GOLDEN[:end])


@pytest.mark.parametrize("text", ["[]", "null", "7", '"text"'])
def test_other_json_is_refused(text):
    """It has to be an object."""
    with pytest.raises(StateError):
        ProducerState.from_json(text)
