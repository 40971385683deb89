"""Chooses the next request of a history from what its clients know: mostly what they would do, sometimes what they must not."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

TOPICS: Final[Mapping[str, int]] = {"t": 3, "u": 2}
"""Partitions, by name."""
JOINS: Final = 0
LEAVES: Final = -1
LEAVES_FOR_A_WHILE: Final = -2
UNCHANGED: Final = -1
REBALANCE_MS: Final = 600_000
_SUBSCRIPTIONS: Final = (("t",), ("u",), ("t", "u"), ("t", "missing"))
_ASSIGNORS: Final = (None, "uniform", "range")
_ORDINARY: Final = 0.85


@dataclass(slots=True, kw_only=True)
class Client:
    """A consumer of the script, as far as it knows of its membership."""

    name: str
    instance: str | None
    assignor: str | None
    incarnation: int = 0
    epoch: int = JOINS
    topics: tuple[str, ...] = ("t",)

    @property
    def member(self) -> str:
        return f"{self.name}{self.incarnation}"

    def restart(self) -> None:
        """Begins as another process."""
        self.incarnation += 1
        self.epoch = JOINS


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One request of one client."""

    number: int
    client: str
    api: str
    version: int
    values: Mapping[str, Any]
    owned: str = "nothing said"
    """Which partitions a heartbeat names: nothing said, none, all that its client has, or some of them."""
    is_odd: bool = False

    def __str__(self) -> str:
        odd = "odd " if self.is_odd else ""
        return (
            f"{self.number}: {odd}{self.api} v{self.version} owns {self.owned} {dict(self.values)}"
        )


