"""Chooses the next step of a history from what its clients know: mostly what they would do, sometimes what they must not."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.oracle.groups.asker import NOBODY
from tests.oracle.groups.step import Request
from tests.oracle.messages import Plain

TOPICS: Final = ("t", "u")
MISSING_TOPIC: Final = "missing"
LONG_MS: Final = 600_000
SHORT_MS: Final = 3_000
_VERSIONS: Final = {
    "join_group": (0, 9),
    "sync_group": (0, 5),
    "heartbeat": (0, 4),
    "leave_group": (0, 5),
    "offset_commit": (2, 9),
    "offset_fetch": (1, 9),
    "offset_delete": (0, 0),
    "delete_groups": (0, 2),
    "describe_groups": (0, 5),
    "list_groups": (0, 5),
    "find_coordinator": (0, 6),
}
"""Versions that Kafka 3.9 and Echoless both serve."""
_JOIN_WITH_INSTANCE: Final = 5
_JOIN_WITH_ID_FIRST: Final = 4
_ORDINARY: Final = 0.85
MEMBER_ID_REQUIRED: Final = 79
UNKNOWN_MEMBER_ID: Final = 25
ILLEGAL_GENERATION: Final = 22
REBALANCE_IN_PROGRESS: Final = 27
FENCED_INSTANCE_ID: Final = 82


@dataclass(slots=True, kw_only=True)
class Client:
    """A client of the script, as far as it knows of its membership."""

    name: str
    instance: str | None
    session_ms: int
    member: str = ""
    generation: int = -1
    protocol: str = ""
    others: Sequence[str] = ()
    """The members that it has to assign to: it leads."""
    must_join: bool = True
    must_sync: bool = False
    waits_for: int | None = None
    subscription: int = 0
    is_pending: bool = False
    """It was given an id to join with, and has not joined with it yet."""
    is_silent: bool = False
    """It sends no heartbeat any more, and is to be forgotten."""

    @property
    def is_in_first_join(self) -> bool:
        """It has an id, and waits to be given a generation for the first time."""
        return bool(self.member) and self.waits_for is not None and self.generation < 0


@dataclass(slots=True)
class Chooser:
    """One group and its clients. The same seed and the same answers give the same steps."""

    group: str
    choices: random.Random
    is_mortal: bool
    """Sessions are short: silent members are forgotten within the history."""
    clients: list[Client] = field(default_factory=list)
    number: int = 0
    commits: int = 0

    def __post_init__(self) -> None:
        self.clients = [
            Client(
                name=name,
                instance=instance,
                session_ms=SHORT_MS if self.is_mortal else LONG_MS,
                subscription=self.choices.randrange(3),
            )
            for name, instance in (("a", None), ("b", None), ("s", "i"), ("z", "i"))
        ]

    def next(self) -> Request:
        """Choose one request that its client can send now."""
        free = [client for client in self.clients if client.waits_for is None]
        pending = [one for one in free if one.is_pending]
        if pending and self.is_mortal:
            return self._join(pending[0])
        client = self.choices.choice(free or self.clients)
        if client.waits_for is not None:
            return self._aside(client)
        if self.choices.random() < _ORDINARY:
            return self._ordinary(client)
        return self._odd(client)

    def client_of(self, step: Request) -> Client | None:
        """The client that makes the request; None if it comes from outside the group."""
        return next((one for one in self.clients if one.name == step.client), None)

    def asked(self, step: Request) -> None:
        """Notes that its client waits for the answer, if that may take long."""
        client = self.client_of(step)
        if client is not None and step.api in {"join_group", "sync_group"}:
            client.waits_for = step.number

    def heard(self, step: Request, answer: Plain) -> None:
        """Let the client that asked know of the answer."""
        client = self.client_of(step)
        if client is None:
            return
        if client.waits_for == step.number:
            client.waits_for = None
        if "no answer" in answer or (step.note and answer.get("error_code", -1)):
            return
        if step.api == "join_group":
            self._joined(client, answer)
        elif step.api == "sync_group":
            self._code(client, answer["error_code"])
            client.must_sync = False
        elif step.api == "heartbeat":
            self._code(client, answer["error_code"])
        elif step.api == "leave_group" and not step.note:
            self._forget(client)

    def _joined(self, client: Client, answer: Plain) -> None:
        code = answer["error_code"]
        client.is_pending = False
        if code == 0:
            client.member, client.generation = answer["member_id"], answer["generation_id"]
            client.protocol, client.must_join, client.must_sync = (
                answer["protocol_name"],
                False,
                True,
            )
            client.others = [one["member_id"] for one in answer["members"]]
        elif code == MEMBER_ID_REQUIRED:
            client.member, client.is_pending = answer["member_id"], True
        else:
            self._code(client, code)

    def _code(self, client: Client, code: int) -> None:
        if code in {ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS}:
            client.must_join = True
        elif code in {UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID}:
            self._forget(client)

    @staticmethod
    def _forget(client: Client) -> None:
        client.member, client.generation, client.others = "", -1, ()
        client.must_join, client.must_sync = True, False

    # --- what a client does that behaves

    def _ordinary(self, client: Client) -> Request:
        if client.must_join:
            return self._join(client)
        if client.must_sync:
            return self._sync(client)
        kinds = [
            self._heartbeat,
            self._commit,
            self._commit,
            self._fetch,
            self._leave,
            self._rejoin,
        ]
        if client.instance:
            kinds.append(self._restart)
        return self.choices.choice(kinds)(client)

    def _join(self, client: Client, **changed: Any) -> Request:
        lowest = _JOIN_WITH_INSTANCE if client.instance else 0
        version = self._version("join_group", lowest)
        values = {
            "session_timeout": client.session_ms,
            "rebalance_timeout": LONG_MS,
            "member_id": client.member,
            "group_instance_id": client.instance,
            "protocol_type": "consumer",
            "protocols": _protocols(client.subscription),
            "reason": "a history",
        }
        return self._step(client, "join_group", version, {**values, **changed})

    def _rejoin(self, client: Client) -> Request:
        """Join again, perhaps for other topics."""
        client.subscription = self.choices.randrange(3)
        client.must_join = True
        return self._join(client)

    def _restart(self, client: Client) -> Request:
        """Come back as another process with the same instance id."""
        self._forget(client)
        return self._join(client)

    def _sync(self, client: Client, **changed: Any) -> Request:
        values = {
            "generation_id": client.generation,
            "member_id": client.member,
            "group_instance_id": client.instance,
            "protocol_type": "consumer",
            "protocol_name": client.protocol,
            "assignments": [
                {"member_id": one, "assignment": f"{client.generation} {place}".encode()}
                for place, one in enumerate(sorted(client.others))
            ],
        }
        lowest = 3 if client.instance else 0
        return self._step(
            client, "sync_group", self._version("sync_group", lowest), {**values, **changed}
        )

    def _heartbeat(self, client: Client, **changed: Any) -> Request:
        return self._step(
            client,
            "heartbeat",
            self._version("heartbeat", 3 if client.instance else 0),
            {**self._membership(client), **changed},
        )

    def _leave(self, client: Client, **changed: Any) -> Request:
        version = self._version("leave_group", 3 if client.instance else 0)
        member = {
            "member_id": client.member,
            "group_instance_id": client.instance,
            "reason": "enough",
            **changed,
        }
        values = {"members": [member]} if version >= 3 else {"member_id": member["member_id"]}
        return self._step(client, "leave_group", version, values)

    def _commit(self, client: Client, **changed: Any) -> Request:
        version = self._version("offset_commit", 7 if client.instance else 2)
        membership = self._membership(client)
        values = {
            "generation_id_or_member_epoch": membership.pop("generation_id"),
            **membership,
            "retention_time": -1,
            "topics": self._offsets(),
        }
        return self._step(client, "offset_commit", version, {**values, **changed})

    def _offsets(self) -> list[Plain]:
        topics = []
        for name in self.choices.sample(TOPICS, self.choices.randrange(1, 3)):
            rows = []
            for index in self.choices.sample(range(2), self.choices.randrange(1, 3)):
                self.commits += 1
                rows.append(
                    {
                        "partition_index": index,
                        "committed_offset": self.commits,
                        "committed_leader_epoch": self.choices.choice((-1, 0, 5)),
                        "committed_metadata": self.choices.choice((None, "", "é note")),
                    }
                )
            topics.append({"name": name, "partitions": rows})
        return topics

    def _fetch(self, client: Client) -> Request:
        return self.fetch_all(client.name)

    def fetch_all(self, client: str) -> Request:
        """Ask for the committed offsets of every partition."""
        version = self._version("offset_fetch", 1)
        topics = [{"name": name, "partition_indexes": [0, 1]} for name in TOPICS]
        if version >= 2 and self.choices.random() < 0.5:
            topics = None  # type: ignore[assignment] # all
        values: dict[str, Plain] = {"topics": topics, "require_stable": True}
        if version >= 8:
            group = {"group_id": self.group, "topics": topics, "member_id": None}
            values = {"groups": [group | {"member_epoch": -1}], "require_stable": True}
        return self._named_step(client, "offset_fetch", version, values)

    def _membership(self, client: Client) -> dict[str, Plain]:
        return {
            "generation_id": client.generation,
            "member_id": client.member,
            "group_instance_id": client.instance,
        }

    # --- what it must not do, and what others do

    def _odd(self, client: Client) -> Request:
        kinds = [
            self._odd_membership,
            self._odd_join,
            self._odd_sync,
            self._odd_commit,
            self._aside,
        ]
        return self.choices.choice(kinds)(client)

    def _odd_membership(self, client: Client) -> Request:
        """Somebody else's id, an old or future generation, an instance id that is not one's own."""
        other = self.choices.choice([one for one in self.clients if one is not client])
        changed: dict[str, Plain] = self.choice_of(
            {"member_id": NOBODY},
            {"member_id": ""},
            {"member_id": other.member},
            {"group_instance_id": "i"},
            {"group_instance_id": "unknown"},
            {"generation_id": client.generation - 1},
            {"generation_id": client.generation + 1},
        )
        make = self.choices.choice((self._heartbeat, self._leave, self._odd_commit))
        if make == self._odd_commit:
            if "generation_id" in changed:
                changed = {"generation_id_or_member_epoch": changed["generation_id"]}
            return _odd(self._commit(client, **changed))
        if make == self._leave:
            changed.pop("generation_id", None)
        return _odd(make(client, **changed))

    def _odd_join(self, client: Client) -> Request:
        changed: dict[str, Plain] = self.choice_of(
            {"session_timeout": 10},
            {"session_timeout": 10_000_000},
            {"protocol_type": "connect"},
            {"protocols": []},
            {"protocol_type": ""},
            {"protocols": [{"name": "unheard", "metadata": b""}]},
            {"member_id": NOBODY},
        )
        return _odd(self._join(client, **changed))

    def _odd_sync(self, client: Client) -> Request:
        changed: dict[str, Plain] = self.choice_of(
            {"generation_id": client.generation - 1},
            {"generation_id": client.generation + 1},
            {"member_id": NOBODY},
            {"protocol_type": "connect"},
            {"protocol_name": "unheard"},
            {"protocol_name": None},
        )
        return _odd(self._sync(client, **changed))

    def _odd_commit(self, client: Client) -> Request:
        changed: dict[str, Plain] = self.choice_of(
            {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None},
            {"generation_id_or_member_epoch": -1},
            {"topics": []},
            {"topics": [_row(MISSING_TOPIC, 0, 1)]},
            {"topics": [_row("t", 99, 1)]},
            {"topics": [_row("t", 0, 1, "x" * 4097), _row("u", 0, 2)]},
            {"topics": [_row("t", 0, -5), _row("t", 1, 2**40)]},
            {"retention_time": LONG_MS * 60},
        )
        return _odd(self._commit(client, **changed))

    def _aside(self, client: Client) -> Request:
        """Ask what needs no membership."""
        kinds = [
            lambda: self.fetch_all("x"),
            lambda: self._named_step("x", "find_coordinator", *self._coordinator()),
            lambda: self._named_step(
                "x", "delete_groups", self._version("delete_groups"), {"groups_names": [self.group]}
            ),
            lambda: self._named_step(
                "x",
                "offset_delete",
                0,
                {
                    "topics": [
                        {"name": name, "partitions": [{"partition_index": 0}]}
                        for name in self.choices.sample((*TOPICS, MISSING_TOPIC), 2)
                    ]
                },
            ),
            lambda: self._heartbeat(client),
        ]
        return self.choices.choice(kinds)()

    def _coordinator(self) -> tuple[int, Plain]:
        version = self._version("find_coordinator")
        if version >= 4:
            return version, {"key_type": 0, "coordinator_keys": [self.group]}
        return version, {"key_type": 0, "key": self.group}

    def describe(self) -> Request:
        """Ask for everything that is known of the group, after each step."""
        values = {"groups": [self.group], "include_authorized_operations": False}
        return self._named_step("x", "describe_groups", 5, values)

    # --- how a step is made

    def choice_of(self, *options: dict[str, Plain]) -> dict[str, Plain]:
        """Choose one of the options."""
        return dict(self.choices.choice(options))

    def _version(self, api: str, lowest: int = 0) -> int:
        first, last = _VERSIONS[api]
        return self.choices.randint(max(first, lowest), last)

    def _step(self, client: Client, api: str, version: int, values: dict[str, Plain]) -> Request:
        return self._named_step(client.name, api, version, values)

    def _named_step(self, client: str, api: str, version: int, values: dict[str, Plain]) -> Request:
        self.number += 1
        return Request(
            number=self.number,
            client=client,
            api=api,
            version=version,
            values={"group_id": self.group, **values},
        )


def _odd(step: Request) -> Request:
    return Request(
        number=step.number,
        client=step.client,
        api=step.api,
        version=step.version,
        values=step.values,
        note="odd",
    )


def _row(topic: str, partition: int, offset: int, metadata: str = "") -> Plain:
    row = {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": metadata,
    }
    return {"name": topic, "partitions": [row]}


def _protocols(subscription: int) -> list[Plain]:
    """Protocols with one clear winner, for one or two topics."""
    topics = (("t",), ("u",), ("t", "u"))[subscription]
    names = b"".join(len(one).to_bytes(2, "big") + one.encode() for one in topics)
    metadata = b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\0\0\0\0"
    return [{"name": name, "metadata": metadata} for name in ("range", "roundrobin")]
