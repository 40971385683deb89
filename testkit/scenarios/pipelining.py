"""Scenarios with several batches in flight on one partition, with one broker."""

from __future__ import annotations

from typing import Final

from echoless.testkit.scenarios.scenario import Scenario
from echoless.testkit.scenarios.spans import A, B, C, D, E, F, Span
from echoless.testkit.scenarios.stage import Stage

_ELSEWHERE: Final = "NOT_LEADER_OR_FOLLOWER"
_BOTH_SENT_MS: Final = 300
"""Longer than it takes to hand over two more batches."""


def _play_success(stage: Stage) -> None:
    stage.create_topic()
    stage.begin()
    stage.say(f"{A}, {B} and {C} are sent without waiting for an answer")
    stage.send(A, B, C)
    stage.wait()
    stage.say(f"then {D} and {E}")
    stage.send(D, E)
    stage.wait()


def _play_missing_acknowledgements(stage: Stage) -> None:
    stage.create_topic()
    stage.begin()
    stage.say(f"{A}, {B} and {C} are stored and acknowledged")
    stage.send(A, B, C)
    stage.wait()
    stage.say("the answers to D and E are lost; after its request timeout the producer resends")
    with stage.lost_answers(D, E):
        stage.send(D, E)
        stage.wait()
    repeats = [
        one["base_sequence"] for one in stage.decisions() if one["decision"].endswith("duplicate")
    ]
    found = {D.first, E.first} <= set(repeats)
    stage.require("D and E are found in the window", holds=found, seen=repeats)


def _play_missing_record_batch(stage: Stage) -> None:
    stage.create_topic()
    stage.begin()
    stage.say("C is lost in transit; D and E after it arrive")
    with stage.lost_requests(C):
        stage.send(A, B, C, D, E)
        stage.wait()
    if stage.scripted is not None:
        _require_gap_seen(stage)


def _play_pipelined_failure(stage: Stage) -> None:
    stage.create_topic()
    stage.begin()
    stage.say(f"{A}, {B} and {C} are in flight; B is answered with {_ELSEWHERE}")
    with (
        # Answers keep their order: C is sent before the producer learns of B.
        stage.fault({"type": "delay_response", "ms": _BOTH_SENT_MS}, A, times=1),
        stage.fault({"type": "error", "code": _ELSEWHERE}, B, times=1),
    ):
        stage.send(A, B, C)
        stage.wait()
    if stage.scripted is not None:
        _require_gap_seen(stage)


def _require_gap_seen(stage: Stage) -> None:
    errors = {one["error"] for one in stage.decisions()}
    stage.require(
        "a batch that overtook the missing one is answered OUT_OF_ORDER_SEQUENCE_NUMBER",
        holds="OUT_OF_ORDER_SEQUENCE_NUMBER" in errors,
        seen=errors,
    )


def _play_window_missed(stage: Stage) -> None:
    if stage.scripted is None:
        _play_small_window(stage)
        return
    stage.create_topic()
    stage.begin()
    stage.say(
        "six batches in flight, the answer to A lost: its repeat is older than the window of 5"
    )
    with stage.lost_answers(A):
        stage.send(A, B, C, D, E, F)
        stage.wait()
    _require_answer(stage, A, "DUPLICATE_SEQUENCE_NUMBER")
    stage.create_topic("-window-8", producer_state_batches_to_retain="8")
    stage.begin()
    stage.say("the same with producer.state.batches.to.retain=8: A is found, with its offset")
    with stage.lost_answers(A):
        stage.send(A, B, C, D, E, F)
        stage.wait()
    _require_answer(stage, A, None)


def _play_small_window(stage: Stage) -> None:
    """Plays with a window of one: no client has six batches in flight, and five exceed it as well."""
    stage.create_topic(producer_state_batches_to_retain="1")
    stage.begin()
    stage.say("a window of 1, five batches in flight, all answers lost")
    with stage.lost_answers(A, B, C, D, E):
        stage.send(A, B, C, D, E)
        stage.wait()


def _require_answer(stage: Stage, span: Span, error: str | None) -> None:
    """Requires that the last decision on the batch was this one, and no new append."""
    about = [
        one
        for one in stage.decisions()
        if one["topic"] == stage.topic and one["base_sequence"] == span.first
    ]
    last = about[-1]
    stage.require(
        f"the repeat of {span} is answered {error or 'with its first offset'}",
        holds=last["decision"] != "append" and last["error"] == error,
        seen=(last["decision"], last["error"], last["reason"]),
    )


SCENARIOS: Final = (
    Scenario(
        name="success",
        shows="Batches of one producer follow each other without a gap, and each is stored once.",
        faults="none",
        holds="A to E are stored once, in order, each acknowledged with its offset.",
        play=_play_success,
    ),
    Scenario(
        name="missing-acknowledgements",
        shows="A batch that was stored but not acknowledged is resent, and recognised.",
        faults="the answers to D and E are lost (`drop_response`)",
        holds="The repeats of D and E are found in the window and acknowledged with the offsets of "
        "the first copies.",
        play=_play_missing_acknowledgements,
    ),
    Scenario(
        name="missing-record-batch",
        shows="A batch that is missing keeps later ones out of the log.",
        faults="C never arrives (`drop_request`)",
        holds="D and E are answered OUT_OF_ORDER_SEQUENCE_NUMBER until C is there; then all are "
        "stored once, in order.",
        play=_play_missing_record_batch,
    ),
    Scenario(
        name="window-missed",
        shows="A repeat older than the window is still a repeat.",
        faults="six batches in flight and the answer to A lost (`drop_response`); real clients have "
        "five in flight, so for them the window is set to 1 and all answers are lost",
        holds="The repeat of A is answered DUPLICATE_SEQUENCE_NUMBER (Kafka: "
        "OUT_OF_ORDER_SEQUENCE_NUMBER, and some clients then store it twice); with "
        "`producer.state.batches.to.retain=8` it is answered with its first offset.",
        play=_play_window_missed,
    ),
    Scenario(
        name="pipelined-failure",
        shows="Of three batches in flight the second fails, and the third does not overtake it.",
        faults="the answer to A is late (`delay_response`), so that C is sent before the producer "
        "hears that B was refused with NOT_LEADER_OR_FOLLOWER, not processed (`error`)",
        holds="C is refused until B is stored; A, B and C are stored once, in order.",
        play=_play_pipelined_failure,
    ),
)
