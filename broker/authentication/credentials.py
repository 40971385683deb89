"""The credentials of all users, as this broker last read them from the tree.

Read again after every change that is announced, and once a minute: an announcement may be lost. A credential that
cannot be read, or has a number of iterations that no tool of Kafka's stores, admits no one: its user fails as an
unknown one does.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
import secrets
from collections import Counter
from collections.abc import Mapping
from typing import Final

from echoless.broker.authentication.user_nodes import (
    READ_AT_ONCE,
    SCRAM_MECHANISMS,
    credentials_in,
    read_users,
)
from echoless.broker.metadata.config_nodes import CHANGES, USERS
from echoless.broker.tree.node_tree import Cancel, NodeExistsError, NodeTree, ensure_paths
from echoless.broker.tree.refresher import Refresher
from echoless.protocol.sasl.mechanism import Mechanism
from echoless.protocol.sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramCredential, salt_of
from echoless.protocol.sasl.scram_server import Found

logger: Final = logging.getLogger(__name__)

REFRESH_INTERVAL_S: Final = 60.0
UNKNOWN_USERS: Final = "/config/unknown_users"
"""The key of the salts that unknown users are given: the same on every broker, and after a restart."""
Kind = tuple[Mechanism, int]
"""A mechanism and its number of iterations."""
_KINDS_MAX: Final = 8
"""From how many kinds one is drawn: each costs a few microseconds at each log-in."""
_REFUSED_SHOWN: Final = 20
"""Refused credentials that one log line names."""


class Credentials:
    """All credentials. Used from one event loop, from `start` to `close`."""

    def __init__(self) -> None:
        self._users: Mapping[str, Mapping[Mechanism, ScramCredential]] = {}
        self._kinds = {one: _usual(Counter(), one) for one in SCRAM_MECHANISMS}
        """Numbers of users by kind of credential: unknown users are given the same kinds."""
        self._strongest = _usual(Counter(), SCRAM_MECHANISMS[0])
        """The same of their strongest credentials alone."""
        self._refused: set[tuple[str, Mechanism]] = set()
        """Users and mechanisms whose credential admits no one; the log has named them."""
        self._secret = secrets.token_hex().encode()
        self._refresher = Refresher("users", self.refresh, every_s=REFRESH_INTERVAL_S)
        self._cancels: list[Cancel] = []

    async def start(self, tree: NodeTree) -> None:
        """Reads all users and follows their changes. Raises `CoordinationError`."""
        self._tree = tree
        await ensure_paths(tree, [USERS, CHANGES])
        try:
            await tree.create(UNKNOWN_USERS, self._secret)
        except NodeExistsError:
            self._secret = (await tree.read(UNKNOWN_USERS)).data
        for path in (CHANGES, USERS):
            self._cancels.append(await tree.watch_children(path, self._on_change))
        await self.refresh()
        self._refresher.start()

    async def close(self) -> None:
        """Stops following."""
        for cancel in self._cancels:
            cancel()
        await self._refresher.close()

    def find(self, user: str, mechanism: Mechanism) -> Found:
        """The user's credential; made up, and always the same, for one who has none.

        It is made up for every user: otherwise the time of an answer would tell who has one.
        """
        made_up = self._made_up(user, *self._drawn(user, self._kinds[mechanism]))
        credential = self._users.get(user, {}).get(mechanism)
        return made_up if credential is None else Found(credential, is_real=True)

    def strongest(self, user: str) -> tuple[Mechanism, Found]:
        """The credential that a plain password is compared with."""
        kind = self._drawn(user, self._strongest)
        made_up = self._made_up(user, *kind)
        own = self._users.get(user, {})
        for mechanism in reversed(SCRAM_MECHANISMS):
            if mechanism in own:
                return mechanism, Found(own[mechanism], is_real=True)
        return kind[0], made_up

    def _made_up(self, user: str, mechanism: Mechanism, iterations: int) -> Found:
        number = self._number(f"{mechanism} {user}")
        salt = salt_of(int.from_bytes(number))
        return Found(ScramCredential(salt, number, number, iterations), is_real=False)

    def _drawn(self, user: str, kinds: Mapping[Kind, int]) -> Kind:
        """One of these, each as likely as users have it, and the same for the same name while they stay.

        So neither a number of iterations nor the time that they take tells whether a user exists. Rendezvous
        hashing: another user's change leaves most names what they have.
        """

        def distance(kind: Kind) -> float:
            mechanism, iterations = kind
            drawn = int.from_bytes(self._number(f"{user} {mechanism} {iterations}")[:8])
            return -math.log((drawn + 1) / (1 << 64)) / kinds[kind]

        return min(kinds, key=distance)

    def _number(self, text: str) -> bytes:
        return hmac.digest(self._secret, text.encode(), "sha256")

    async def refresh(self) -> None:
        """Brings the view up to date now. Raises `CoordinationError`."""
        stored = await read_users(self._tree)
        users: dict[str, Mapping[Mechanism, ScramCredential]] = {}
        kinds: dict[Mechanism, Counter[Kind]] = {one: Counter() for one in SCRAM_MECHANISMS}
        strongest: Counter[Kind] = Counter()
        refused: set[tuple[str, Mechanism]] = set()
        for number, (name, config) in enumerate(stored.items(), 1):
            users[name] = served = _served(config)
            own = [(one, served[one].iterations) for one in SCRAM_MECHANISMS if one in served]
            for kind in own:
                kinds[kind[0]][kind] += 1
            strongest.update(own[-1:])
            refused |= {(name, one) for one in SCRAM_MECHANISMS if one in config} - {
                (name, one) for one in served
            }
            if number % READ_AT_ONCE == 0:
                await asyncio.sleep(0)
        self._log_refused(refused)
        self._users = users
        self._kinds = {one: _usual(count, one) for one, count in kinds.items()}
        self._strongest = _usual(strongest, SCRAM_MECHANISMS[0])

    def _log_refused(self, refused: set[tuple[str, Mechanism]]) -> None:
        """Names each once, as long as it stays."""
        new = sorted(refused - self._refused)
        self._refused = refused
        if new:
            logger.warning(
                "%d users' credentials admit no one, since they cannot be read or do not have %d to %d "
                "iterations; set their passwords again: %s%s",
                len(new),
                ITERATIONS_MIN,
                ITERATIONS_MAX,
                ", ".join(f"{mechanism} of {user!r}" for user, mechanism in new[:_REFUSED_SHOWN]),
                "" if len(new) <= _REFUSED_SHOWN else ", ...",
            )

    def _on_change(self, _path: str) -> None:
        self._refresher.ask()


def _usual(kinds: Counter[Kind], mechanism: Mechanism) -> Mapping[Kind, int]:
    """The most frequent ones; the weakest of the mechanism if there are none."""
    return dict(kinds.most_common(_KINDS_MAX)) or {(mechanism, ITERATIONS_MIN): 1}


def _served(config: Mapping[str, str]) -> dict[Mechanism, ScramCredential]:
    """The credentials that admit their user."""
    return {
        mechanism: credential
        for mechanism, credential in credentials_in(config).items()
        if ITERATIONS_MIN <= credential.iterations <= ITERATIONS_MAX
    }
