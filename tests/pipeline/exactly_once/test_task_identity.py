"""Tasks are found by what they hold, however Spark numbers them, or refused: nothing is stored twice."""

from __future__ import annotations

import itertools
import random
import threading
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.pipeline.exactly_once.batch_tasks import SlotName, TaskSlot
from echoless.pipeline.exactly_once.errors import ReplayMismatchError, SinkError
from echoless.pipeline.exactly_once.task_identity import TaskKey
from tests.pipeline.exactly_once.kafka_numbering import first_order, order_after_restart
from tests.pipeline.exactly_once.task_model import DiedError, Model, Rows, digest_of

NAMES = [f"{word}{suffix}" for word in ("orders", "small", "a", "b.ord", "payments-eu") for suffix in
         ("", "-1", "-out", ".v2", "_x", "s", "7", "-retry", ".dlq", "-2026")]  # fmt: skip
ROWS_MAX = 4


def stored(model: Model) -> list[Rows]:
    return sorted(tuple(rows) for rows in model.stored.values())


def expected(tasks: list[Rows]) -> list[Rows]:
    return sorted(rows for rows in tasks if rows)


# --- Spark's Kafka source ----------------------------------------------------------------------------


def kafka_tasks(names: list[str], partitions: int) -> tuple[list[Rows], list[Rows]]:
    """Tasks of a batch in their order when it is first planned, and after a restart."""
    sources = [(name, number) for name in names for number in range(partitions)]
    return [
        [
            tuple(f"{name}-{number}:{row}" for row in range(ROWS_MAX))
            for name, number in order(sources)
        ]
        for order in (first_order, order_after_restart)
    ]  # type: ignore[return-value]


def test_the_model_of_sparks_numbering_shows_the_fault():
    """Two to four partitions in all are numbered anew, depending on the topic's name; more never are."""
    changed = {
        count: sum(
            first != later for first, later in (kafka_tasks([name], count) for name in NAMES)
        )
        for count in range(1, 13)
    }
    assert changed[1] == 0
    assert all(0 < changed[count] <= len(NAMES) for count in (2, 3, 4))
    assert all(changed[count] == 0 for count in range(5, 13))


@pytest.mark.parametrize("topics", [1, 2])
@pytest.mark.parametrize("partitions", range(1, 13))
def test_a_kafka_source_is_restarted_wherever_the_first_run_died(topics, partitions):
    """Fifty names, five where the order never changes; dead after each of the tasks, the last of them half stored."""
    for name in NAMES if partitions < 5 else NAMES[::10]:
        names = [name, f"{name}-too"][:topics]
        first, later = kafka_tasks(names, partitions)
        for begun in range(len(first) + 1):
            model = Model()
            run = model.new_run()
            for number in range(begun):
                dies = 6 if number == begun - 1 else None
                with suppress(DiedError):
                    model.attempt(run, number, first[number], dies)
            model.run(later)
            model.run(first)
            assert stored(model) == expected(first), (name, begun)


# --- any tasks ---------------------------------------------------------------------------------------

TASKS = st.lists(st.lists(st.sampled_from("abc"), max_size=ROWS_MAX).map(tuple), max_size=12)


@given(tasks=TASKS, dice=st.randoms(use_true_random=False))
def test_every_row_of_every_task_is_stored_once(tasks, dice):
    """Equal tasks, deaths before each request and after each row, twins, and other numbers in each run.

    Tasks with equal first rows and different others may be taken for each other, which is refused.
    """
    model = Model()
    try:
        play(model, tasks, dice)
    except ReplayMismatchError:
        heads = [rows[:2] for rows in tasks if rows]
        assert len({*heads}) < len({rows for rows in tasks if rows}), "no two tasks begin alike"
        assert all(lane in {rows[: len(lane)] for rows in tasks} for lane in stored(model))
    else:
        assert stored(model) == expected(tasks)


def play(model: Model, tasks: list[Rows], dice: random.Random) -> None:
    for _ in range(dice.randint(0, 3)):
        order = dice.sample(range(len(tasks)), len(tasks))
        run = model.new_run()
        for number in dice.sample(range(len(tasks)), dice.randint(0, len(tasks))):
            for _ in range(dice.randint(1, 2)):
                with suppress(DiedError):
                    model.attempt(run, number, tasks[order[number]], dice.randint(0, 14))
    model.run(dice.sample(tasks, len(tasks)))
    model.run(dice.sample(tasks, len(tasks)))


@pytest.mark.parametrize("way", ["number", "digest"])
def test_the_property_finds_weaker_identities(way):
    """The number alone, and the digest without its occurrence, go wrong within 200 histories."""
    for seed in range(200):
        dice = random.Random(seed)
        tasks = [
            tuple(dice.choices("abc", k=dice.randint(0, ROWS_MAX)))
            for _ in range(dice.randint(0, 12))
        ]
        model = Model(find=by_number if way == "number" else by_digest)
        try:
            play(model, tasks, dice)
        except (ReplayMismatchError, AssertionError):
            return
        if stored(model) != expected(tasks):
            return
    pytest.fail("not noticed")


