"""Brokers in reserve: started while an earlier test runs, so that a test need not wait for its own.

The reserve holds what it is asked to prepare for, and nothing else: the brokers of this test and of the next. They are
processes of this one: a broker ends when its standard input does, which is when this process is gone, however it went.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from echoless.testkit.echoless import Echoless


class WantedBroker(NamedTuple):
    """The broker that a test asks for."""

    settings: tuple[tuple[str, str], ...]
    """Names and values of `docs/configuration.md`."""
    security: str = ""

    @classmethod
    def of(cls, settings: Mapping[str, str], security: str) -> WantedBroker:
        return cls(tuple(sorted(settings.items())), security)

    def new(self) -> Echoless:
        """Makes the broker, which is not started."""
        return Echoless(dict(self.settings), security=self.security)


class BrokerReserve:
    """Brokers that have begun to start. For one thread."""

    def __init__(self) -> None:
        self._brokers: list[tuple[WantedBroker, Echoless]] = []

    def prepare(self, wanted: Collection[WantedBroker]) -> None:
        """Begins to start what is wanted and not there; ends what is there and not wanted. Waits for neither."""
        kept: list[tuple[WantedBroker, Echoless]] = []
        missing = list(wanted)
        for one in self._brokers:
            if one[0] in missing:
                missing.remove(one[0])
                kept.append(one)
            else:
                _end(one[1])
        self._brokers = kept
        for want in missing:
            broker = want.new()
            self._brokers.append((want, broker))
            broker.broker.begin_start()

    def take(self, wanted: WantedBroker) -> Echoless:
        """Hands out a broker that may still be starting, or one that is to be started: `with` waits for it."""
        for one in self._brokers:
            if one[0] == wanted:
                self._brokers.remove(one)
                return one[1]
        return wanted.new()

    def close(self) -> None:
        """Ends all that was not handed out."""
        self.prepare(())


def _end(broker: Echoless) -> None:
    broker.__exit__(None, None, None)
