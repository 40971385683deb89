"""The faults of one broker: its rules, and where they take hold.

A broker without rules carries this object and nothing else of the folder: whatever a rule needs is
imported and installed with the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker.broker import Broker
    from broker.faults.port import FaultyPort
    from broker.faults.rule import Rule, RuleText
    from broker.faults.rules import Rules
    from broker.server import Server


class Faults:
    """Single owner: the event loop."""

    def __init__(self, broker: Broker, crash: Callable[[Rule], None] | None = None) -> None:
        """`crash` ends the process; a simulation brings its own."""
        self._broker = broker
        self._crash = crash
        self._rules: Rules | None = None
        self._servers: Sequence[Server] = ()
        self._ports: list[FaultyPort] = []

    def watch(self, servers: Sequence[Server]) -> None:
        """The ports whose requests the rules are for."""
        self._servers = servers
        if self._rules is not None:
            self._install()

    def stop(self) -> None:
        """Lets nothing be held back any longer: the broker is stopping."""
        for port in self._ports:
            port.stop()

    # --- the rules ---

    def documents(self) -> list[dict[str, Any]]:
        """All rules with their counts, in the order in which they are asked."""
        return [] if self._rules is None else self._rules.documents()

    def add(self, texts: Sequence[RuleText]) -> list[dict[str, Any]]:
        """All of them or none. Raises `RuleError`, `NameTakenError`."""
        rules = self._the_rules()
        added = rules.add(texts)
        return self._shown(added)

    def remove(self, name: str) -> dict[str, Any]:
        """The rule as it was at its end. Raises `KeyError` where there is none of the name."""
        if self._rules is None:
            raise KeyError(name)
        (removed,) = self._shown([self._rules.remove(name)])
        return removed

    def clear(self) -> list[dict[str, Any]]:
        """The rules as they were at their end."""
        return [] if self._rules is None else self._shown(self._rules.clear())

    def _shown(self, rules: Sequence[Rule]) -> list[dict[str, Any]]:
        import asyncio

        now_s = asyncio.get_running_loop().time()
        return [rule.document(now_s) for rule in rules]

    def _the_rules(self) -> Rules:
        if self._rules is None:
            from broker.faults.rules import Rules

            rng = self._broker.environment.rng
            # Rules draw their seeds apart, so that none of them changes what the broker draws.
            self._rules = Rules(Random(rng.getrandbits(64)), self._install)  # noqa: S311
        return self._rules

    def _install(self) -> None:
        """Brings every place up to date with the rules."""
        from broker.faults.action import Place

        assert self._rules is not None
        requests = self._rules.of(Place.REQUEST, Place.PEERS)
        if requests and not self._ports:
            self._ports = self._faulty_ports()
        for port in self._ports:
            port.use(requests)

    def _faulty_ports(self) -> list[FaultyPort]:
        from broker.faults.crash import crash
        from broker.faults.hits import Hits
        from broker.faults.kafka_requests import KafkaRequests
        from broker.faults.native_requests import NativeRequests
        from broker.faults.port import FaultyPort
        from broker.faults.request_actions import RequestActions
        from broker.native.dispatch import NativeDispatcher

        broker, ports = self._broker, []
        hits = Hits(broker.decisions, broker.now_ms)
        for server in self._servers:
            is_native = isinstance(server.dispatch, NativeDispatcher)
            requests = (
                NativeRequests(broker, server.dispatch) if is_native else KafkaRequests(broker)
            )
            actions = RequestActions(server.dispatch, requests, self._crash or crash)
            ports.append(FaultyPort(server, requests, hits, actions))
        return ports
