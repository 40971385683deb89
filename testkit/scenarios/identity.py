"""Scenarios of a producer's identity: restarted, elsewhere, fenced, forgotten; one broker."""

from __future__ import annotations

from typing import Final

from echoless.testkit.admin import Admin
from echoless.testkit.clients.scripted import Scripted
from echoless.testkit.scenarios.scenario import Scenario
from echoless.testkit.scenarios.spans import A, B, C
from echoless.testkit.scenarios.stage import Stage
from echoless.testkit.scenarios.verdict import Outcome

_EXPIRATION_MS: Final = "400"
_NEWER_EPOCHS: Final = 9
"""The second producer's lead in epochs, so that a client that bumps its own stays behind."""


def _play_producer_restarted(stage: Stage) -> None:
    stage.create_topic()
    stage.begin()
    stage.say(f"{A} is stored; the producer ends before it could remember that")
    stage.send(A)
    stage.wait()
    stage.client.close()
    stage.say("it starts again with a new producer id, and sends A again: nothing tells them apart")
    stage.open()
    stage.send(A)
    stage.wait()
    if stage.scripted is not None:
        _play_resumed(stage, stage.scripted)


def _play_resumed(stage: Stage, producer: Scripted) -> None:
    topic = stage.create_topic("-resumed")
    stage.begin()
    stage.send(A)
    stage.wait()
    kept, sequences = producer.identity, {(topic, 0): A.first}
    producer.close()
    stage.say("resumed with the producer id, epoch and sequence of before, A is recognised")
    producer.open(stage.servers.bootstrap_servers)
    producer.identity, producer.sequences = kept, sequences
    stage.send(A)
    stage.wait()
    decisions = [one["decision"] for one in stage.decisions() if one["topic"] == topic]
    stage.require(
        "the resumed producer's A is a duplicate",
        holds=decisions == ["append", "append", "duplicate"],
        seen=decisions,
    )


def _play_other_partition(stage: Stage) -> None:
    stage.create_topic(partitions=2)
    stage.begin()
    stage.say(f"{A} is sent to partition 0, and then its records to partition 1")
    stage.send(A, partition=0)
    stage.wait()
    stage.send(A, partition=1)
    stage.wait()


def _play_zombie(stage: Stage) -> None:
    stage.create_topic()
    stage.begin()
    stage.say(f"{A} is stored")
    stage.send(A)
    stage.wait()
    last = stage.decisions()[-1]
    newer = last["producer_epoch"] + (_NEWER_EPOCHS if stage.scripted is None else 1)
    stage.say(
        f"a second producer has taken over its id, with epoch {newer}, and stores its first batch, B"
    )
    successor = Scripted()
    successor.open(stage.servers.bootstrap_servers)
    successor.identity = last["producer_id"], newer
    successor.send(stage.topic, 0, B.numbers)
    successor.wait()
    successor.close()
    stage.say("the first one, which does not know, sends C")
    stage.send(C)
    stage.wait()
    fenced = [one for one in stage.decisions() if one["error"] == "INVALID_PRODUCER_EPOCH"]
    stage.require("C is fenced: INVALID_PRODUCER_EPOCH", holds=bool(fenced))


def _play_expired_producer_id(stage: Stage) -> None:
    stage.create_topic()
    stage.begin()
    stage.say(f"{A} is stored; then nothing for longer than producer_id_expiration_ms")
    stage.send(A)
    stage.wait()
    path = f"/producers/{stage.topic}/0"
    admin = Admin(stage.broker().admin)
    stage.wait_until("the producer is forgotten", lambda: not admin.get(path)["count"])
    stage.say(
        "the broker keeps only the newest batch of the producer, which continues with B and C"
    )
    stage.send(B)
    stage.wait()
    stage.send(C)
    stage.wait()
    decisions = {one["decision"] for one in stage.decisions()}
    stage.require("nothing is refused", holds=decisions == {"append"}, seen=decisions)


SCENARIOS: Final = (
    Scenario(
        name="producer-restarted",
        shows="A restarted producer has a new id: its resends are new to the broker.",
        faults="the producer ends without remembering that A was stored",
        holds="A is stored twice, by the nature of idempotence; a producer that resumes under its "
        "old id, epoch and sequence stores it once (`docs/client.md`).",
        play=_play_producer_restarted,
        expected=Outcome.TWICE,
    ),
    Scenario(
        name="other-partition",
        shows="Each partition remembers producers on its own.",
        faults="the application sends the same records to another partition",
        holds="A is in both partitions: sequences count per partition, and no broker compares "
        "records. Choose partitions by the key, not by chance.",
        play=_play_other_partition,
        expected=Outcome.TWICE,
    ),
    Scenario(
        name="zombie",
        shows="Of two producers with one id, the one with the newer epoch wins.",
        faults="a second producer writes under the first one's id with a newer epoch",
        holds="The older one's batch is answered INVALID_PRODUCER_EPOCH and not stored.",
        play=_play_zombie,
        expected=Outcome.REFUSED,
    ),
    Scenario(
        name="expired-producer-id",
        shows="A producer that the broker has forgotten goes on.",
        faults=f"`producer_id_expiration_ms={_EXPIRATION_MS}`, and a pause",
        holds="Of a producer that expired the broker keeps the newest batch, so the next one follows, under "
        "the same epoch.",
        play=_play_expired_producer_id,
        settings={"producer_id_expiration_ms": _EXPIRATION_MS},
    ),
)
