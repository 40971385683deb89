"""The producer states of one partition, against a model so plain that it cannot be wrong."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from echoless.protocol.dedup import BatchMetadata, ProducerEntry
from echoless.storage.producers import order as producer_order
from echoless.storage.producers.order import LIVE_ENTRIES_MAX
from echoless.storage.producers.snapshot import decode_snapshot, encode_snapshot
from echoless.storage.producers.state import FrozenStates, ProducerStates
from echoless.storage.producers.table import ProducerTable
from tests.storage.producers.entries import entries, producer_ids


def entry_at(last_append_ms: int, batch_count: int = 1, producer_epoch: int = 0) -> ProducerEntry:
    """An entry of `batch_count` batches of ten records each."""
    batches = tuple(
        BatchMetadata(10 * n + 9, 1000 + 10 * n + 9, 9, last_append_ms, 77 + n)
        for n in range(batch_count)
    )
    return ProducerEntry(producer_epoch, 0, last_append_ms, batches)


def fill(states: ProducerStates, count: int) -> None:
    """Producers 0 ... count-1, which appended at 0, 1, 2, ... ms."""
    for producer_id in range(count):
        states.put(producer_id, entry_at(producer_id))


class ProducerStatesMachine(RuleBasedStateMachine):
    """`ProducerStates` with few live entries and an index full of collisions, beside the model."""

    live_entries_max = 3

    def __init__(self) -> None:
        super().__init__()
        self.original_live_entries_max = producer_order.LIVE_ENTRIES_MAX
        producer_order.LIVE_ENTRIES_MAX = self.live_entries_max
        self.states = ProducerStates(window=5, expiration_ms=300)
        self.states._plain._packed = ProducerTable(
            self.states._plain._packed._slot_size, hash_of=lambda i: i[-1] % 4
        )
        self.model: OrderedDict[int, ProducerEntry] = OrderedDict()
        self.window, self.expiration_ms, self.producers_max = 5, 300, 0
        self.evicted_total = self.expired_total = 0
        self.frozen: list[tuple[FrozenStates, list[tuple[int, ProducerEntry]]]] = []
        """Frozen states, and what the model held at that moment."""

    def teardown(self) -> None:
        producer_order.LIVE_ENTRIES_MAX = self.original_live_entries_max

    def trim_model(self) -> None:
        for producer_id, entry in self.model.items():
            self.model[producer_id] = replace(entry, batches=entry.batches[-self.window :])
        while self.producers_max and len(self.model) > self.producers_max:
            self.model.popitem(last=False)
            self.evicted_total += 1

    @rule(producer_id=producer_ids, entry=entries)
    def put(self, producer_id: int, entry: ProducerEntry) -> None:
        self.states.put(producer_id, entry)
        self.model.pop(producer_id, None)
        self.model[producer_id] = entry
        self.trim_model()

    @rule(first=st.integers(0, 1000), count=st.integers(1, 30), entry=entries)
    def put_many(self, first: int, count: int, entry: ProducerEntry) -> None:
        for producer_id in range(first, first + count):
            self.put(producer_id, entry)

    @rule(producer_id=producer_ids)
    def get(self, producer_id: int) -> None:
        assert self.states.get(producer_id) == self.model.get(producer_id)

    @rule(now_ms=st.integers(0, 1400), count_max=st.none() | st.integers(0, 5))
    def expire(self, now_ms: int, count_max: int | None) -> None:
        expired = 0
        while self.model and expired != count_max:
            oldest = next(iter(self.model.values()))
            if now_ms - oldest.last_append_ms < self.expiration_ms:
                break
            self.model.popitem(last=False)
            expired += 1
        self.expired_total += expired
        assert self.states.expire(now_ms, count_max) == expired

    @rule(window=st.integers(1, 8))
    def reconfigure_window(self, window: int) -> None:
        self.window = window
        self.states.reconfigure(window=window)
        self.trim_model()

    @rule(expiration_ms=st.integers(1, 900), producers_max=st.integers(0, 30))
    def reconfigure_bounds(self, expiration_ms: int, producers_max: int) -> None:
        self.expiration_ms, self.producers_max = expiration_ms, producers_max
        self.states.reconfigure(expiration_ms=expiration_ms, producers_max=producers_max)
        self.trim_model()

    @rule()
    def round_trip_through_a_snapshot(self) -> None:
        snapshot = decode_snapshot(encode_snapshot(42, self.states))
        assert list(snapshot.items()) == list(self.model.items())
        snapshot.load_into(self.states)

    @rule()
    def freeze(self) -> None:
        self.frozen = [*self.frozen[-2:], (self.states.freeze(), list(self.model.items()))]

    @invariant()
    def what_is_frozen_stays_as_it_was(self) -> None:
        for frozen, held in self.frozen:
            assert list(decode_snapshot(encode_snapshot(42, frozen)).items()) == held

    @rule()
    def clear(self) -> None:
        self.states.clear()
        self.model.clear()

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        assert len(self.states) == len(self.model)
        assert list(self.states.items()) == list(self.model.items())
        assert self.states.evicted_total == self.evicted_total
        assert self.states.expired_total == self.expired_total

    @invariant()
    def keeps_an_id_in_one_tier(self) -> None:
        packed = {producer_id for producer_id, _ in self.states._plain._packed.items()}
        assert not packed & self.states._plain.live.keys()
        assert len(packed) == len(self.states._plain._packed)


@pytest.mark.slow
def test_states_do_what_the_model_does() -> None:
    """Whatever is put, expired, evicted, reconfigured and snapshotted, order and entries are right."""
    run_state_machine_as_test(
        ProducerStatesMachine,
        settings=settings(max_examples=10, stateful_step_count=30, deadline=None),
    )


@pytest.mark.slow
def test_states_do_what_the_model_does_for_long() -> None:
    """The same, with longer histories and more of them."""
    run_state_machine_as_test(
        ProducerStatesMachine,
        settings=settings(max_examples=50, stateful_step_count=60, deadline=None),
    )


def test_unknown_producer_is_none() -> None:
    """A producer that never appended here has no entry."""
    assert ProducerStates().get(7) is None


@pytest.mark.parametrize("count", [1, LIVE_ENTRIES_MAX, LIVE_ENTRIES_MAX + 1, 5000])
def test_every_producer_is_found_again(count: int) -> None:
    """However many producers there are, each one's entry comes back as it was put."""
    states = ProducerStates()
    fill(states, count)
    assert len(states) == count
    assert [states.get(i) for i in range(count)] == [entry_at(i) for i in range(count)]
    assert [i for i, _ in states.items()] == list(range(count))


