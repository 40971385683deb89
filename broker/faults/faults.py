"""The faults of one broker: its rules, and where they take effect.

A broker without rules has only this object from this package: whatever a rule needs is imported and
installed with the first one.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final

from echoless.broker.faults.file_system import FaultyFileSystem

if TYPE_CHECKING:
    from echoless.broker.config.loading import Config
    from echoless.broker.decisions.decisions import Decisions
    from echoless.broker.environment import Environment
    from echoless.broker.faults.action import Action
    from echoless.broker.faults.hits import Hits
    from echoless.broker.faults.own_messages import OwnMessages
    from echoless.broker.faults.peers import FaultyPeers
    from echoless.broker.faults.port import FaultyPort
    from echoless.broker.faults.reading_rules import AnyText
    from echoless.broker.faults.rule import ActiveRule
    from echoless.broker.faults.rules import AnyRule, Rules
    from echoless.broker.network.server import Server
    from echoless.broker.replication.peers import Peers
    from echoless.broker.services import Services
    from echoless.broker.tree.node_tree import NodeTree


_OF_REQUESTS: Final = (
    *("kafka_requests", "native_requests", "own_messages", "port", "request_actions", "rules"),
)


def import_rules() -> None:
    """Imports what the first rule for requests would import, which takes 50 ms."""
    for name in _OF_REQUESTS:
        importlib.import_module(f"echoless.broker.faults.{name}")


class FaultInjection:
    """The faults of one broker. Single owner: the event loop."""

    def __init__(
        self,
        config: Config,
        environment: Environment,
        decisions: Decisions,
        crash: Callable[[ActiveRule], None] | None = None,
    ) -> None:
        """`crash` ends the process; a simulation brings its own."""
        self._config = config
        self._decisions = decisions
        self._crash = crash
        self._rules: Rules | None = None
        self._hits: Hits | None = None
        self._servers: Sequence[Server] = ()
        self._services: Services | None = None
        self._ports: list[FaultyPort] = []
        self._own: OwnMessages | None = None
        self.own_messages: OwnMessages | None = None
        """The way of this broker's messages to itself, while there are rules for requests."""
        self._file_system = FaultyFileSystem(environment.file_system)
        self._peers: FaultyPeers | None = None
        self._open_peers = environment.open_peers
        self._open_tree = environment.open_tree
        self._tree: NodeTree | None = None
        self.environment = environment._replace(
            file_system=self._file_system,
            open_peers=self._watched_peers,
            open_tree=self._watched_tree,
        )
        """The environment as the broker is to see it."""

    def watch(self, servers: Sequence[Server], services: Services) -> None:
        """Sets the ports whose requests the rules apply to, and what these ask."""
        self._servers = servers
        self._services = services
        if self._rules is not None:
            self._install()

    def stop(self) -> None:
        """Releases everything that is held back: the broker is stopping."""
        if self._rules is not None:
            self._rules.stop()
        for port in self._ports:
            port.stop()

    # --- the rules ---

    def documents(self) -> list[dict[str, Any]]:
        """All rules with their counts, in the order in which they are tried."""
        return [] if self._rules is None else self._rules.documents()

    def never_struck(self) -> list[dict[str, Any]]:
        """The rules that never struck and are not optional; removed ones, too, until they are forgotten."""
        return [] if self._rules is None else self._rules.never_struck()

    def removed(self) -> list[dict[str, Any]]:
        """The rules that were removed, with their last counts, until they are forgotten."""
        return [] if self._rules is None else self._rules.removed()

    def forget_removed(self) -> None:
        """Forgets the removed rules."""
        if self._rules is not None:
            self._rules.forget_removed()

    def named(self, name: str) -> AnyRule:
        """A rule that is in force. Raises `KeyError` if no rule has the name."""
        if self._rules is None:
            raise KeyError(name)
        return self._rules.named(name)

    def add(self, texts: Sequence[AnyText]) -> list[dict[str, Any]]:
        """Adds all of them or none. Raises `RuleError`, `NameTakenError`."""
        from echoless.broker.faults.feasible import check_feasible

        parts = [part for text in texts for part in text.parts]
        check_feasible(parts, self._config)
        works = [self._work_at_once(part.action) for part in parts]
        if self._rules is None:
            self._begin()
        assert self._rules is not None
        added = self._rules.add(texts)
        self._act_at_once([part for rule in added for part in rule.parts], works)
        return _shown(added)

    def remove(self, name: str) -> dict[str, Any]:
        """Removes the rule and returns its final state. Raises `KeyError` if no rule has the name."""
        if self._rules is None:
            raise KeyError(name)
        (removed,) = _shown([self._rules.remove(name)])
        return removed

    def clear(self) -> list[dict[str, Any]]:
        """Removes all rules and returns their final state."""
        return [] if self._rules is None else _shown(self._rules.clear())

    # --- where they take effect ---

    def _begin(self) -> None:
        """Sets up what all rules need, when the first one is added."""
        from echoless.broker.faults.crash import crash
        from echoless.broker.faults.hits import Hits
        from echoless.broker.faults.rules import Rules

        # Rules draw their seeds separately, so that they do not change what the broker draws.
        rng = Random(self.environment.rng.getrandbits(64))  # noqa: S311
        self._rules = Rules(rng, self._install, self.environment.now_ms)
        self._hits = Hits(self._decisions, self.environment.now_ms)
        self._crash = self._crash or crash

    def _install(self) -> None:
        """Brings every place up to date with the rules."""
        from echoless.broker.faults.action import InjectionPoint
        from echoless.broker.faults.file_faults import FileFaults

        assert self._rules is not None
        assert self._hits is not None
        assert self._crash is not None
        links = self._rules.of(InjectionPoint.PEERS)
        requests = self._rules.of(InjectionPoint.REQUEST, InjectionPoint.PEERS)
        files = self._rules.of(InjectionPoint.FILE)
        self._file_system.use(FileFaults(files, self._hits, self._crash) if files else None)
        if self._peers is not None:
            self._peers.use(links, self._hits)
        if requests and not self._ports:
            self._ports = self._faulty_ports(self._hits, self._crash)
        self.own_messages = self._own if requests else None
        if self._services is not None:  # rules see only the partitions that a fetch names
            is_declined = any(rule.match.api in {None, "fetch"} for rule in requests)
            self._services.fetch.sessions.decline(is_declined=is_declined)
        for port in self._ports:
            port.use(requests)

    def _faulty_ports(self, hits: Hits, crash: Callable[[ActiveRule], None]) -> list[FaultyPort]:
        from echoless.broker.faults.coordinated import CoordinatedStates
        from echoless.broker.faults.kafka_requests import KafkaRequests
        from echoless.broker.faults.native_requests import NativeRequests
        from echoless.broker.faults.own_messages import OwnMessages
        from echoless.broker.faults.port import FaultyPort
        from echoless.broker.faults.request_actions import RequestActions
        from echoless.broker.native.dispatch import NativeDispatcher

        ports: list[FaultyPort] = []
        services = self._services
        if services is None:
            return ports
        self._own = OwnMessages(services, hits, crash)
        coordinated = CoordinatedStates(services)
        ports.append(self._own.port)
        for server in self._servers:
            own = server.dispatch
            is_native = isinstance(own, NativeDispatcher)
            requests = NativeRequests(services, own) if is_native else KafkaRequests(services)
            actions = RequestActions(own, requests, crash, coordinated)
            ports.append(FaultyPort(server, requests, hits, actions, coordinated))
        return ports

    def _watched_peers(self) -> Peers:
        from echoless.broker.faults.peers import FaultyPeers

        self._peers = FaultyPeers(self._open_peers())
        if self._rules is not None:
            self._install()
        return self._peers

    async def _watched_tree(self, config: Config) -> NodeTree:
        self._tree = await self._open_tree(config)
        return self._tree

    def _work_at_once(self, action: Action) -> Callable[[], None] | None:
        """The work of an action that takes place once, when its rule is added. Raises `RuleError`."""
        if action.type == "expire_session":
            return self._expire_session
        if action.group is not None:
            from echoless.broker.faults.group_faults import planned

            return planned(action, self._services)
        return None

    def _expire_session(self) -> None:
        assert self._tree is not None
        self._tree.expire_session()

    def _act_at_once(
        self, rules: Sequence[ActiveRule], works: Sequence[Callable[[], None] | None]
    ) -> None:
        assert self._hits is not None
        for rule, work in zip(rules, works, strict=True):
            if work is not None:
                rule.turns.take(asyncio.get_running_loop().time())
                self._hits.on_broker(rule, rule.action.group or "")
                work()


def _shown(rules: Sequence[AnyRule]) -> list[dict[str, Any]]:
    now_s = asyncio.get_running_loop().time()
    return [rule.document(now_s) for rule in rules]
