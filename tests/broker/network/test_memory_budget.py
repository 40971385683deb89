"""Memory of large requests: bounded, shared, and never held by a request that keeps others waiting."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from echoless.broker.network.memory_budget import (
    SILENCE_S,
    SWEEP_INTERVAL_S,
    WORK_S,
    MemoryBudget,
    Reservation,
)

FRAME = 1_280_000
SMALL = FRAME // 4


class Scene:
    """A budget under a clock that the test moves, and requests that arrive in steps."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[tuple[float, object]] = []
        self.budget = MemoryBudget(FRAME, now_s=lambda: self.now_s, call_later=self.call_later)
        self.closed: list[Arriving] = []

    def call_later(self, delay_s, callback) -> None:
        self.timers.append((self.now_s + delay_s, callback))

    def pass_time(self, seconds: float) -> None:
        """Moves the clock and runs what has become due, in its order."""
        end_s = self.now_s + seconds
        while due := [timer for timer in self.timers if timer[0] <= end_s]:
            timer = min(due, key=lambda timer: timer[0])
            self.timers.remove(timer)
            self.now_s = max(self.now_s, timer[0])
            timer[1]()
        self.now_s = end_s

    def request(self, address: str, size: int) -> Arriving:
        return Arriving(self, address, size)


class Arriving:
    """One large request; it takes memory as a connection does."""

    def __init__(self, scene: Scene, address: str, size: int) -> None:
        self.scene = scene
        self.size = size
        self.is_waiting = self.is_closed = self.is_complete = False
        self.reservation: Reservation = scene.budget.begin(address, self.give_up)

    def give_up(self, _reason: str) -> None:
        assert not self.is_closed
        self.is_closed = True
        self.scene.closed.append(self)

    def granted(self) -> None:
        assert self.is_waiting
        assert not self.is_closed
        self.is_waiting = False

    def arrive(self, size: int) -> bool:
        """Bytes up to `size` arrive, if there is memory for them; whether there is."""
        if self.is_waiting or self.is_closed or self.is_complete:
            return False
        size = min(size, self.size)
        held = self.reservation.held
        if size > held:
            self.is_waiting = not self.reservation.grow(size, self.granted)
            if self.is_waiting:
                return False
        self.reservation.progressed(max(size - held, 0), self.scene.now_s)
        if size == self.size:
            self.is_complete = True
            self.reservation.work()
        return True

    def answer(self) -> None:
        self.reservation.release()