def test_append_makes_a_producer_the_newest() -> None:
    """The producer that appended last is forgotten last, however long it had been idle before."""
    states = ProducerStates()
    fill(states, 1000)
    states.put(3, entry_at(2000))
    states.put(998, entry_at(2001))
    assert [i for i, _ in states.items()][-3:] == [999, 3, 998]


def test_reading_does_not_make_a_producer_newer() -> None:
    """Only an append counts as use."""
    states = ProducerStates(producers_max=2)
    fill(states, 2)
    states.get(0)
    states.put(2, entry_at(2))
    assert [i for i, _ in states.items()] == [1, 2]


def test_bound_evicts_the_least_recently_appended() -> None:
    """Above `producers_max` the producer goes that has been idle longest, and it is counted."""
    states = ProducerStates(producers_max=1000)
    fill(states, 1500)
    assert [i for i, _ in states.items()] == list(range(500, 1500))
    assert states.evicted_total == 500


def test_expires_at_exactly_the_expiration_time() -> None:
    """An entry lives while less than `expiration_ms` has passed since its last append."""
    states = ProducerStates(expiration_ms=100)
    states.put(1, entry_at(1000))
    assert states.expire(1099) == 0
    assert states.get(1) is not None
    assert states.expire(1100) == 1
    assert states.get(1) is None
    assert states.expired_total == 1


def test_entry_past_its_time_counts_until_the_sweep() -> None:
    """As in Kafka, the sweep does the expiry; reading alone forgets nothing."""
    states = ProducerStates(expiration_ms=1)
    states.put(1, entry_at(0))
    assert states.get(1) == entry_at(0)


def test_expiry_can_be_bounded() -> None:
    """One sweep removes at most `count_max`, the oldest ones."""
    states = ProducerStates(expiration_ms=1)
    fill(states, 500)
    assert states.expire(10_000, count_max=200) == 200
    assert next(states.items())[0] == 200


def test_clock_that_steps_back_expires_nothing_early() -> None:
    """Entries after one from a clock that ran ahead wait: late by that step, never early."""
    states = ProducerStates(expiration_ms=100)
    states.put(1, entry_at(5000))
    states.put(2, entry_at(1000))  # the clock was set back by 4 s
    assert [i for i, _ in states.items()] == [1, 2]
    assert states.expire(1200) == 0
    assert states.expire(5100) == 2


def test_narrower_window_keeps_the_newest_batches() -> None:
    """After narrowing, live and packed entries alike hold their newest batches."""
    states = ProducerStates(window=5)
    for producer_id in range(1000):
        states.put(producer_id, entry_at(producer_id, batch_count=5))
    states.reconfigure(window=2)
    assert all(entry.batches == entry_at(i, 5).batches[-2:] for i, entry in states.items())


def test_wider_window_takes_more_batches() -> None:
    """After widening, entries keep what they have and can grow to the new window."""
    states = ProducerStates(window=1)
    fill(states, 1000)
    states.reconfigure(window=8)
    assert states.get(0) == entry_at(0)
    states.put(0, entry_at(0, batch_count=8))
    fill(states, 1000)
    states.put(0, entry_at(1, batch_count=8))
    states.reconfigure(window=9)
    assert states.get(0) == entry_at(1, batch_count=8)


def test_entry_with_too_many_batches_is_trimmed() -> None:
    """An entry never holds more than the window, wherever it comes from."""
    states = ProducerStates(window=2)
    states.put(1, entry_at(0, batch_count=5))
    entry = states.get(1)
    assert entry is not None
    assert entry.batches == entry_at(0, 5).batches[-2:]


def test_memory_returns_when_the_packed_producers_are_gone() -> None:
    """Once the last idle producer is forgotten, the chunks are given back."""
    states = ProducerStates(expiration_ms=1)
    fill(states, 5000)
    assert len(states._plain._packed._chunks) > 1
    states.expire(10_000)
    assert len(states) == 0
    assert not states._plain._packed._chunks
