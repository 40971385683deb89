"""The invariants, asserted of each answer, each committed record, each marker and each state.

1. Decided once: no number is both committed and aborted.
2. No marker without a committed decision, and each with its result.
3. Complete is committed only when every partition of the transaction has its marker.
4. An answer is true: a partition that was added is in the committed transaction; an end that was acknowledged is committed.
5. A fenced session stays out: it adds nothing, ends nothing, and gets no identity.
6. Identities are given once: to one session, never one that another had, never the highest epoch.
7. A session that is not fenced can go on, and learns the truth about the transaction that ended last.
8. Nothing is stuck: what is under way has a record, a marker or a timer that moves it on, and each request an answer to come.
9. A transaction in two phases ends only for a request, and one that is kept takes nothing more.
10. What the core serves from is the last committed record, and its bytes say the same.
"""

from __future__ import annotations

from echoless.coordinators.transactions.answers import TransactionAnswer, Transition
from echoless.coordinators.transactions.config import StepInputs
from echoless.coordinators.transactions.effects import SendMarkers
from echoless.coordinators.transactions.ends import decide_end
from echoless.coordinators.transactions.initialisations import decide_init
from echoless.coordinators.transactions.requests import (
    AddPartitions,
    EndTransaction,
    InitTransactionalId,
    TransactionRequest,
)
from echoless.protocol.errors import ErrorCode
from echoless.protocol.state_records.transaction_records import (
    TransactionStatus,
    TransactionValue,
    read_transaction_value,
    write_transaction_value,
)
from tests.coordinators.transactions.exploration.world import (
    NOW,
    TIMEOUT_MS,
    BrokenInvariantError,
    Decision,
    GivenIdentity,
    IdWorld,
    is_new_instance,
)

_EPOCH_MAX = 32_767


def committed(
    world: IdWorld, value: TransactionValue | None, by: TransactionRequest | None
) -> IdWorld:
    """Judge a record that is committed; `by`: the request that it was stored for."""
    if by is not None and (is_new_instance(by) or world.durable is None):
        world = world._replace(fenced=world.session)
    if value is None:
        return world._replace(durable=None, fenced=world.session, decisions=())
    if value.status.is_prepared:
        world = _decided(world, value, by)
    elif value.status.is_complete:
        decision = world.decisions[-1]
        expect(decision.number == value.number, "an end is complete that was not decided")
        is_commit = value.status is TransactionStatus.COMPLETE_COMMIT
        expect(decision.is_commit == is_commit, "a transaction is complete with another result")
        needed = {(decision[2], decision.number, partition) for partition in decision.partitions}
        expect(needed <= world.written, "a transaction is complete without a marker")
    return world._replace(durable=value)


def _decided(world: IdWorld, value: TransactionValue, by: TransactionRequest | None) -> IdWorld:
    before = world.durable
    expect(before is not None, "a transaction of an unknown id ends")
    assert before is not None
    is_commit = value.status is TransactionStatus.PREPARE_COMMIT
    for decision in world.decisions:
        expect(decision.number != value.number, f"transaction {value.number} is decided twice")
    expect(not is_commit or isinstance(by, EndTransaction), "a commit that no one asked for")
    if isinstance(by, EndTransaction):
        expect(by[:2] == before[:2], "a session ends what is not its own")
        expect(by.is_commit == is_commit, "the opposite of what was asked for")
        _is_not_fenced(world, by[:2], "ends a transaction")
    if before.status is TransactionStatus.ONGOING and before.is_two_phase:
        expect(by is not None, "a transaction in two phases ends, and no one has asked for it")
        is_kept = isinstance(by, InitTransactionalId) and by.keeps_prepared
        expect(not is_kept, "a transaction ends that was to be kept")
    if isinstance(by, InitTransactionalId) and not is_new_instance(by):
        _is_not_fenced(world, by[1:3], "aborts a transaction")
    partitions = before.partitions if before.status is TransactionStatus.ONGOING else frozenset()
    expect(value.partitions == partitions, "a partition is left out")
    decision = Decision(value.number, is_commit, *before[:2], partitions)
    return world._replace(decisions=(*world.decisions, decision))


def markers_sent(world: IdWorld, markers: SendMarkers) -> IdWorld:
    """Judge markers that the core sends."""
    value = world.durable
    expect(value is not None and value.status.is_prepared, "markers without a decision")
    assert value is not None
    expect(
        (markers.number, markers[:2]) == (value.number, value[:2])
        and markers.is_commit == world.decisions[-1].is_commit,
        "markers that are not those of the decision",
    )
    expect(markers.partitions <= value.partitions, "markers of partitions that were not added")
    sent = {(value.producer_id, markers.number, partition) for partition in markers.partitions}
    return world._replace(sent=world.sent | sent, network=world.network | sent)


