"""Fair eviction: the owner with most producers loses one first, and never another."""

from __future__ import annotations

from collections import Counter, OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.bound_ids import tag_of, tagged
from echoless.storage.producers.snapshot import decode_snapshot, encode_snapshot
from echoless.storage.producers.state import ProducerStates
from tests.storage.producers.test_state import entry_at

PRODUCERS_MAX = 6
ids = st.builds(tagged, st.integers(0, 9), st.integers(0, 3))
steps = st.one_of(
    st.tuples(st.just("put"), ids),
    st.tuples(st.just("expire"), st.integers(0, 5)),
    st.tuples(st.just("snapshot"), st.just(0)),
)


def fair() -> ProducerStates:
    return ProducerStates(5, 20, PRODUCERS_MAX, is_fair=True)


def evicted(known: OrderedDict[int, int]) -> int:
    """The id that has to go: the oldest one of an owner with most, of the smallest tag if that leaves a choice."""
    counts = Counter(map(tag_of, known))
    most = max(counts.values())
    oldest = next(iter(known))
    if counts[tag_of(oldest)] == most:
        return oldest
    owner = min(tag for tag, count in counts.items() if count == most)
    return next(one for one in known if tag_of(one) == owner)


@given(st.lists(steps, max_size=60))
def test_the_model(steps: list[tuple[str, int]]) -> None:
    """After any history of appends, expiry and restarts the same producers are known."""
    states, known, now_ms = fair(), OrderedDict[int, int](), 0
    for step, argument in steps:
        if step == "put":
            now_ms += 1
            states.put(argument, entry_at(now_ms))
            known.pop(argument, None)
            known[argument] = now_ms
            if len(known) > PRODUCERS_MAX:
                del known[evicted(known)]
        elif step == "expire":
            now_ms += argument
            states.expire(now_ms)
            for one, at_ms in list(known.items()):
                if now_ms - at_ms >= 20:
                    del known[one]
        else:
            decode_snapshot(encode_snapshot(0, states)).load_into(states)
        assert [one for one, _ in states.items()] == list(known)


def test_a_principal_that_leaks_ids_loses_its_own() -> None:
    """Another's producer stays, however long it has been idle."""
    states = fair()
    quiet = tagged(0, 7)
    states.put(quiet, entry_at(0))
    for number in range(1000):
        states.put(tagged(number, 8), entry_at(number))
    assert states.get(quiet) is not None
    assert len(states) == PRODUCERS_MAX
    assert states.evicted_total == 1001 - PRODUCERS_MAX
