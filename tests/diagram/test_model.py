"""Events turned into the steps of a diagram."""

from __future__ import annotations

from typing import Any

from echoless.diagram.folding import KEPT, fold
from echoless.diagram.model import build_diagram
from echoless.diagram.steps import (
    BatchVerdict,
    Diagram,
    Fate,
    Folded,
    Remark,
    RoundTrip,
    WindowEntry,
)
from echoless.diagram.wording import answer_text, is_success, request_text
from tests.diagram.recording import A, B, C, D, Recording


def _exchanges(diagram: Diagram) -> list[RoundTrip]:
    return [step for step in diagram.steps if isinstance(step, RoundTrip)]


def test_batches_get_letters_in_the_order_in_which_they_are_met() -> None:
    """A lost batch has its letter from the fault; sent again, it has the same one."""
    recording = Recording()
    recording.append(A)
    recording.hit("drop_request", B)
    recording.refuse(C)
    recording.append(B)
    sent = [exchange.sent[0] for exchange in _exchanges(build_diagram(recording.events))]
    assert [(one.letter, one.attempt) for one in sent] == [("A", 1), ("B", 1), ("C", 1), ("B", 2)]


def test_batches_without_a_producer_id_are_never_taken_for_each_other() -> None:
    """Whether such a batch has been sent before is unknown."""
    recording = Recording(producer_id=-1)
    recording.hit("drop_response", (-1, -1))
    recording.hit("drop_response", (-1, -1))
    sent = [exchange.sent[0] for exchange in _exchanges(build_diagram(recording.events))]
    assert [(one.letter, one.attempt) for one in sent] == [("\N{BULLET}", 1)] * 2


def test_letters_go_on_behind_z() -> None:
    """Long runs have letters for all batches."""
    recording = Recording()
    for number in range(28):
        recording.append((number, number))
    letters = [e.sent[0].letter for e in _exchanges(build_diagram(recording.events))]
    assert letters[25:] == ["Z", "AA", "AB"]


def test_lost_request_was_never_judged() -> None:
    """A dropped request ends before the broker, and has no verdict."""
    recording = Recording()
    recording.hit("drop_request", A)
    (exchange,) = _exchanges(build_diagram(recording.events))
    assert (exchange.request, exchange.sent[0].verdict) == (Fate.LOST, BatchVerdict.NOT_JUDGED)


def test_lost_answer_belongs_to_the_request_that_was_decided() -> None:
    """Decision and fault of one request are one exchange, whichever comes first."""
    for fault_first in (False, True):
        recording = Recording()
        if fault_first:
            recording.hit("drop_response", A, correlation_id=7)
        recording.append(A, correlation_id=7)
        if not fault_first:
            recording.hit("drop_response", A, correlation_id=7)
        (exchange,) = _exchanges(build_diagram(recording.events))
        assert (exchange.response, exchange.sent[0].verdict) == (Fate.LOST, BatchVerdict.APPENDED)
        assert [fault.action for fault in exchange.faults] == ["drop_response"]


def test_answers_behind_a_lost_one_never_arrive() -> None:
    """Answers keep their order in a connection: after a lost one they wait until it is closed."""
    recording = Recording()
    recording.append(A)
    recording.hit("drop_request", B)
    recording.refuse(C)
    recording.append(B, connection_id=2)
    exchanges = _exchanges(build_diagram(recording.events))
    assert [e.response for e in exchanges if e.request is Fate.ARRIVED] == [
        Fate.ARRIVED,
        Fate.LOST,
        Fate.ARRIVED,
    ]
    assert [exchange.is_behind_a_loss for exchange in exchanges] == [False, False, True, False]


def test_rule_may_let_the_later_answers_go() -> None:
    """With `later=send` only the one answer is lost."""
    recording = Recording()
    recording.append(A, correlation_id=1)
    recording.hit("drop_response", A, correlation_id=1, detail="later=send")
    recording.append(B, correlation_id=2)
    exchanges = _exchanges(build_diagram(recording.events))
    assert [exchange.response for exchange in exchanges] == [Fate.LOST, Fate.ARRIVED]