def test_small_requests_pass_while_large_ones_hold_all_they_can():
    """Any number of half-sent large frames leaves the requests of good clients their quarter."""
    scene = Scene()
    hostile = [scene.request("bad", FRAME) for _ in range(100)]
    for one in hostile:
        one.arrive(FRAME // 2)
    for _ in range(10):
        good = [scene.request("good", SMALL) for _ in range(4)]
        assert all(one.arrive(SMALL) for one in good)
        for one in good:
            one.answer()


def test_a_large_request_gets_its_turn_among_stalled_ones():
    """Stalled requests are closed when memory is wanted, and the one that wants it continues."""
    scene = Scene()
    hostile = [scene.request("bad", FRAME) for _ in range(100)]
    for one in hostile:
        one.arrive(FRAME // 2)
    good = scene.request("good", FRAME)
    good.arrive(FRAME)
    assert good.is_waiting
    scene.pass_time(SILENCE_S + 3 * SWEEP_INTERVAL_S)
    assert not good.is_waiting
    assert good.arrive(FRAME)
    assert all(one in hostile for one in scene.closed)


def test_requests_that_wait_for_each_other_go_on_one_by_one():
    """Frames that together need more than there is do not block each other in the middle."""
    scene = Scene()
    honest = [scene.request("honest", FRAME) for _ in range(8)]
    answered = 0
    for size in range(FRAME // 10, FRAME + 1, FRAME // 10):
        for one in honest:
            one.arrive(size)
    while answered < 8:
        scene.pass_time(SWEEP_INTERVAL_S)
        moving = [one for one in honest if not one.is_waiting and not one.is_complete]
        for one in moving:
            one.arrive(FRAME)
        done = [one for one in honest if one.is_complete]
        assert done, "nothing goes on"
        for one in done:
            honest.remove(one)
            one.answer()
            answered += 1
    assert scene.budget.used == 0
    assert not scene.closed


def test_the_largest_holder_loses_first():
    """The stalled address with more memory pays, and only as long as any waits."""
    scene = Scene()
    slow = scene.request("slow", FRAME)
    assert slow.arrive(FRAME // 2)
    hostile = [scene.request("bad", FRAME) for _ in range(3)]
    for one in hostile:
        one.arrive(FRAME // 2)
    last = scene.request("bad", FRAME)
    assert last.arrive(FRAME // 2)  # the last quarter
    scene.pass_time(2 * SILENCE_S)
    assert not scene.closed, "nobody waits"
    good = scene.request("good", FRAME)
    good.arrive(FRAME // 2)
    scene.pass_time(SWEEP_INTERVAL_S)
    assert not good.is_waiting
    assert slow not in scene.closed


def test_addresses_are_served_in_turn():
    """An address with many that wait does not keep the one of another address back."""
    scene = Scene()
    holders = [scene.request("holder", FRAME) for _ in range(3)]
    for one in holders:
        assert one.arrive(FRAME)
    many = [scene.request("many", FRAME) for _ in range(10)]
    for one in many:
        one.arrive(FRAME)
    other = scene.request("other", FRAME)
    other.arrive(FRAME)
    holders[0].answer()
    holders[1].answer()
    assert not other.is_waiting
    assert sum(not one.is_waiting for one in many) == 1


def test_a_request_that_takes_too_long_to_work_on_gives_way():
    """A long poll with a large frame keeps its memory only while none needs it."""
    scene = Scene()
    polls = [scene.request("bad", FRAME) for _ in range(3)]
    for one in polls:
        assert one.arrive(FRAME)
    good = scene.request("good", FRAME)
    good.arrive(FRAME)
    assert good.is_waiting
    scene.pass_time(WORK_S + SWEEP_INTERVAL_S)
    assert not good.is_waiting


def test_a_request_that_the_broker_has_whole_does_not_stall():
    """It waits for the broker, and its client can do nothing about that."""
    scene = Scene()
    whole = [scene.request("busy", FRAME) for _ in range(3)]
    for one in whole:
        assert one.arrive(FRAME)
        one.reservation.process()
    good = scene.request("good", FRAME)
    good.arrive(FRAME)
    scene.pass_time(100 * WORK_S)
    assert good.is_waiting
    assert not scene.closed
    whole[0].answer()
    assert not good.is_waiting


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "arrive", "arrive", "arrive", "answer", "vanish", "time"]),
        st.integers(0, 30),
        st.integers(1, FRAME),
    ),
    max_size=80,
)


def take_step(scene: Scene, requests: list[Arriving], step: str, index: int, size: int) -> None:
    """One thing that clients, the broker or the clock do."""
    one = requests[index % len(requests)] if requests else None
    if step == "begin":
        requests.append(scene.request(f"10.0.0.{index % 3}", size))
    elif step == "time":
        scene.pass_time(size / FRAME)
    elif one is None:
        return
    elif step == "arrive":
        one.arrive(max(size, one.reservation.held))
    elif step == "vanish" or one.is_complete:
        one.answer()
        requests.remove(one)


@given(_STEPS)
def test_the_budget_is_never_exceeded_and_something_always_goes_on(steps):
    """Whatever comes: never above the bound; once all fall silent, no one waits for long."""
    scene = Scene()
    budget = scene.budget
    requests: list[Arriving] = []
    for step in steps:
        take_step(scene, requests, *step)
        requests = [one for one in requests if not one.is_closed]
        assert budget.used == sum(one.reservation.held for one in requests) <= budget.bytes_max
        if budget.is_awaited:
            assert any(one.reservation.extra and not one.is_waiting for one in requests)
    waiting = [one for one in requests if one.is_waiting]
    for _ in range(len(waiting) * 2 + 2):
        scene.pass_time(WORK_S + SILENCE_S + SWEEP_INTERVAL_S)
    assert not any(one.is_waiting for one in waiting)
    for one in requests:
        one.reservation.release()
    assert budget.used == budget.held_by("10.0.0.0") == 0
