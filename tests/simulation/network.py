"""The network: who reaches whom, and how long it takes. All randomness comes from the history's seed.

Nodes are named ("broker-1", "client-0", "coordinator"). A cut is one-way; messages in transit while
a link is cut stay in the sender's buffers and arrive after the cut, in order, as in TCP - or never,
if the sender gave up. Knows nothing of the messages' meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from tests.simulation.process import Process
from tests.simulation.virtual_loop import VirtualLoop

SHORTEST_DELAY_S: Final = 0.0001
LATE_S_MAX: Final = 120.0
"""Time for which what a client has sent over a connection that it gave up may still be on its way, at most."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Weather:
    """How bad the network is, while it is bad."""

    delay_s: float
    """Longest delay of most messages."""
    slow_probability: float
    slow_s: float
    """Longest delay of the slow messages."""
    drop_probability: float
    """A message between brokers is lost, and the sender is left waiting."""
    duplicate_probability: float
    """A message between brokers arrives a second time."""
    late_s: float
    """When the second copy arrives, at the latest."""
    break_probability: float
    """A message of a client or to the coordinator breaks its connection."""


CALM: Final = Weather(
    delay_s=0.001,
    slow_probability=0,
    slow_s=0,
    drop_probability=0,
    duplicate_probability=0,
    late_s=0,
    break_probability=0,
)


class Network:
    """Delays, cuts and accidents."""

    def __init__(self, loop: VirtualLoop, rng: Random) -> None:
        self.loop = loop
        self.rng = rng
        self.context = copy_context()
        """The world's context: its events happen whatever machine is dead or paused."""
        self.weather = CALM
        self.weather_by_type: dict[str, Weather] = {}
        """The weather of messages between brokers of these types, if it is another one."""
        self.late_s_max = LATE_S_MAX
        self.slow_until = 0.0
        """When everything has arrived that the weather has made slow, in the loop's time."""
        self._late: list[Channel] = []
        self._cuts: dict[tuple[str, str], int] = {}
        self._stalled: dict[tuple[str, str], list[Channel]] = {}

    def weather_of(self, message_type: str) -> Weather:
        """The weather that a message between brokers meets."""
        return self.weather_by_type.get(message_type, self.weather)

    def delay_s(self, weather: Weather | None = None) -> float:
        """How long one message takes."""
        weather, rng = weather or self.weather, self.rng
        if weather.slow_probability and rng.random() < weather.slow_probability:
            delay_s = rng.uniform(weather.delay_s, weather.slow_s)
            self.slow_until = max(self.slow_until, self.loop.time() + delay_s)
            return delay_s
        return SHORTEST_DELAY_S + rng.random() * weather.delay_s

    def happens(self, probability: float) -> bool:
        """One throw of the dice."""
        return probability > 0 and self.rng.random() < probability

    def is_cut(self, source: str, target: str) -> bool:
        return bool(self._cuts) and (source, target) in self._cuts

    def cut(self, source: str, target: str) -> None:
        """Nothing gets from `source` to `target` any more; cuts of the same link add up."""
        link = source, target
        self._cuts[link] = self._cuts.get(link, 0) + 1

    def mend(self, source: str, target: str) -> None:
        """Undoes one cut; after the last one held messages continue."""
        link = source, target
        left = self._cuts.get(link, 0) - 1
        if left > 0:
            self._cuts[link] = left
            return
        self._cuts.pop(link, None)
        for channel in self._stalled.pop(link, []):
            channel.go_on()

    def heal(self) -> None:
        """No cuts, calm weather."""
        self.weather = CALM
        self.weather_by_type.clear()
        for link in list(self._cuts):
            self._cuts[link] = 1
            self.mend(*link)

    def hold(self, channel: Channel, delay_s: float) -> None:
        """Delays what is on its way over the connection of a client that has given it up."""
        channel.hold_for(delay_s)
        self._late.append(channel)

    def lose_late(self) -> None:
        """Nothing arrives any more of what was held back so far."""
        late, self._late = self._late, []
        for channel in late:
            channel.close()

    def stall(self, channel: Channel) -> None:
        """Calls `channel.go_on` once the link is whole again."""
        self._stalled.setdefault((channel.source, channel.target), []).append(channel)


class Channel:
    """One direction of a connection: what is sent arrives in order, in the process at its end."""

    __slots__ = (
        "_held",
        "_is_held",
        "_latest",
        "is_open",
        "network",
        "receiver",
        "source",
        "target",
    )

    def __init__(self, network: Network, source: str, target: str, receiver: Process) -> None:
        self.network = network
        self.source = source
        self.target = target
        self.receiver = receiver
        self.is_open = True
        self._latest = 0.0
        """When the message sent last arrives."""
        self._held: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        """Deliveries that have to wait, in order."""
        self._is_held = False

    def send(self, deliver: Callable[..., object], *args: Any) -> None:
        """Runs `deliver(*args)` in the receiver, unless the channel is closed by then."""
        network = self.network
        when = max(network.loop.time() + network.delay_s(), self._latest)
        self._latest = when
        network.loop.call_at(when, self._arrive, deliver, args, context=self.receiver.context)

    def _arrive(self, deliver: Callable[..., object], args: tuple[Any, ...]) -> None:
        if not self.is_open:
            return
        if self._is_held:
            self._held.append((deliver, args))
        elif self.network.is_cut(self.source, self.target):
            self._is_held = True
            self._held.append((deliver, args))
            self.network.stall(self)
        else:
            deliver(*args)

    def hold_for(self, delay_s: float) -> None:
        """Delays all messages in transit."""
        self._is_held = True
        self.network.loop.call_later(delay_s, self.go_on, context=self.receiver.context)

    def go_on(self) -> None:
        """Delivers held messages, after one more delay, and before later ones."""
        network = self.network
        network.loop.call_later(network.delay_s(), self._release, context=self.receiver.context)

    def _release(self) -> None:
        self._is_held = False
        held, self._held = self._held, []
        for deliver, args in held:
            self._arrive(deliver, args)

    def close(self) -> None:
        """Drops everything that has not arrived."""
        self.is_open = False
        self._held.clear()
