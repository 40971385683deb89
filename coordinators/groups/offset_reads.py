"""OffsetFetch: committed offsets, as the high watermark has passed them. Answered at once."""

from __future__ import annotations

from collections.abc import Iterator

from echoless.coordinators.effects import Reply
from echoless.coordinators.groups.answers import FetchedOffset, OffsetFetchAnswer
from echoless.coordinators.groups.consumer.descriptions import fetch_error
from echoless.coordinators.groups.effects import Effects
from echoless.coordinators.groups.requests import OffsetFetch
from echoless.coordinators.groups.store import GroupStore
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.offset_value import OffsetValue

Offsets = dict[str, dict[int, OffsetValue]]
_NONE_PENDING: frozenset[tuple[str, int]] = frozenset()


def handle(store: GroupStore, reply_id: int, request: OffsetFetch) -> Effects:
    """Answer with a snapshot; with `require_stable` an offset that is being replaced is UNSTABLE_OFFSET_COMMIT.

    A group or a partition without an offset has offset -1, and is no error.
    """
    durable = store.durable.groups.get(request.group_id)
    code = fetch_error(None if durable is None else durable.consumer, request)
    if code is not ErrorCode.NONE:
        return [Reply(reply_id, OffsetFetchAnswer(code))]
    live = store.live.get(request.group_id)
    offsets = {} if durable is None else durable.offsets
    pending = _NONE_PENDING
    if request.require_stable:
        pending = frozenset(store.durable.pending_offsets(request.group_id))
        if live is not None:
            pending |= live.pending_offsets.keys()
    if request.partitions is None:
        rows = _all({topic: dict(ids) for topic, ids in offsets.items()}, pending)
    else:
        found = [offsets.get(topic, {}).get(index) for topic, index in request.partitions]
        rows = _named(request.partitions, found, pending)
    return [Reply(reply_id, OffsetFetchAnswer(ErrorCode.NONE, rows))]


def _named(
    partitions: tuple[tuple[str, int], ...],
    found: list[OffsetValue | None],
    pending: frozenset[tuple[str, int]],
) -> Iterator[FetchedOffset]:
    for (topic, partition), value in zip(partitions, found, strict=True):
        yield _row(topic, partition, value, is_pending=(topic, partition) in pending)


def _all(offsets: Offsets, pending: frozenset[tuple[str, int]]) -> Iterator[FetchedOffset]:
    for topic, partitions in offsets.items():
        for partition, value in partitions.items():
            yield _row(topic, partition, value, is_pending=(topic, partition) in pending)
    for topic, partition in pending:
        if partition not in offsets.get(topic, {}):
            yield _row(topic, partition, None, is_pending=True)


def _row(
    topic: str, partition: int, value: OffsetValue | None, *, is_pending: bool
) -> FetchedOffset:
    if is_pending:
        return FetchedOffset(topic, partition, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    if value is None:
        return FetchedOffset(topic, partition)
    return FetchedOffset(topic, partition, value.offset, value.leader_epoch, value.metadata)
