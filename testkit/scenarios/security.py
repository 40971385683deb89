"""Scenarios of what a producer may do: its right revoked, its session ended, its id used by another; one broker."""

from __future__ import annotations

from typing import Final

from echoless.testkit.clients.scripted import Scripted
from echoless.testkit.scenarios.scenario import Scenario
from echoless.testkit.scenarios.spans import A, B, C, D
from echoless.testkit.scenarios.stage import Stage
from echoless.testkit.scenarios.verdict import Outcome

_OWNER: Final = "alice"
_OTHER: Final = "mallory"
_NEWER_EPOCHS: Final = 9
"""The other principal's lead in epochs, so that a client that bumps its own stays behind."""


def _play_right_revoked(stage: Stage) -> None:
    stage.create_topic()
    stage.begin()
    stage.say(f"{A} is stored; then the producer's right to write to the topic is revoked")
    stage.send(A)
    stage.wait()
    with stage.fault({"type": "deny", "right": "write"}) as denied:
        stage.say(
            "B is answered TOPIC_AUTHORIZATION_FAILED, which no retry changes: it is given up"
        )
        stage.send(B)
        stage.wait()
        denied.wait_for_hits(1)
    stage.say("the right is given back, and the producer continues with C")
    if stage.scripted is not None:
        stage.scripted.bump_epoch()  # B has left a gap in its sequences
    stage.send(C)
    stage.wait()
    failed = {place.number for place, _ in stage.client.deliveries.failed}
    stage.require("B is given up", holds=failed >= set(B.numbers), seen=sorted(failed))


def _play_session_expired(stage: Stage) -> None:
    stage.create_topic()
    stage.begin()
    stage.say(f"{A} is stored; the producer's session ends as soon as B is processed")
    stage.send(A)
    stage.wait()
    with stage.fault("expire_login", B, times=1) as ended:
        stage.send(B, C)
        stage.wait()
        ended.wait_for_hits(1)
    stage.say("C, on its way, found no session: the connection ended, and it came by another one")
    stage.send(D)
    stage.wait()
    connections = {one["base_offset"]: one["connection_id"] for one in stage.decisions()}
    stage.require(
        "C and D came by another connection than B, which had logged in anew",
        holds=connections[B.first] not in {connections[C.first], connections[D.first]},
        seen=connections,
    )


def _play_stolen_producer_id(stage: Stage) -> None:
    _play_theft(stage)
    decisions = [(one["principal"], one["decision"], one["error"]) for one in stage.decisions()]
    fenced = (f"User:{_OWNER}", "reject", "INVALID_PRODUCER_EPOCH")
    stage.require("C is fenced: INVALID_PRODUCER_EPOCH", holds=fenced in decisions, seen=decisions)


def _play_bound_producer_id(stage: Stage) -> None:
    thief = _play_theft(stage)
    failures = thief.deliveries.failures
    refused = {"CLUSTER_AUTHORIZATION_FAILED": len(B.numbers)}
    stage.require("the other's batch is refused", holds=failures == refused, seen=failures)


def _play_theft(stage: Stage) -> Scripted:
    """Another principal uses the id of the producer, which goes on afterwards; returns the other."""
    stage.create_topic()
    stage.begin()
    stage.say(f"{A} of User:{_OWNER} is stored")
    stage.send(A)
    stage.wait()
    last = stage.decisions()[-1]
    newer = last["producer_epoch"] + (_NEWER_EPOCHS if stage.scripted is None else 1)
    stage.say(f"User:{_OTHER} sends a batch under that producer id, with epoch {newer}")
    thief = Scripted()
    thief.open(stage.servers.bootstrap_servers, _OTHER)
    thief.identity = last["producer_id"], newer
    thief.send(stage.topic, 0, B.numbers)
    thief.wait()
    thief.close()
    stage.say(f"User:{_OWNER}, who does not know, sends C")
    stage.send(C)
    stage.wait()
    return thief


SCENARIOS: Final = (
    Scenario(
        name="right-revoked",
        shows="A producer that loses its right to write gives up what is refused, and continues when it has it again.",
        faults="the right to write is taken away (`deny right=write`) while B is sent",
        holds="B is answered TOPIC_AUTHORIZATION_FAILED, given up and not stored. What the producer sends "
        "under its next epoch, or without leaving a gap, is stored once, in order.",
        play=_play_right_revoked,
        expected=Outcome.REFUSED,
    ),
    Scenario(
        name="session-expired",
        shows="A session that ends with a batch in flight costs a connection, and nothing else.",
        faults="the session ends after B (`expire_login`)",
        holds="C is not processed on the old connection; the producer connects, logs in and sends it again, "
        "and everything is stored once, in order.",
        play=_play_session_expired,
        users=(_OWNER,),
    ),
    Scenario(
        name="stolen-producer-id",
        shows="A client that may write to a topic can fence another principal's producer there, by its id.",
        faults="another principal writes under the producer's id, with a newer epoch",
        holds="As in Kafka, the owner's next batch is answered INVALID_PRODUCER_EPOCH and not stored.",
        play=_play_stolen_producer_id,
        users=(_OWNER, _OTHER),
        expected=Outcome.REFUSED,
    ),
    Scenario(
        name="bound-producer-id",
        shows="A producer id that is bound to its principal is of no use to another.",
        faults="another principal writes under the producer's id, with a newer epoch",
        holds="It is answered CLUSTER_AUTHORIZATION_FAILED, whatever ACLs say, and nothing of it is stored; the "
        "owner notices nothing.",
        play=_play_bound_producer_id,
        settings={"producer_id_binding": "principal"},
        users=(_OWNER, _OTHER),
    ),
)