def test_partitions_of_one_request_are_one_exchange() -> None:
    """A request with batches for several partitions is drawn as one arrow."""
    recording = Recording()
    recording.append(A, correlation_id=3)
    recording.append(A, correlation_id=3, partition=1)
    diagram = build_diagram(recording.events)
    (exchange,) = _exchanges(diagram)
    assert [one.letter for one in exchange.sent] == ["A", "B"]
    assert diagram.partitions == [("orders", 0), ("orders", 1)]


def test_requests_without_a_correlation_id_are_told_apart() -> None:
    """On a port without correlation ids (0), each decision is a separate request."""
    recording = Recording()
    recording.append(A, correlation_id=0)
    recording.append(B, correlation_id=0)
    recording.hit("drop_response", B, correlation_id=0, detail="later=send")
    recording.repeat(B, [A, B], correlation_id=0)
    exchanges = _exchanges(build_diagram(recording.events))
    assert [e.response for e in exchanges] == [Fate.ARRIVED, Fate.LOST, Fate.ARRIVED]


def test_request_processed_twice_is_one_exchange_with_two_verdicts() -> None:
    """Both decisions about it are shown at the one arrow."""
    recording = Recording()
    recording.hit("twice", A, correlation_id=2)
    recording.append(A, correlation_id=2)
    recording.repeat(A, [A], correlation_id=2)
    (exchange,) = _exchanges(build_diagram(recording.events))
    assert [one.verdict for one in exchange.sent] == [BatchVerdict.APPENDED, BatchVerdict.DUPLICATE]


def test_window_shows_the_letters_of_what_is_in_it() -> None:
    """Batches that the recording saw stored are known; older ones have only their numbers."""
    recording = Recording()
    recording.append(A, window=[(100, 113)])
    recording.append(B, window=[(100, 113), A])
    sent = _exchanges(build_diagram(recording.events))[1].sent[0]
    assert sent.window == (WindowEntry("", 100, 113), WindowEntry("A", *A))


def test_unknown_window_is_not_an_empty_one() -> None:
    """If no one followed, the diagram does not claim that there was nothing."""
    recording = Recording()
    recording.append(A, window=None)
    recording.append(B, window=[])
    windows = [e.sent[0].window for e in _exchanges(build_diagram(recording.events))]
    assert windows == [None, ()]


def test_client_that_connects_again_stays_on_its_line() -> None:
    """After a lost acknowledgement clients open a new connection: the same producer."""
    recording = Recording()
    recording.append(A)
    recording.repeat(A, [A], connection_id=2)
    diagram = build_diagram(recording.events)
    assert [line.name for line in diagram.producers] == ["app"]


def test_restarted_producer_gets_a_line_of_its_own() -> None:
    """A new producer id is another producer, whatever its client is called."""
    recording = Recording()
    recording.append(A)
    recording.append(A, producer_id=4001, connection_id=2)
    details = [line.detail for line in build_diagram(recording.events).producers]
    assert details == ["producer id 4000", "producer id 4001"]


def test_a_producer_is_shown_with_its_principal() -> None:
    """Two principals have two lines, even with one producer id; one that has not logged in needs no name."""
    recording = Recording()
    recording.append(A, principal="User:ANONYMOUS")
    recording.append(B, principal="User:alice", connection_id=2)
    recording.hit("deny", C, principal="User:alice", connection_id=2, detail="right=write")
    diagram = build_diagram(recording.events)
    assert [line.detail for line in diagram.producers] == [
        "producer id 4000",
        "producer id 4000, User:alice",
    ]
    denied = _exchanges(diagram)[-1]
    assert denied.producer == 1
    assert denied.sent[0].verdict is BatchVerdict.NOT_JUDGED
    assert answer_text(denied) == "29 TOPIC_AUTHORIZATION_FAILED"
    assert not is_success(denied)


