"""Raw requests around offsets that are committed in transactions, and what a broker answers: a line for each.

A story is given a `Stage`, which keeps it apart from other stories by the names of its groups and ids. Requests are made
by hand, so that they may also come in an order that no client library would use.
"""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from echoless.protocol.errors import ErrorCode
from tests.support.raw_client import RawConnection, message, nested

TOPIC: Final = "inputs"
PARTITIONS: Final = 3
_PATIENCE_S: Final = 120.0
_AGAIN: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
"""Codes that say nothing but "ask again"."""
_TIMEOUT: Final = datetime.timedelta(seconds=60)


class Identity(NamedTuple):
    """A transactional id, with what InitProducerId has answered."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Stage:
    """One connection to a broker that coordinates everything, and the lines so far."""

    def __init__(self, connection: RawConnection, name: str) -> None:
        self._connection = connection
        self._name = name
        self.lines: list[str] = []

    def named(self, name: str) -> str:
        """A name that no other story uses."""
        return f"{self._name}-{name}" if name else ""

    def say(self, what: str, found: object) -> None:
        """Adds a line."""
        self.lines.append(f"{what}: {found}")

    async def _ask(
        self, api: str, version: int, code_of: Callable[[Any], int], **fields: Any
    ) -> Any:
        """Sends a request until it is answered with more than "again"."""
        end = time.monotonic() + _PATIENCE_S
        while True:
            response = await self._connection.call(api, version, **fields)
            if ErrorCode(int(code_of(response))) not in _AGAIN or time.monotonic() > end:
                return response
            await asyncio.sleep(0.05)

    # --- transactions

    async def begin(self, name: str) -> Identity:
        """Initialises a transactional id; the group coordinator is there as well after it."""
        for kind, key in ((0, self.named("g")), (1, self.named(name))):
            await self._ask("find_coordinator", 2, _top_code, key=key, key_type=kind)
        response = await self._ask(
            "init_producer_id",
            4,
            _top_code,
            transactional_id=self.named(name),
            transaction_timeout=_TIMEOUT,
            producer_id=-1,
            producer_epoch=-1,
        )
        assert not response.error_code, response
        return Identity(self.named(name), int(response.producer_id), int(response.producer_epoch))

    async def add(self, identity: Identity, group: str = "g", version: int = 3) -> None:
        """AddOffsetsToTxn."""
        response = await self._ask(
            "add_offsets_to_txn",
            version,
            _top_code,
            **identity._asdict(),
            group_id=self.named(group),
        )
        self.say(f"add v{version} {group}", _code(response.error_code))

    async def commit(
        self,
        identity: Identity,
        offsets: Mapping[int, int],
        *,
        group: str = "g",
        version: int = 3,
        topic: str = TOPIC,
        metadata: str = "",
        member: tuple[int, str, str | None] = (-1, "", None),
    ) -> None:
        """TxnOffsetCommit; `member`: generation, member id and instance id."""
        fields = self.fields(
            identity,
            self.named(group),
            offsets,
            version=version,
            topic=topic,
            metadata=metadata,
            member=member,
        )
        response = await self._ask(
            "txn_offset_commit",
            version,
            lambda answer: answer.topics[0].partitions[0].error_code,
            **fields,
        )
        codes = {
            int(one.partition_index): _code(one.error_code) for one in response.topics[0].partitions
        }
        self.say(f"commit v{version} {topic} {dict(offsets)}", dict(sorted(codes.items())))

    @staticmethod
    def fields(
        identity: Identity,
        group_id: str,
        offsets: Mapping[int, int],
        *,
        version: int = 3,
        topic: str = TOPIC,
        metadata: str = "",
        member: tuple[int, str, str | None] = (-1, "", None),
    ) -> dict[str, Any]:
        """The fields of a TxnOffsetCommit."""
        row = nested("txn_offset_commit", version, "TxnOffsetCommitRequestPartition")
        epochs = {"committed_leader_epoch": -1} if version >= 2 else {}
        rows = [
            row(
                partition_index=index,
                committed_offset=offset,
                committed_metadata=metadata,
                **epochs,
            )
            for index, offset in offsets.items()
        ]
        named = nested("txn_offset_commit", version, "TxnOffsetCommitRequestTopic")
        fields = dict(zip(("generation_id", "member_id", "group_instance_id"), member, strict=True))
        return {
            **identity._asdict(),
            "group_id": group_id,
            "topics": (named(name=topic, partitions=tuple(rows)),),
            **(fields if version >= 3 else {}),
        }

    async def end(self, identity: Identity, *, is_commit: bool, version: int = 3) -> None:
        """EndTxn."""
        response = await self._ask(
            "end_txn", version, _top_code, **identity._asdict(), committed=is_commit
        )
        self.say(f"end v{version} {'commit' if is_commit else 'abort'}", _code(response.error_code))

    # --- groups

    async def commit_plainly(self, offsets: Mapping[int, int], group: str = "g") -> None:
        """OffsetCommit of no member."""
        row = nested("offset_commit", 8, "OffsetCommitRequestPartition")
        rows = tuple(
            row(partition_index=index, committed_offset=offset, committed_metadata="")
            for index, offset in offsets.items()
        )
        named = nested("offset_commit", 8, "OffsetCommitRequestTopic")
        response = await self._ask(
            "offset_commit",
            8,
            lambda answer: answer.topics[0].partitions[0].error_code,
            group_id=self.named(group),
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=(named(name=TOPIC, partitions=rows),),
        )
        codes = [_code(one.error_code) for one in response.topics[0].partitions]
        self.say(f"commit plainly {dict(offsets)}", codes)

    async def offsets(self, group: str, *, stable: bool, every: bool = False) -> dict[int, Any]:
        """OffsetFetch of all partitions; `every`: of all that the group has."""
        named = nested("offset_fetch", 7, "OffsetFetchRequestTopic")
        topics = (named(name=TOPIC, partition_indexes=tuple(range(PARTITIONS))),)
        response = await self._ask(
            "offset_fetch",
            7,
            _top_code,
            group_id=self.named(group),
            topics=None if every else topics,
            require_stable=stable,
        )
        return {
            int(one.partition_index): _code(one.error_code)
            if one.error_code
            else int(one.committed_offset)
            for topic in response.topics
            for one in topic.partitions
        }

    async def fetch(self, group: str = "g", *, every: bool = False) -> None:
        """Says what readers of both kinds see."""
        seen = await self.offsets(group, stable=False, every=every)
        self.say("fetch", dict(sorted(seen.items())))
        seen = await self.offsets(group, stable=True, every=every)
        self.say("fetch stable", dict(sorted(seen.items())))

    async def fetch_until(self, wanted: Mapping[int, int], group: str = "g") -> None:
        """Waits until readers see these offsets, some of them perhaps unstable."""
        end = time.monotonic() + _PATIENCE_S
        while not wanted.items() <= (await self.offsets(group, stable=False)).items():
            assert time.monotonic() < end, f"{group} does not show {wanted}"
            await asyncio.sleep(0.05)

    async def settled(self, group: str = "g") -> None:
        """Waits until nothing is unstable, then says what readers see."""
        unstable = _code(ErrorCode.UNSTABLE_OFFSET_COMMIT)
        end = time.monotonic() + _PATIENCE_S
        while unstable in (await self.offsets(group, stable=True)).values():
            assert time.monotonic() < end, f"{group} is unstable for ever"
            await asyncio.sleep(0.05)
        await self.fetch(group)

    async def join(self, group: str = "g") -> tuple[int, str]:
        """A member of its own, alone in a stable generation: generation and member id."""
        member_id, generation_id = "", -1
        protocol = nested("join_group", 5, "JoinGroupRequestProtocol")(name="range", metadata=b"")
        for _ in range(2):  # its id first
            response = await self._ask(
                "join_group",
                5,
                _top_code,
                group_id=self.named(group),
                session_timeout=datetime.timedelta(seconds=30),
                rebalance_timeout=datetime.timedelta(seconds=30),
                member_id=member_id,
                group_instance_id=None,
                protocol_type="consumer",
                protocols=(protocol,),
            )
            member_id, generation_id = response.member_id, int(response.generation_id)
        given = nested("sync_group", 3, "SyncGroupRequestAssignment")
        response = await self._ask(
            "sync_group",
            3,
            _top_code,
            group_id=self.named(group),
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=None,
            assignments=(given(member_id=member_id, assignment=b""),),
        )
        assert not response.error_code, response
        return generation_id, member_id

    async def delete_offsets(self, indexes: Iterable[int], group: str = "g") -> None:
        """OffsetDelete."""
        row = nested("offset_delete", 0, "OffsetDeleteRequestPartition")
        named = nested("offset_delete", 0, "OffsetDeleteRequestTopic")
        rows = tuple(row(partition_index=index) for index in indexes)
        response = await self._ask(
            "offset_delete",
            0,
            _top_code,
            group_id=self.named(group),
            topics=(named(name=TOPIC, partitions=rows),),
        )
        found = [_code(one.error_code) for topic in response.topics for one in topic.partitions]
        self.say("delete offsets", found or _code(response.error_code))

    async def delete_group(self, group: str = "g") -> None:
        """DeleteGroups."""
        response = await self._ask(
            "delete_groups",
            2,
            lambda answer: answer.results[0].error_code,
            groups_names=(self.named(group),),
        )
        self.say("delete group", _code(response.results[0].error_code))


def _top_code(response: Any) -> int:
    return int(getattr(response, "error_code", 0))


def _code(code: int) -> str:
    return ErrorCode(int(code)).name


# --- stories


async def a_commit_shows_offsets(stage: Stage) -> None:
    one = await stage.begin("t")
    await stage.add(one)
    await stage.commit(one, {0: 5, 1: 6})
    await stage.fetch()
    await stage.end(one, is_commit=True)
    await stage.settled()


async def an_abort_drops_offsets(stage: Stage) -> None:
    one = await stage.begin("t")
    await stage.commit_plainly({0: 3})
    await stage.add(one)
    await stage.commit(one, {0: 5, 1: 6})
    await stage.fetch()
    await stage.end(one, is_commit=False)
    await stage.settled()
    await stage.add(one)
    await stage.commit(one, {0: 7})
    await stage.end(one, is_commit=True)
    await stage.settled()


async def the_last_commit_of_a_transaction_counts(stage: Stage) -> None:
    one = await stage.begin("t")
    await stage.add(one)
    await stage.commit(one, {0: 9})
    await stage.commit(one, {0: 6, 1: 1})
    await stage.end(one, is_commit=True)
    await stage.settled()


async def old_versions_commit(stage: Stage) -> None:
    one = await stage.begin("t")
    for version in (0, 1, 2):
        await stage.add(one, version=version)
        await stage.commit(one, {version: version}, version=version)
        await stage.end(one, is_commit=True, version=version)
        await stage.settled()


async def the_partition_must_have_been_added(stage: Stage) -> None:
    one = await stage.begin("t")
    for version in (0, 2, 3, 4):
        await stage.commit(one, {0: 5}, version=version)
    await stage.add(one)
    await stage.commit(one, {0: 5}, version=4)
    await stage.end(one, is_commit=True)
    await stage.settled()
    await stage.commit(one, {0: 8})
    await stage.commit(one, {0: 8}, version=4)
    await stage.fetch()


async def an_older_epoch_is_fenced(stage: Stage) -> None:
    one = await stage.begin("t")
    await stage.add(one)
    await stage.commit(one, {0: 5})
    two = await stage.begin("t")
    for version in (1, 3):
        await stage.add(one, version=version)
    for version in (1, 3, 4):
        await stage.commit(one, {0: 6}, version=version)
    for version in (1, 3):
        await stage.end(one, is_commit=True, version=version)
    await stage.settled()
    await stage.add(two)
    await stage.commit(two, {0: 7})
    await stage.end(two, is_commit=True)
    await stage.settled()


async def a_later_epoch_is_fenced(stage: Stage) -> None:
    one = await stage.begin("t")
    later = one._replace(producer_epoch=one.producer_epoch + 1)
    await stage.add(one)
    await stage.add(later)
    await stage.commit(later, {0: 5})
    await stage.commit(one, {0: 5})
    await stage.end(one, is_commit=False)
    await stage.settled()


async def another_producer_id_is_refused(stage: Stage) -> None:
    one = await stage.begin("t")
    other = one._replace(producer_id=one.producer_id + 1_000_000)
    await stage.add(other)
    await stage.commit(other, {0: 5})
    await stage.commit(one._replace(transactional_id="nobody"), {0: 5})
    await stage.commit(other, {0: 5}, version=4)
    await stage.end(other, is_commit=True)


async def a_member_is_checked_if_it_is_named(stage: Stage) -> None:
    one = await stage.begin("t")
    await stage.add(one)
    generation_id, member_id = await stage.join()
    await stage.commit(one, {0: 1}, member=(generation_id, member_id, None))
    await stage.commit(one, {1: 2})
    await stage.commit(one, {1: 3}, member=(generation_id + 1, member_id, None))
    await stage.commit(one, {1: 3}, member=(generation_id, "stranger", None))
    await stage.commit(one, {1: 3}, member=(generation_id, "", None))
    await stage.commit(one, {1: 3}, member=(-1, member_id, None))
    await stage.commit(one, {1: 3}, member=(generation_id, member_id, "instance"))
    await stage.end(one, is_commit=True)
    await stage.settled()


async def a_group_that_is_not_there(stage: Stage) -> None:
    one = await stage.begin("t")
    await stage.add(one, "new")
    await stage.commit(one, {0: 1}, group="new", member=(3, "member", None))
    await stage.commit(one, {0: 1}, group="new", member=(-1, "member", None))
    await stage.commit(one, {1: 2}, group="new")
    await stage.end(one, is_commit=True)
    await stage.settled("new")


async def a_refused_commit_leaves_the_transaction(stage: Stage) -> None:
    one = await stage.begin("t")
    await stage.add(one)
    await stage.commit(one, {0: 1})
    await stage.commit(one, {1: 2}, metadata="m" * 5_000)
    await stage.commit(one, {0: 2, 7: 2})
    await stage.commit(one, {0: 2}, topic="missing")
    await stage.fetch()
    await stage.end(one, is_commit=True)
    await stage.settled()


async def transactions_end_in_another_order(stage: Stage) -> None:
    one, two = await stage.begin("t"), await stage.begin("u")
    for identity, offset in ((one, 1), (two, 2)):
        await stage.add(identity)
        await stage.commit(identity, {0: offset, 1: offset})
    await stage.commit_plainly({1: 3})
    await stage.end(two, is_commit=True)
    await stage.fetch_until({0: 2, 1: 3})
    await stage.fetch()
    await stage.end(one, is_commit=True)
    await stage.settled()


async def a_plain_commit_precedes_what_was_pending(stage: Stage) -> None:
    one = await stage.begin("t")
    await stage.add(one)
    await stage.commit(one, {0: 5})
    await stage.commit_plainly({0: 9})
    await stage.fetch()
    await stage.end(one, is_commit=True)
    await stage.settled()


async def offsets_are_deleted_under_a_transaction(stage: Stage) -> None:
    one = await stage.begin("t")
    await stage.commit_plainly({0: 1, 2: 1})
    await stage.add(one)
    await stage.commit(one, {0: 5, 1: 6})
    await stage.delete_offsets((0, 1))
    await stage.fetch()
    await stage.end(one, is_commit=True)
    await stage.settled()


async def a_group_is_deleted_under_a_transaction(stage: Stage) -> None:
    one = await stage.begin("t")
    await stage.commit_plainly({0: 1})
    await stage.add(one)
    await stage.commit(one, {0: 5, 1: 6})
    await stage.delete_group()
    await stage.fetch()
    await stage.end(one, is_commit=True)
    await stage.settled()


async def all_offsets_of_a_group(stage: Stage) -> None:
    one = await stage.begin("t")
    await stage.commit_plainly({0: 1, 1: 1})
    await stage.add(one)
    await stage.commit(one, {1: 5, 2: 5})
    await stage.fetch(every=True)
    await stage.end(one, is_commit=True)
    await stage.settled()
    await stage.fetch(every=True)


async def one_transaction_in_two_groups(stage: Stage) -> None:
    one = await stage.begin("t")
    for group, offset in (("g", 1), ("h", 2)):
        await stage.add(one, group)
        await stage.commit(one, {0: offset}, group=group)
    await stage.end(one, is_commit=True)
    await stage.settled()
    await stage.settled("h")


STORIES: Final[Mapping[str, Callable[[Stage], Awaitable[None]]]] = {
    story.__name__: story
    for story in (
        a_commit_shows_offsets,
        an_abort_drops_offsets,
        the_last_commit_of_a_transaction_counts,
        old_versions_commit,
        the_partition_must_have_been_added,
        an_older_epoch_is_fenced,
        a_later_epoch_is_fenced,
        another_producer_id_is_refused,
        a_member_is_checked_if_it_is_named,
        a_group_that_is_not_there,
        a_refused_commit_leaves_the_transaction,
        transactions_end_in_another_order,
        a_plain_commit_precedes_what_was_pending,
        offsets_are_deleted_under_a_transaction,
        a_group_is_deleted_under_a_transaction,
        all_offsets_of_a_group,
        one_transaction_in_two_groups,
    )
}


async def told(connection: RawConnection, name: str) -> list[str]:
    """The lines of a story."""
    stage = Stage(connection, name)
    await STORIES[name](stage)
    return stage.lines


async def serves_offsets_in_transactions(connection: RawConnection) -> bool:
    """Whether the broker announces TxnOffsetCommit."""
    response = await connection.call(
        "api_versions", 3, client_software_name="raw", client_software_version="1"
    )
    key = int(message("txn_offset_commit", 3, "Request").__api_key__)
    return any(int(one.api_key) == key for one in response.api_keys)