@dataclass(slots=True)
class Chooser:
    """One group and its clients. The same seed and the same answers give the same steps."""

    group: str
    choices: random.Random
    clients: list[Client] = field(default_factory=list)
    number: int = 0
    commits: int = 0

    def __post_init__(self) -> None:
        assignor = self.choices.choice(_ASSIGNORS)
        self.clients = [
            Client(name=name, instance=instance, assignor=assignor)
            for name, instance in (("a", None), ("b", None), ("c", None), ("s", "i"), ("z", "i"))
        ]

    def next(self) -> Step:
        """Choose one request."""
        client = self.choices.choice(self.clients)
        if self.choices.random() > _ORDINARY:
            return self._odd(client)
        if client.epoch == JOINS:
            return self.join(client)
        kinds = [self._report] * 6 + [self._beat] * 2 + [self._commit] * 2
        kinds += [self._fetch, self._subscribe, self._leave]
        return self.choices.choice(kinds)(client)

    # --- what a client does that behaves

    def join(self, client: Client, **changed: Any) -> Step:
        """Join, for some topics."""
        client.topics = self.choices.choice(_SUBSCRIPTIONS)
        return self._heartbeat(client, owned="none", **self._everything(client), **changed)

    def _everything(self, client: Client) -> dict[str, Any]:
        return {
            "rebalance_timeout": REBALANCE_MS,
            "subscribed_topic_names": list(client.topics),
            "server_assignor": client.assignor,
        }

    def _report(self, client: Client) -> Step:
        """Say what it has, and perhaps everything else."""
        everything = self._everything(client) if self.choices.random() < 0.3 else {}
        return self._heartbeat(client, owned="all", **everything)

    def _beat(self, client: Client) -> Step:
        return self._heartbeat(client)

    def _subscribe(self, client: Client) -> Step:
        client.topics = self.choices.choice(_SUBSCRIPTIONS)
        return self._heartbeat(client, owned="all", subscribed_topic_names=list(client.topics))

    def _leave(self, client: Client) -> Step:
        epoch = LEAVES
        if client.instance and self.choices.random() < 0.5:
            epoch = LEAVES_FOR_A_WHILE
        step = self._heartbeat(client, member_epoch=epoch)
        client.restart()
        return step

    def _commit(self, client: Client, **changed: Any) -> Step:
        self.commits += 1
        topic = self.choices.choice(tuple(TOPICS))
        row = {
            "partition_index": self.choices.randrange(TOPICS[topic]),
            "committed_offset": self.commits,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        values = {
            "generation_id_or_member_epoch": client.epoch,
            "member_id": client.member,
            "group_instance_id": client.instance,
            "topics": [{"name": topic, "partitions": [row]}],
        }
        return self._step(client, "offset_commit", 9, {**values, **changed})

    def _fetch(self, client: Client, **changed: Any) -> Step:
        group = {
            "group_id": self.group,
            "topics": [
                {"name": name, "partition_indexes": [*range(TOPICS[name])]} for name in TOPICS
            ],
            "member_id": client.member,
            "member_epoch": client.epoch,
            **changed,
        }
        return self._step(client, "offset_fetch", 9, {"groups": [group], "require_stable": True})

    # --- what it must not do

    def _odd(self, client: Client) -> Step:
        kinds = [self._odd_heartbeat] * 4 + [self._odd_commit, self._odd_fetch]
        return self.choices.choice(kinds)(client)

    def _odd_heartbeat(self, client: Client) -> Step:
        changed: dict[str, Any] = self.choices.choice(
            (
                {"member_id": "nobody"},
                {"member_id": ""},
                {"member_epoch": JOINS},
                {"member_epoch": max(client.epoch - 1, 1)},
                {"owned": "none"},
                {"owned": "some"},
                {"member_epoch": client.epoch + 1},
                {"member_epoch": client.epoch + 7},
                {"member_epoch": -3},
                {"member_epoch": LEAVES_FOR_A_WHILE, "instance_id": None},
                {"instance_id": ""},
                {"instance_id": "unknown"},
                {"rack_id": ""},
                {"server_assignor": "unheard"},
                {"subscribed_topic_regex": "("},
                {"member_epoch": JOINS, "member_id": "late", "owned": "some"},
                {"member_epoch": JOINS, "member_id": "late", "subscribed_topic_names": None},
                {"member_epoch": JOINS, "member_id": "late", "rebalance_timeout": -1},
                {"member_epoch": LEAVES, "member_id": "nobody"},
            )
        )
        owned = changed.get("owned", "none" if changed.get("member_epoch") == JOINS else "all")
        is_full = owned == "none" and changed.get("member_epoch") == JOINS
        values = {
            **(self._everything(client) if is_full or self.choices.random() < 0.5 else {}),
            **{key: value for key, value in changed.items() if key != "owned"},
        }
        return self._heartbeat(client, owned=owned, is_odd=True, **values)

    def _odd_commit(self, client: Client) -> Step:
        changed: dict[str, Any] = self.choices.choice(
            (
                {"member_id": "nobody"},
                {"generation_id_or_member_epoch": client.epoch + 1},
                {"generation_id_or_member_epoch": max(client.epoch - 1, 1)},
                {"generation_id_or_member_epoch": -1, "member_id": ""},
            )
        )
        return self._commit(client, **changed)

    def _odd_fetch(self, client: Client) -> Step:
        changed: dict[str, Any] = self.choices.choice(
            ({"member_id": "nobody"}, {"member_epoch": client.epoch + 1})
        )
        return self._fetch(client, **changed)

    # --- how a step is made

    def _heartbeat(
        self, client: Client, *, owned: str = "nothing said", is_odd: bool = False, **changed: Any
    ) -> Step:
        values = {
            "member_id": client.member,
            "member_epoch": client.epoch,
            "instance_id": client.instance,
            "rack_id": None,
            "rebalance_timeout": UNCHANGED,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            **changed,
        }
        return self._step(client, "consumer_group_heartbeat", 1, values, owned=owned, is_odd=is_odd)

    def describe(self) -> Step:
        """Ask for everything that is known of the group, after each step."""
        values = {"group_ids": [self.group], "include_authorized_operations": False}
        return Step(number=0, client="x", api="consumer_group_describe", version=1, values=values)

    def _step(
        self, client: Client, api: str, version: int, values: Mapping[str, Any], **more: Any
    ) -> Step:
        self.number += 1
        values = {"group_id": self.group, **values}
        return Step(
            number=self.number,
            client=client.name,
            api=api,
            version=version,
            values=values,
            **more,
        )