def by_number(model: Model, task: TaskKey) -> TaskSlot:
    return model.tasks().add_slot(
        TaskSlot(SlotName(f"{task.number}", 0), task.origin, task.number, task.run)
    )


def by_digest(model: Model, task: TaskKey) -> TaskSlot:
    return model.tasks().add_slot(
        TaskSlot(SlotName(task.digest, 0), task.origin, task.number, task.run)
    )


# --- what is refused ---------------------------------------------------------------------------------

THREE: list[Rows] = [("a", "b", "c"), ("d", "e"), ("f", "g", "h", "i")]


def begun(tasks: list[Rows], count: int) -> Model:
    """A batch of which so many tasks have begun, whose driver is gone."""
    model = Model()
    run = model.new_run()
    for number in range(count):
        model.attempt(run, number, tasks[number])
    return model


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize(
    "others",
    [
        [("a", "b", "c"), ("d", "x"), ("f", "g", "h", "i")],
        [("x", "b", "c"), ("d", "e"), ("f", "g", "h", "i")],
        [("b", "a", "c"), ("e", "d"), ("g", "f", "h", "i")],
        [("a", "b", "c")],
        [],
    ],
)
def test_other_rows_or_another_division_are_refused_and_not_stored(others, count):
    """Every task that had begun has to be found again before new rows are stored."""
    model = begun(THREE, count)
    before = stored(model)
    lost = [rows for rows in THREE[:count] if rows not in others]
    if not lost:
        model.run(others)
        assert stored(model) == expected(others)
        return
    with pytest.raises(
        ReplayMismatchError, match=r"what was Spark partition .* was not found again"
    ):
        model.run(others)
    assert stored(model) == before


def test_rows_that_move_to_the_end_of_another_task_are_noticed_at_the_end():
    """Its own rows begin as before, but the driver misses the other task."""
    model = begun(THREE, 3)
    with pytest.raises(ReplayMismatchError, match=r"what was Spark partition 1 then was not found"):
        model.run([("a", "b", "c", "d", "e"), ("f", "g", "h", "i")])


def test_a_complete_batch_takes_no_further_task():
    """All of its tasks are found again, and one more has rows that none of them had."""
    model = Model()
    model.run(THREE)
    with pytest.raises(ReplayMismatchError, match="the batch is complete, with 3 Spark partitions"):
        model.run([*THREE, ("x",)])
    with pytest.raises(ReplayMismatchError, match="the batch is complete"):
        model.run([*THREE, THREE[0]])
    assert stored(model) == expected(THREE)


def test_of_tasks_that_begin_alike_each_keeps_its_number_if_it_can():
    """They differ later on; a restart under the same numbers is not refused for that."""
    alike: list[Rows] = [("a", "a", str(number)) for number in range(5)]
    model = begun(alike, 5)
    for order in itertools.permutations(range(5)):
        run = model.new_run()
        for number in order:  # tasks come in any order
            model.attempt(run, number, alike[number])
    assert stored(model) == expected(alike)


def test_new_rows_begin_in_the_next_run_when_all_others_were_found():
    """The first run died early, and the task that is new comes first: it is deferred, once."""
    model = begun(THREE, 2)
    run = model.new_run()
    later = [THREE[2], THREE[1], THREE[0]]
    reports = [model.attempt(run, number, rows) for number, rows in enumerate(later)]
    assert [one.is_deferred for one in reports] == [True, False, False]
    assert not model.end(run, reports)
    assert stored(model) == expected(THREE[:2])
    model.run(later)
    assert stored(model) == expected(THREE)


def test_a_twin_with_other_rows_does_not_let_a_task_begin_twice():
    """The task was found again, and a twin of it was deferred, whose report Spark takes."""
    model = begun(THREE, 2)
    run = model.new_run()
    model.attempt(run, 0, ("x", "y"))
    model.attempt(run, 1, THREE[1])
    twin = model.attempt(run, 0, ("x", "y"))
    assert twin.is_deferred
    model.attempt(run, 0, THREE[0])
    with pytest.raises(SinkError):
        model.end(run, [twin, model.attempt(run, 1, THREE[1])])
    assert stored(model) == expected(THREE[:2])


def test_tasks_at_the_same_time_get_a_lane_each():
    """Twelve equal tasks and their twins, in threads, after a run that began all of them."""
    tasks: list[Rows] = [("a", "b")] * 12
    for runs in (1, 2, 3):
        model = begun(tasks, 12 if runs > 1 else 0)
        run = model.new_run()
        found: dict[int, set[int]] = {number: set() for number in range(12)}

        def find(number: int, model=model, run=run, found=found) -> None:
            slot = model.identity(TaskKey(run, number, digest_of(tasks[0]))).find()
            assert slot is not None
            found[number].add(slot.lane)

        threads = [threading.Thread(target=find, args=(number,)) for number in [*range(12)] * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        lanes = [lane for own in found.values() for lane in own]
        assert len(lanes) == len(set(lanes)) == 12