def answered(world: IdWorld, request: TransactionRequest, answer: TransactionAnswer) -> IdWorld:
    """Judge an answer."""
    code = answer.error_code
    if isinstance(request, EndTransaction) and not request.is_commit:
        expect(code is not ErrorCode.TRANSACTION_ABORTABLE, "an abort is answered with 120")
    if code is not ErrorCode.NONE:
        expect(answer.producer_id == -1, "an identity with an error")
        return world
    match request:
        case AddPartitions():
            _is_not_fenced(world, request[:2], "adds partitions")
            value = world.durable
            expect(
                value is not None
                and value.status is TransactionStatus.ONGOING
                and value[:2] == request[:2]
                and request.partitions <= value.partitions,
                "a partition is acknowledged that is not in the transaction",
            )
            expect(value.kept_epoch == -1, "a partition is added to a transaction that was kept")
        case EndTransaction():
            own = [each for each in world.decisions if each[2:4] == request[:2]]
            expect(bool(own) and own[-1].is_commit == request.is_commit, "an end that is not true")
        case _:
            pass
    if answer.producer_id == -1:
        return world
    return _given(world, request, answer)


def _given(world: IdWorld, request: TransactionRequest, answer: TransactionAnswer) -> IdWorld:
    """Judge an identity that is answered."""
    expect(answer.producer_epoch < _EPOCH_MAX, "the highest epoch is given to a client")
    durable = world.durable
    expect(durable is not None, "an identity that is not stored")
    assert durable is not None
    had = session_of(world, request[:2]) if not isinstance(request, InitTransactionalId) else None
    if isinstance(request, InitTransactionalId) and request.producer_id != -1:
        had = session_of(world, request[1:3])
    if had is not None and had > world.fenced:
        session = had
    else:
        expect(
            is_new_instance(request) or not world.given or world.fenced == world.session,
            "a fenced session gets an identity",
        )
        expect(isinstance(request, InitTransactionalId), "a fenced session gets an identity")
        session = world.session + 1
    identity = (answer.producer_id, answer.producer_epoch)
    owner = session_of(world, identity)
    expect(owner in (None, session), "an identity is given to two sessions")
    if owner is not None:
        return world
    same_id = [each for each in world.given if each.producer_id == identity[0]]
    expect(all(each.producer_epoch < identity[1] for each in same_id), "epochs do not rise")
    expect(
        not world.given
        or identity[0] == world.given[-1].producer_id
        or identity[0] > world.given[-1].producer_id,
        "a producer id comes back",
    )
    given = (*world.given, GivenIdentity(*identity, session))
    return world._replace(given=given, session=max(session, world.session))


def session_of(world: IdWorld, identity: tuple[int, int]) -> int | None:
    """The session that an identity was given to."""
    for each in world.given:
        if each[:2] == identity:
            return each.session
    return None


def _is_not_fenced(world: IdWorld, identity: tuple[int, int], what: str) -> None:
    session = session_of(world, identity)
    expect(session is not None and session > world.fenced, f"a fenced session {what}")


def judge_state(world: IdWorld, inputs: StepInputs) -> None:
    """Judge a state between two moves."""
    state, value = world.state, world.state.value
    expect(value == world.durable, "the core serves from a record that is not committed")
    waiting = {event.reply_id for event in state.held}
    if state.storing is not None and state.storing.reply_id is not None:
        waiting.add(state.storing.reply_id)
    expect(waiting == {reply_id for reply_id, _ in world.asked}, "a request is never answered")
    if value is None:
        return
    expect(read_transaction_value(write_transaction_value(value)) == value, "bytes that differ")
    if state.storing is not None:
        return
    if value.status is TransactionStatus.ONGOING and value.is_two_phase:
        expect("timeout" not in world.timers, "a transaction in two phases that times out")
    elif value.status is TransactionStatus.ONGOING:
        expect("timeout" in world.timers, "an open transaction that never times out")
    if value.status.is_prepared:
        missing = {(value.producer_id, value.number, partition) for partition in state.unmarked}
        expect(
            bool(missing) or "completion" in world.timers, "an end that is stuck without a timer"
        )
        expect(missing <= world.sent, "an end that waits for a marker that was not sent")
        return
    _can_go_on(world, value, inputs)


def _can_go_on(world: IdWorld, value: TransactionValue, inputs: StepInputs) -> None:
    """Judge what the newest session would be answered."""
    if not world.given or world.given[-1].session <= world.fenced:
        return
    newest = world.given[-1]
    # A session that keeps a transaction, and has had no answer, asks for the same again.
    phases = (value.kept_epoch != -1,) * 2
    request = InitTransactionalId(TIMEOUT_MS, *newest[:2], *phases)
    init = decide_init(value, request, NOW, inputs)
    code = init.answer.error_code if isinstance(init, Transition) else init.error_code
    expect(
        code in (ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS), "a live session cannot go on"
    )
    if value.status.is_complete and world.decisions:
        last = world.decisions[-1]
        if session_of(world, last[2:4]) != newest.session:
            return
        end = decide_end(value, EndTransaction(*last[2:4], last.is_commit), NOW, inputs)
        expect(
            isinstance(end, TransactionAnswer) and end.error_code is ErrorCode.NONE,
            "a repeated end does not get the truth",
        )


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise BrokenInvariantError(what)
