"""The changes of a transactional id: the value that follows another. Whether they are allowed is decided elsewhere.

| from | to | by |
|---|---|---|
| unknown, Empty, Complete | Empty | `emptied` |
| Empty, Complete, Ongoing | Ongoing | `joined` |
| Ongoing | Ongoing, in another session | `kept` |
| Ongoing; to PrepareAbort also Empty, Complete | Prepare | `prepared` |
| Prepare | Complete | `completed` |
"""

from __future__ import annotations

from echoless.coordinators.events import Now
from echoless.coordinators.transactions.config import EPOCH_BUMP_VERSION
from echoless.coordinators.transactions.identity import (
    ProducerIdentity,
    fencing_epoch,
    is_exhausted,
)
from echoless.coordinators.transactions.requests import AddPartitions
from echoless.protocol.state_records.transaction_records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    EndedTransaction,
    TransactionEnd,
    TransactionStatus,
    TransactionValue,
)


def identity_of(value: TransactionValue) -> ProducerIdentity:
    """The identity that is stored; in Prepare the one that the markers carry."""
    return ProducerIdentity(value.producer_id, value.producer_epoch)


def emptied(
    value: TransactionValue | None,
    identity: ProducerIdentity,
    timeout_ms: int,
    now: Now,
    *,
    last_epoch: int = NO_PRODUCER_EPOCH,
    is_two_phase: bool = False,
) -> TransactionValue:
    """Begin a session. `last_epoch`: the epoch that the same session had before, if it had one."""
    return TransactionValue(
        *(identity.producer_id, identity.producer_epoch, timeout_ms, TransactionStatus.EMPTY),
        update_ms=now.wall_ms,
        previous_producer_id=NO_PRODUCER_ID if value is None else value.producer_id,
        number=0 if value is None else value.number,
        last_epoch=last_epoch,
        ended=None if value is None else value.ended,
        is_two_phase=is_two_phase,
    )


def kept(value: TransactionValue, now: Now, *, last_epoch: int) -> TransactionValue:
    """Begin a session that keeps the open transaction of the one before.

    Epochs are raised up to the highest, which is not for clients otherwise: the transaction has to be ended under its
    producer id.
    """
    is_kept = value.kept_epoch != NO_PRODUCER_EPOCH
    return value._replace(
        producer_epoch=fencing_epoch(value.producer_epoch),
        update_ms=now.wall_ms,
        previous_producer_id=value.producer_id,
        last_epoch=last_epoch,
        kept_epoch=value.kept_epoch if is_kept else value.producer_epoch,
    )


def joined(value: TransactionValue, request: AddPartitions, now: Now) -> TransactionValue:
    """Add partitions to the transaction that is open, or begin one."""
    is_open = value.status is TransactionStatus.ONGOING
    return value._replace(
        status=TransactionStatus.ONGOING,
        partitions=value.partitions | request.partitions if is_open else request.partitions,
        update_ms=now.wall_ms,
        start_ms=value.start_ms if is_open else now.wall_ms,
        previous_producer_id=value.producer_id,
        client_version=max(request.client_version, value.client_version if is_open else 0),
        number=value.number + (not is_open),
    )


def prepared(
    value: TransactionValue,
    end: TransactionEnd,
    now: Now,
    *,
    client_version: int,
    raises_epoch: bool,
    spare: int | None,
) -> TransactionValue | None:
    """Decide how the transaction ends; without an open one, it is an empty one that is aborted.

    Returns None if it needs a new producer id, and there is no spare one.
    """
    is_open = value.status is TransactionStatus.ONGOING
    epoch, last_epoch, next_id = value.producer_epoch, value.last_epoch, NO_PRODUCER_ID
    if raises_epoch:
        epoch = fencing_epoch(value.producer_epoch)
        last_epoch = NO_PRODUCER_EPOCH if end is TransactionEnd.FENCED else value.producer_epoch
        if client_version >= EPOCH_BUMP_VERSION and is_exhausted(value.producer_epoch):
            if spare is None:
                return None
            next_id = spare
    is_commit = end is TransactionEnd.COMMITTED
    return value._replace(
        producer_epoch=epoch,
        status=TransactionStatus.PREPARE_COMMIT if is_commit else TransactionStatus.PREPARE_ABORT,
        partitions=value.partitions if is_open else frozenset(),
        update_ms=now.wall_ms,
        start_ms=value.start_ms if is_open else now.wall_ms,
        previous_producer_id=value.producer_id,
        next_producer_id=next_id,
        client_version=client_version,
        number=value.number + (not is_open),
        last_epoch=last_epoch,
        ended=EndedTransaction(value.producer_id, value.producer_epoch, end),
        kept_epoch=NO_PRODUCER_EPOCH,
    )


def identity_after(value: TransactionValue) -> ProducerIdentity:
    """The identity of the session once the end that was decided is complete."""
    if value.next_producer_id != NO_PRODUCER_ID:
        return ProducerIdentity(value.next_producer_id, 0)
    return identity_of(value)


def completed(value: TransactionValue, now: Now) -> TransactionValue:
    """End the transaction: every marker is in."""
    is_commit = value.status is TransactionStatus.PREPARE_COMMIT
    producer_id, epoch = identity_after(value)
    return value._replace(
        producer_id=producer_id,
        producer_epoch=epoch,
        status=TransactionStatus.COMPLETE_COMMIT if is_commit else TransactionStatus.COMPLETE_ABORT,
        partitions=frozenset(),
        update_ms=now.wall_ms,
        previous_producer_id=value.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )


def expires_at(value: TransactionValue, expiration_ms: int) -> int | None:
    """The wall clock at which an idle id expires; None while a transaction is open or ends."""
    if value.status is TransactionStatus.EMPTY or value.status.is_complete:
        return value.update_ms + expiration_ms
    return None