def test_two_that_live_at_once_are_told_apart_by_their_connections() -> None:
    """A zombie and its successor have one id, and take turns."""
    recording = Recording()
    recording.append(A, connection_id=1)
    recording.append(B, connection_id=2, producer_epoch=1)
    recording.refuse(B, "INVALID_PRODUCER_EPOCH", connection_id=1)
    diagram = build_diagram(recording.events)
    assert [exchange.producer for exchange in _exchanges(diagram)] == [0, 1, 0]
    assert diagram.producers[1].detail == "producer id 4000, connection 2"


def test_broker_that_starts_again_has_other_connections() -> None:
    """Its numbers start again: what was silent or taken before the restart is forgotten."""
    recording = Recording()
    recording.append(A, connection_id=1, correlation_id=1)
    recording.append(B, connection_id=2, correlation_id=1)
    recording.hit("drop_response", B, connection_id=2, correlation_id=1)
    recording.append(C, connection_id=1, correlation_id=1, number=1)
    recording.append(D, connection_id=2, correlation_id=1, number=2)
    diagram = build_diagram(recording.events)
    fates = [exchange.response for exchange in _exchanges(diagram)]
    assert fates == [Fate.ARRIVED, Fate.LOST, Fate.ARRIVED, Fate.ARRIVED]
    assert len(diagram.producers) == 1, "a connection from before the restart is not used again"


def test_request_without_a_batch_is_on_the_line_of_its_connection() -> None:
    """A faulted metadata request does not make another producer."""
    recording = Recording()
    recording.hit("delay_response", api="metadata")
    recording.append(A)
    diagram = build_diagram(recording.events)
    assert (len(diagram.producers), _exchanges(diagram)[0].api) == (1, "metadata")


def test_client_without_a_name_is_its_address() -> None:
    """A line needs a name."""
    recording = Recording(client_id=None)
    recording.append(A)
    assert build_diagram(recording.events).producers[0].name == "127.0.0.1:5000"


def test_brokers_are_merged_by_time() -> None:
    """Streams of several brokers become one run."""
    recording = Recording()
    recording.append(B, broker_id=2, time_ms=20)
    recording.append(A, broker_id=1, time_ms=10)
    diagram = build_diagram(recording.events)
    assert [line.name for line in diagram.brokers] == ["broker 1", "broker 2"]
    assert [(e.broker, e.sent[0].batch.base_sequence) for e in _exchanges(diagram)] == [
        (0, A[0]),
        (1, B[0]),
    ]


def test_faults_of_the_broker_and_notes_stand_between_the_exchanges() -> None:
    """A fault that hit no request is a note in its place; so are events lost to the reader."""
    recording = Recording()
    recording.append(A)
    recording.hit("freeze", api="")
    recording.note("the producer restarts")
    recording.events.append({"event": "lost", "broker_id": 1, "count": 3})
    notes = [step for step in build_diagram(recording.events).steps if isinstance(step, Remark)]
    assert [(note.text, note.is_fault) for note in notes] == [
        ("frozen (rule-1)", True),
        ("the producer restarts", False),
        ("3 events were not recorded: the reader was too slow", False),
    ]


def test_crash_takes_the_answer_with_it() -> None:
    """The request that killed a broker is not answered, and the death is noted."""
    recording = Recording()
    recording.append(A, correlation_id=4)
    recording.hit("crash", A, correlation_id=4)
    exchange, note = build_diagram(recording.events).steps
    assert isinstance(exchange, RoundTrip)
    assert exchange.response is Fate.BROKEN
    assert isinstance(note, Remark)
    assert note.text == "broker killed (rule-1)"


def test_stored_batches_are_in_the_order_of_their_offsets() -> None:
    """They are the appends that the recording saw, without refused or repeated batches."""
    recording = Recording()
    recording.append(A)
    recording.repeat(A, [A])
    recording.refuse(C)
    recording.append(B)
    assert [one.letter for one in build_diagram(recording.events).stored] == ["A", "C"]


