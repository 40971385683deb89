"""TxnOffsetCommit: offsets that count when their transaction is committed.

The coordinator of the transaction has agreed before. Here it is judged who may commit
for the group, as Kafka does: members need not be named, as the producer's epoch is fence enough; where they are, generation and
member must be right (KIP-447), but a rebalance does not keep them from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from echoless.coordinators.effects import InTransaction, Reply
from echoless.coordinators.events import Now
from echoless.coordinators.groups.answers import OffsetCommitAnswer
from echoless.coordinators.groups.append_errors import transactional_commit_code
from echoless.coordinators.groups.bounds import GroupBounds
from echoless.coordinators.groups.classic.membership import generation_error
from echoless.coordinators.groups.effects import Effects
from echoless.coordinators.groups.group import Group, GroupState
from echoless.coordinators.groups.prepared_commit import can_be_packed, offset_record
from echoless.coordinators.groups.records import GroupRecord
from echoless.coordinators.groups.requests import TransactionalOffsetCommit
from echoless.coordinators.groups.store import GroupStore
from echoless.coordinators.groups.usage import Usage, metadata_size
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.offset_value import NO_EXPIRY

_OF_THE_TRANSACTION = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""Codes of an append that say something about the producer: they are answered as they are."""


def handle(
    store: GroupStore,
    bounds: GroupBounds,
    reply_id: int,
    request: TransactionalOffsetCommit,
    now: Now,
) -> Effects:
    """Append the offsets of those who may commit; metadata that is not taken fails its partition alone."""
    code, group = _admit(store, bounds, request)
    if group is None or code is not ErrorCode.NONE:
        return [Reply(reply_id, OffsetCommitAnswer((code,) * len(request.partitions)))]
    codes = _codes(bounds, request)
    accepted = [one for one, code in zip(request.partitions, codes, strict=True) if not code]
    if not accepted:
        return _stored(reply_id, codes, ErrorCode.NONE, now)
    prepared = request.prepared if len(accepted) == len(codes) else None
    records: Sequence[GroupRecord] = (
        [offset_record(request.group_id, one, NO_EXPIRY, now.wall_ms) for one in accepted]
        if prepared is None
        else prepared.records
    )
    size = sum(metadata_size(one.metadata) for one in accepted)
    append = store.appends.begin(
        group,
        records,
        partial(_stored, reply_id, codes),
        Usage(metadata=size, offsets=len(accepted)),
        prepared,
        transaction=InTransaction(request.producer_id, request.producer_epoch, request.may_append),
    )
    return [append]


def _admit(
    store: GroupStore, bounds: GroupBounds, request: TransactionalOffsetCommit
) -> tuple[ErrorCode, Group | None]:
    if len(request.partitions) > bounds.config.commit_partitions_max:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE, None
    group = store.find(request.group_id)
    if group is None:
        if request.generation_id >= 0:
            return ErrorCode.ILLEGAL_GENERATION, None
        if not bounds.has_room_for_group(request.sharer):
            return ErrorCode.POLICY_VIOLATION, None
        return ErrorCode.NONE, store.create(request.group_id, request.sharer)
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, group
    names_member = (
        request.generation_id >= 0
        or bool(request.member_id)
        or request.group_instance_id is not None
    )
    if not names_member or (group.is_empty and request.generation_id < 0):
        return ErrorCode.NONE, group
    if group.consumer is not None and group.consumer.has_members:
        current = group.consumer.state.currents.get(request.member_id)
        if current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID, group
        is_current = request.generation_id == current.epoch
        return ErrorCode.NONE if is_current else ErrorCode.ILLEGAL_GENERATION, group
    code = generation_error(
        group, request.member_id, request.group_instance_id, request.generation_id
    )
    return code, group


def _codes(bounds: GroupBounds, request: TransactionalOffsetCommit) -> list[ErrorCode]:
    """The errors of single partitions; there is room for all that is not too long in itself, or for none."""
    longest = bounds.config.offset_metadata_max_bytes
    size = sum(
        metadata_size(one.metadata) for one in request.partitions if len(one.metadata) <= longest
    )
    if not bounds.has_room_for_metadata(size, request.sharer):
        longest = 0
    has_room = bounds.has_room_for_offsets(len(request.partitions), request.sharer)
    codes = []
    for one in request.partitions:
        code = ErrorCode.NONE if has_room else ErrorCode.POLICY_VIOLATION
        if len(one.metadata) > longest or not can_be_packed(one.metadata):
            code = ErrorCode.OFFSET_METADATA_TOO_LARGE
        codes.append(code)
    return codes


def _stored(reply_id: int, codes: list[ErrorCode], code: ErrorCode, _now: Now) -> Effects:
    answered = code if code in _OF_THE_TRANSACTION else transactional_commit_code(code)
    return [Reply(reply_id, OffsetCommitAnswer(tuple([one or answered for one in codes])))]
