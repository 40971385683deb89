"""The session of a producer with the coordinator of its transactional id: one request at a time, each asked until answered.

| | first generation | second (KIP-890): the brokers announce `transaction.version` 2 |
|---|---|---|
| before the first batch in a partition | AddPartitionsToTxn | nothing: the leader adds it |
| before offsets | AddOffsetsToTxn | nothing: the group's coordinator adds them |
| an end | keeps the epoch | raises it |

The rules:
1. A request without an answer is sent again, to wherever the coordinator is by then, until `delivery_timeout_s`.
2. In the first generation a late copy of a request would count for the next transaction. So the session takes a new epoch
   (InitProducerId with its own) before that, and after each abort: the copy is fenced then.
   Invariant: in the first generation no transaction begins under an epoch of which a request may still be on its way.
3. An end is what the coordinator says it is. If it refuses a commit, but may have accepted an earlier copy of it, the
   outcome is unknown, and the error says so.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from echoless.client.cluster import Cluster, NoLeaderError
from echoless.client.coordinator import MOVED, TRANSACTIONAL_ID, Backoff, Coordinated, Coordinator
from echoless.client.produce_request import ProduceTerms
from echoless.client.sequenced_batch import Identity
from echoless.client.settings import Settings
from echoless.client.transactions.errors import (
    FENCED,
    AbortableError,
    UnansweredError,
    refusal,
)
from echoless.client.transactions.group_metadata import GroupMetadata
from echoless.protocol.errors import ErrorCode

_FEATURE: Final = "transaction.version"
_RAISES_EPOCH_FROM: Final = 2
_PRODUCE_MAX, _END_MAX, _OFFSETS_MAX = 11, 4, 4
"""The newest versions of the first generation."""
_FIRST_PAUSE_S: Final = 0.02
_PAUSE_MAX_S: Final = 1.0
_NO_IDENTITY: Final = Identity(-1, -1)
_GROUP: Final = Coordinated(0, "group", AbortableError)

_NOTHING_DONE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""Codes after which the request is sent again, and that prove that this copy of it had no effect."""
_AGAIN: Final = _NOTHING_DONE | {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
_FATAL: Final = FENCED | {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
_NOT_COMMITTED: Final = frozenset(
    {ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING}
)
"""Codes of a commit, or an abort, whose transaction is not open: its time was over."""
_IN_ITSELF_NO_FAILURE: Final = frozenset({ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED})

Codes = Callable[[Any], Iterable[Any]]


class TransactionalSession:
    """One session, from its InitProducerId on. Requests of several tasks wait for each other."""

    def __init__(self, cluster: Cluster, transactional_id: str, settings: Settings) -> None:
        self.transactional_id = transactional_id
        self.identity = _NO_IDENTITY
        """The producer id and epoch of the next batch that is sent."""
        self.raises_epoch = False
        """Whether it speaks the second generation of the protocol."""
        self._cluster = cluster
        self._settings = settings
        self._coordinator = self._coordinator_of(transactional_id, TRANSACTIONAL_ID)
        self._groups: dict[str, Coordinator] = {}
        self._lock = asyncio.Lock()
        self._has_late_copies = False
        """Whether a request had no answer: a copy of it may still arrive."""
        self._is_open_ended = False
        """Whether a copy of the last request may have had an effect that no answer has reported."""
        self._may_be_committed = False
        """Whether the coordinator may have accepted a commit of the open transaction."""
        self._lacks_epoch = False
        """Whether an abort has ended the transaction, and was not given its new epoch yet."""

    @property
    def terms(self) -> ProduceTerms:
        """The terms of its batches."""
        if self.raises_epoch:
            return ProduceTerms(self.transactional_id)
        return ProduceTerms(self.transactional_id, _PRODUCE_MAX)

    async def begin(self) -> None:
        """Begins the session: fences earlier ones, and has the coordinator end what they left open.

        Raises `TransactionError`.
        """
        await self._initialise(_NO_IDENTITY)
        self.raises_epoch = self._announced()

    async def begin_transaction(self) -> None:
        """Makes sure that nothing that was sent before can count for the next transaction. Raises `TransactionError`."""
        announced = self._announced()
        has_late_copies = self._has_late_copies and not self.raises_epoch
        if has_late_copies or announced != self.raises_epoch:
            await self._initialise(self.identity)
        self.raises_epoch = announced
        self._may_be_committed = False

    async def add_partitions(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Puts partitions into the transaction; first generation only. Raises `TransactionError`."""
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        for topic in topics:
            with contextlib.suppress(NoLeaderError):  # the look-up creates a topic that is missing
                await self._cluster.partition_count(topic)
        fields = {
            "v3_and_below_transactional_id": self.transactional_id,
            "v3_and_below_producer_id": self.identity.producer_id,
            "v3_and_below_producer_epoch": self.identity.producer_epoch,
            "v3_and_below_topics": [
                {"name": name, "partitions": some} for name, some in topics.items()
            ],
        }
        await self._join(self._coordinator, "add_partitions_to_txn", fields, _partition_codes)

    async def commit_offsets(
        self, offsets: Mapping[tuple[str, int], int], group: GroupMetadata, metadata: str
    ) -> None:
        """Has offsets committed with the transaction. Raises `TransactionError`."""
        session = {
            "transactional_id": self.transactional_id,
            "producer_id": self.identity.producer_id,
            "producer_epoch": self.identity.producer_epoch,
            "group_id": group.group_id,
        }
        if not self.raises_epoch:
            await self._join(self._coordinator, "add_offsets_to_txn", session, _error_code)
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, index), offset in offsets.items():
            row = {
                "partition_index": index,
                "committed_offset": offset,
                "committed_leader_epoch": -1,
                "committed_metadata": metadata,
            }
            topics.setdefault(topic, []).append(row)
        fields = {
            **session,
            "generation_id": group.generation,
            "member_id": group.member_id,
            "group_instance_id": group.instance_id,
            "topics": [{"name": name, "partitions": some} for name, some in topics.items()],
        }
        coordinator = self._groups.get(group.group_id)
        if coordinator is None:
            coordinator = self._groups[group.group_id] = self._coordinator_of(
                group.group_id, _GROUP
            )
        version_max = None if self.raises_epoch else _OFFSETS_MAX
        await self._join(coordinator, "txn_offset_commit", fields, _offset_codes, version_max)

    async def commit(self) -> None:
        """Commits. Raises `AbortableError`; `TransactionError`, which says whether it may be committed."""
        try:
            answer = await self._end(is_commit=True)
        finally:
            self._may_be_committed |= self._is_open_ended
        code = answer.error_code
        if not code.value:
            self._take_identity(answer)
            return
        is_sure = not self._may_be_committed
        is_timed_out = code.value == ErrorCode.TRANSACTION_ABORTABLE
        if is_timed_out or (is_sure and code.value in _NOT_COMMITTED):
            raise AbortableError(self._text("it cannot be committed", code), code.value)
        raise refusal(
            *(self.transactional_id, "commit", code), may_be_committed=self._may_be_committed
        )

    async def abort(self, *, keeps_epoch: bool = False) -> None:
        """Aborts, and takes a new epoch, unless `keeps_epoch` in the first generation. Raises `TransactionError`.

        After an `UnansweredError`, or if it was cancelled, another call does what is left.
        """
        if not self._lacks_epoch:
            answer = await self._end(is_commit=False)
            code = answer.error_code
            if code.value and code.value not in _NOT_COMMITTED:
                raise refusal(self.transactional_id, "abort", code)
            self._lacks_epoch = bool(code.value) or not (self.raises_epoch or keeps_epoch)
            if self.raises_epoch and not code.value:
                self._take_identity(answer)
        # An end under the old epoch would be fenced, once the coordinator has given the new one.
        if self._lacks_epoch:
            await self.renew()

    async def renew(self) -> None:
        """Takes a new epoch: what was sent under the old one and is late is fenced. Raises `TransactionError`."""
        await self._initialise(self.identity)

    async def _end(self, *, is_commit: bool) -> Any:
        fields = {
            "transactional_id": self.transactional_id,
            "producer_id": self.identity.producer_id,
            "producer_epoch": self.identity.producer_epoch,
            "committed": is_commit,
        }
        version_max = None if self.raises_epoch else _END_MAX
        return await self._ask(self._coordinator, "end_txn", fields, _error_code, version_max)

    def _take_identity(self, answer: Any) -> None:
        if self.raises_epoch:
            self.identity = Identity(answer.producer_id, answer.producer_epoch)

    async def _initialise(self, identity: Identity) -> None:
        fields = {
            "transactional_id": self.transactional_id,
            "transaction_timeout": round(self._settings.transaction_timeout_s * 1000),
            "producer_id": identity.producer_id,
            "producer_epoch": identity.producer_epoch,
            "enable2_pc": False,
            "keep_prepared_txn": False,
        }
        answer = await self._ask(self._coordinator, "init_producer_id", fields, _error_code)
        if answer.error_code.value:
            raise refusal(self.transactional_id, "its session", answer.error_code)
        self.identity = Identity(answer.producer_id, answer.producer_epoch)
        self._has_late_copies = self._lacks_epoch = False

    async def _join(
        self,
        coordinator: Coordinator,
        api: str,
        fields: Mapping[str, Any],
        codes: Codes,
        version_max: int | None = None,
    ) -> None:
        """Asks for something to become part of the transaction. Raises `TransactionError`."""
        try:
            answer = await self._ask(coordinator, api, fields, codes, version_max)
        except UnansweredError as error:
            raise AbortableError(str(error)) from error
        failed = [one for one in codes(answer) if one.value not in _IN_ITSELF_NO_FAILURE]
        for code in failed:
            if code.value in _FATAL:
                raise refusal(self.transactional_id, api, code)
        if failed:
            raise AbortableError(self._text(api, failed[0]), failed[0].value)

    async def _ask(
        self,
        coordinator: Coordinator,
        api: str,
        fields: Mapping[str, Any],
        codes: Codes,
        version_max: int | None = None,
    ) -> Any:
        """The first answer that waiting does not change. Raises `UnansweredError`, and the error of a look-up."""
        backoff = Backoff(_FIRST_PAUSE_S, _PAUSE_MAX_S)
        reason = "no answer"
        async with self._lock:
            self._is_open_ended = False
            try:
                async with asyncio.timeout(self._settings.delivery_timeout_s):
                    while True:
                        before = self._has_late_copies, self._is_open_ended
                        self._has_late_copies = self._is_open_ended = True
                        answer = await coordinator.ask(api, fields, version_max=version_max)
                        if answer is not None:
                            self._has_late_copies, open_ended = before
                            again = _to_repeat(codes(answer))
                            if again is None or again.value in _NOTHING_DONE:
                                self._is_open_ended = open_ended
                            if again is None:
                                return answer
                            reason = again.name.upper()
                            if again.value in MOVED:
                                coordinator.forget()
                        await backoff.pause()
            except TimeoutError as error:
                text = f"transactional id {self.transactional_id}: {api}: {reason}, for {self._settings.delivery_timeout_s:g} s"
                raise UnansweredError(text, may_be_committed=self._is_commit(fields)) from error

    def _is_commit(self, fields: Mapping[str, Any]) -> bool:
        return self._is_open_ended and bool(fields.get("committed"))

    def _announced(self) -> bool:
        """Whether the brokers announce the second generation; what was known, while there is no connection."""
        level = self._coordinator.finalized_level(_FEATURE)
        return self.raises_epoch if level is None else level >= _RAISES_EPOCH_FROM

    def _coordinator_of(self, key: str, kind: Coordinated) -> Coordinator:
        timeout_s = self._settings.request_timeout_s
        return Coordinator(self._cluster, key, timeout_s=timeout_s, kind=kind)

    def _text(self, what: str, code: Any) -> str:
        return f"transactional id {self.transactional_id}: {what}: {code.name.upper()}"


def _to_repeat(codes: Iterable[Any]) -> Any:
    """The code because of which a request is sent again; None if the answer is final."""
    failed = [one for one in codes if one.value not in _IN_ITSELF_NO_FAILURE]
    return failed[0] if failed and all(one.value in _AGAIN for one in failed) else None


def _error_code(answer: Any) -> tuple[Any]:
    return (answer.error_code,)


def _partition_codes(answer: Any) -> list[Any]:
    return [
        row.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for row in topic.results_by_partition
    ]


def _offset_codes(answer: Any) -> list[Any]:
    return [row.error_code for topic in answer.topics for row in topic.partitions]