def _quiet_run(length: int) -> list[dict[str, Any]]:
    recording = Recording()
    for number in range(length):
        recording.append((2 * number, 2 * number + 1))
    return recording.events


def test_long_quiet_runs_are_folded() -> None:
    """The middle of many appends becomes one step, with its sequences."""
    steps = fold(build_diagram(_quiet_run(100)).steps)
    assert len(steps) == 2 * KEPT + 1
    (folded,) = [step for step in steps if isinstance(step, Folded)]
    assert (folded.batches, folded.base_sequence, folded.last_sequence) == (94, 6, 193)


def test_short_runs_and_what_is_not_quiet_stay_whole() -> None:
    """A repeat in the middle of appends is never folded away."""
    assert len(fold(build_diagram(_quiet_run(2 * KEPT + 2)).steps)) == 2 * KEPT + 2
    recording = Recording()
    recording.append(A)
    recording.repeat(A, [A])
    recording.refuse(D)
    steps = build_diagram([*_quiet_run(40), *recording.events]).steps
    assert sum(isinstance(step, RoundTrip) for step in fold(steps)[-3:]) == 3


# --- transactions ---


def test_a_request_about_a_transaction_is_an_exchange_of_its_producer() -> None:
    """On the line of its batches, though a client has a connection of its own to its coordinator."""
    recording = Recording()
    recording.step("session", connection_id=9, api="init_producer_id")
    recording.append(A)
    recording.step("commit", connection_id=9, api="end_txn")
    recording.append(B)
    diagram = build_diagram(recording.events)
    first, _, third, _ = _exchanges(diagram)
    assert len(diagram.producers) == 1
    assert [request_text(one) for one in (first, third)] == ["session t1", "commit t1 epoch 0"]
    assert (answer_text(third), is_success(third)) == ("done", True)


def test_the_answer_to_a_commit_is_lost_and_the_repetition_is_refused() -> None:
    """The fault comes first, and what became of the request later, in the same exchange."""
    recording = Recording()
    recording.hit("drop_response", api="end_txn", about="t1 commit", connection_id=9)
    recording.step("commit", connection_id=9, correlation_id=1, api="end_txn")
    error = {"step": "refuse", "error": "PRODUCER_FENCED", "result": "commit"}
    recording.step(**error, connection_id=9, api="end_txn")
    lost, refused = _exchanges(build_diagram(recording.events))
    assert (lost.response, request_text(lost)) == (Fate.LOST, "commit t1 epoch 0")
    assert answer_text(refused) == "90 PRODUCER_FENCED"
    assert not is_success(refused)


def test_a_lost_request_about_a_transaction_says_which() -> None:
    """No coordinator has ever seen it."""
    recording = Recording()
    recording.hit("drop_request", api="end_txn", about="t1 abort", connection_id=9)
    (exchange,) = _exchanges(build_diagram(recording.events))
    assert request_text(exchange) == "end_txn t1 abort"


def test_what_brokers_do_by_themselves_is_a_remark() -> None:
    """Markers, partitions that leaders add, timeouts; and faults of what brokers ask of each other."""
    recording = Recording()
    place = [{"topic": "orders", "partition": 0}]
    nobody = {"connection_id": 0, "client_id": None, "api": ""}
    recording.step("begin", partitions=place, more=2, **nobody)
    recording.step("marker", result="abort", base_offset=7, partitions=place, **nobody)
    recording.step("time_out", reason="open for longer than its timeout", **nobody)
    recording.hit("freeze", api="write_markers", about="t1 abort orders-0", connection_id=0)
    texts = [
        step.text for step in build_diagram(recording.events).steps if isinstance(step, Remark)
    ]
    assert texts == [
        "t1: begins with orders-0 and 2 more",
        "t1: abort marker at offset 7, orders-0",
        "t1: aborted by its coordinator, open for longer than its timeout",
        "marker t1 abort orders-0: frozen (rule-1)",
    ]
