"""Counts, while a history is played, how often the broker meets a hazard: its own functions, with a counter around each.

Nothing is changed in what they do. A function is found by name, so one that moves fails loudly.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

from echoless.broker.metadata.node_data import NO_LEADER
from echoless.broker.partitions.core.membership import Membership
from echoless.broker.records import transactional
from echoless.broker.records.markers import MarkerWriter
from echoless.broker.state_topics.appends import Appends
from echoless.broker.transactions.marker_sender import MarkerSender
from echoless.broker.transactions.partition_leaders import PartitionLeaders
from echoless.coordinators.transactions import transactional_id
from echoless.coordinators.transactions.requests import EndTransaction, InitTransactionalId
from echoless.protocol.dedup import Duplicate, Reject
from echoless.protocol.errors import ErrorCode
from echoless.storage import log
from echoless.storage.log import Log

Count = Callable[[str], None]


@contextlib.contextmanager
def counting(count: Count) -> Iterator[None]:
    """Counts within, by the names of `sometimes.py`."""
    with contextlib.ExitStack() as stack:
        for target, name, look in _PROBES:
            stack.enter_context(patch.object(target, name, _watched(target, name, look, count)))
        yield


Look = Callable[[Any, tuple[Any, ...]], str | None]
"""The name of what has happened, from the result and the arguments of a call."""


def _watched(target: Any, name: str, look: Look, count: Count) -> Any:
    original = vars(target)[name]
    called = original.__func__ if isinstance(original, classmethod) else original

    def watch(*arguments: Any, **named: Any) -> Any:
        result = called(*arguments, **named)
        found = look(result, arguments)
        if found is not None:
            count(found)
        return result

    return classmethod(watch) if isinstance(original, classmethod) else watch


def _overtaken(result: Any, arguments: tuple[Any, ...]) -> str | None:
    return "H1 ghost_end" if result and isinstance(arguments[1], EndTransaction) else None


def _judged(result: Any, arguments: tuple[Any, ...]) -> str | None:
    producers, header = arguments[:2]
    entry = producers.get(header.producer_id)
    is_old = entry is not None and header.producer_epoch < entry.producer_epoch
    if is_old or result in (Membership.ENDED, Membership.AGAIN):
        return "H3 verified_then_aborted"
    return None


def _marker(result: Any, _: tuple[Any, ...]) -> str | None:
    if isinstance(result, Duplicate):
        return "H4 ghost_marker"
    if isinstance(result, Reject):
        is_old = result.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return "H7 coordinator_pause_resume" if is_old else "a marker of an old epoch"
    return None


def _outdated(result: Any, _: tuple[Any, ...]) -> str | None:
    return "H7 coordinator_pause_resume" if result else None


def _held(_: Any, arguments: tuple[Any, ...]) -> str | None:
    state, event = arguments[:2]
    is_init = isinstance(event.request, InitTransactionalId)
    return "H10 init_races_commit" if is_init and state.value is not None else None


def _deleted(_: Any, __: tuple[Any, ...]) -> str | None:
    return "H11 topic_reborn"


def _leader(result: Any, _: tuple[Any, ...]) -> str | None:
    return "H12 partition_leaderless" if result == NO_LEADER else None


def _answered(_: Any, arguments: tuple[Any, ...]) -> str | None:
    return "H13 min_isr" if ErrorCode.NOT_ENOUGH_REPLICAS in arguments[3] else None


def _opened(result: Any, _: tuple[Any, ...]) -> str | None:
    is_open = result.producers.open_transaction_count > 0
    return "H16 restart in mid-transaction" if is_open else None


def _settled(result: Any, _: tuple[Any, ...]) -> str | None:
    return None if result.done() else "H24 a marker waits for its offsets"


_PROBES: tuple[tuple[Any, str, Look], ...] = (
    (transactional_id, "is_overtaken", _overtaken),
    (transactional, "judge", _judged),
    (log, "decide_marker", _marker),
    (MarkerWriter, "_is_outdated", _outdated),
    (transactional_id, "_held", _held),
    (transactional_id, "_partition_deleted", _deleted),
    (PartitionLeaders, "leader_of", _leader),
    (MarkerSender, "_answered", _answered),
    (Log, "open", _opened),
    (Appends, "settled", _settled),
)
