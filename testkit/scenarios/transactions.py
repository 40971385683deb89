"""Scenarios of transactions: lost and late ends, killed and moved coordinators, zombies, and what readers see meanwhile.

The readers are librdkafka's. So are the producers, but for those of `OF_ALL_FAMILIES`, which each client plays itself. librdkafka,
aiokafka and kafkajs speak the first generation of the protocol: one epoch for many transactions. Java 4 and franz-go speak the second:
each has an epoch of its own, so a late request is refused by that.
"""

from __future__ import annotations

from typing import Any, Final

from echoless.testkit.scenarios.scenario import Scenario
from echoless.testkit.scenarios.stage import Stage
from echoless.testkit.scenarios.transactional_client import TransactionalClient
from echoless.testkit.scenarios.transactional_play import HAVE_TO_BEGIN_ANEW, TransactionalPlay

_STATE: Final = "__transaction_state"
_TIMEOUT_MS: Final = 6000
"""Longer than any client needs to begin and to send, also a JVM on a busy machine."""
OF_ALL_FAMILIES: Final = (
    "commit-answer-lost",
    "zombie-transaction",
    "transaction-timed-out",
    "delayed-end",
    "coordinator-moved",
)
"""Scenarios whose producer is the client that plays."""
_NO_POSITION: Final = -1001
"""librdkafka's offset of a group that has committed none."""


def _play_commit_answer_lost(stage: Stage) -> None:
    play = TransactionalPlay(stage)
    lost = [{"action": "drop_response", "match": {"result": end}} for end in ("commit", "abort")]
    with play.client() as client, stage.faults().script(*lost, match=play.ends):
        play.begin(client, 1, 2)
        stage.say("the answer to the commit is lost; the client asks again on another connection")
        play.end(client, "commit")
        play.await_read([1, 2])
        stage.say(
            "the repetition got the truth; the next transaction is aborted, and its answer lost, too"
        )
        play.begin(client, 3)
        play.end(client, "abort")
        play.begin(client, 4)
        play.done(client.do("commit"))
        play.await_read([1, 2, 4])


def _play_killed_before(stage: Stage) -> None:
    _play_killed(stage, {"topic": _STATE}, "before_append", "before it stores the decision")


def _play_killed_after(stage: Stage) -> None:
    play = {"api": "end_txn"}
    _play_killed(stage, play, "before_response", "when the decision is stored, and not answered")


def _play_killed(stage: Stage, match: dict[str, Any], point: str, when: str) -> None:
    play = TransactionalPlay(stage)
    with play.client() as client:
        play.begin(client, 1, 2)
        broker_id = stage.leader()
        broker = stage.servers.brokers[broker_id]
        crash = {"type": "crash", "point": point}
        with play.fault(crash, match, times=1):
            stage.say(f"the client commits; the coordinator dies {when}")
            client.begin_to("commit")
            broker.wait_for_end()
        stage.start(broker_id)
        stage.say("it starts again; the client repeats the commit")
        play.done(client.answer())
        play.await_read([1, 2])
        play.begin(client, 3)
        play.done(client.do("abort"))
        play.await_read([1, 2])


def _play_zombie_fenced(stage: Stage) -> None:
    play = TransactionalPlay(stage)
    with play.client("first") as first:
        play.begin(first, 1, 2)
        stage.say("in the middle of its transaction a second instance of the same id begins")
        with play.client("second") as second:
            play.begin(second, 3)
            stage.say("the first one wakes up, and goes on")
            outcome = first.do("send", topic=play.topic, numbers=[4], partition=0)
            if outcome["error"] is None:
                outcome = first.do("commit")
            stage.require(
                "the first is fenced for good", holds=outcome["kind"] == "fatal", seen=outcome
            )
            play.done(second.do("commit"))
        play.await_read([3])


def _play_timed_out(stage: Stage) -> None:
    play = TransactionalPlay(stage)
    with play.client(timeout_ms=_TIMEOUT_MS) as client:
        play.begin(client, 1, 2)
        stage.say(
            f"the client is paused for longer than its transaction may take, {_TIMEOUT_MS} ms"
        )
        client.pause()
        play.await_step("complete")
        client.wake()
        stage.say("it wakes up and commits: it hears of the abort, and goes on in another epoch")
        outcome = client.do("commit")
        if play.program.name in HAVE_TO_BEGIN_ANEW:
            stage.require("it is fenced", holds=outcome["error"] is not None, seen=outcome)
            play.reopen(client)
        else:
            stage.require("it has to abort", holds=outcome["kind"] == "abortable", seen=outcome)
            play.done(client.do("abort"))
        play.begin(client, 3)
        play.done(client.do("commit"))
        play.await_read([3])


def _play_delayed_end(stage: Stage) -> None:
    play = TransactionalPlay(stage)
    with play.client() as client:
        play.begin(client, 1, 2)
        stage.say(
            "the commit is held up on its way; the client asks again on a new connection, and is answered"
        )
        with play.fault("hold_request", play.ends, times=1) as held:
            play.done(client.do("commit"))
            play.begin(client, 3)
            stage.say("its next transaction is open when the old request arrives")
            held.release()
            play.await_overtaken()
            play.send(client, 4)
            stage.say("the request had no effect: the second transaction is aborted as a whole")
            play.done(client.do("abort"))
        play.await_read([1, 2])


def _play_coordinator_moved(stage: Stage) -> None:
    play = TransactionalPlay(stage)
    with play.client() as client:
        play.begin(client, 1)
        first = play.coordinator()
        stage.say("the broker that coordinates the transaction is stopped; another one takes over")
        stage.stop(first)
        stage.wait_until("another coordinates", lambda: play.coordinator() != first)
        play.send(client, 2)
        play.done(client.do("commit"))
        play.await_read([1, 2])
        play.begin(client, 3)
        second = play.coordinator()
        stage.say(
            "the first one is back, and the second is stopped in the middle of the next transaction"
        )
        stage.start(first)
        stage.wait_until("both are in sync", play.are_all_in_sync)
        stage.stop(second)
        play.send(client, 4)
        play.done(client.do("abort"))
        stage.start(second)
        play.begin(client, 5)
        play.done(client.do("commit"))
        play.await_read([1, 2, 5])


def _play_marker_delayed(stage: Stage) -> None:
    play = TransactionalPlay(stage, partitions=2)
    late = {"type": "error", "code": "NOT_ENOUGH_REPLICAS"}
    match = {"api": "write_markers", "topic": play.topic, "partition": 1}
    with play.client() as client, play.client("other", suffix="-other") as other:
        play.begin(client, 1)
        play.send(client, 2, partition=1)
        with play.fault(late, match) as rule:
            stage.say(
                "a transaction over two partitions is committed; the marker of one is refused again and again"
            )
            play.done(client.do("commit"))
            rule.wait_for_hits(1)
            play.await_read([1], [])
            stage.say("another producer's transaction goes on where the marker is")
            play.begin(other, 3)
            play.done(other.do("commit"))
            play.await_read([1, 3], [])
            play.require_read([1, 3], [2], is_committed=False)
            stage.say("the marker is let through")
        play.await_read([1, 3], [2])


def _play_isolations(stage: Stage) -> None:
    play = TransactionalPlay(stage)
    with play.client() as client, play.client("other", suffix="-other") as other:
        stage.say("1 is aborted; 2 stays open; 3 is committed behind it")
        play.begin(client, 1)
        play.done(client.do("abort"))
        play.begin(client, 2)
        play.begin(other, 3)
        play.done(other.do("commit"))
        play.require_read([1, 2, 3], is_committed=False)
        play.require_read([])
        stage.say("a reader of committed records waits for 2, though 3 is committed")
        play.done(client.do("commit"))
        play.await_read([2, 3])


def _play_offsets(stage: Stage) -> None:
    play = TransactionalPlay(stage)
    group = {"group": f"{play.topic}-group", "topic": play.topic}
    with play.client() as client:
        play.begin(client, 1)
        play.done(client.do("offsets", **group, offset=5))
        stage.say("a record and a position are aborted together")
        play.done(client.do("abort"))
        _require_position(stage, client, group, _NO_POSITION)
        play.begin(client, 2, 3)
        play.done(client.do("offsets", **group, offset=10))
        broker_id = stage.leader()
        broker = stage.servers.brokers[broker_id]
        crash = {"type": "crash", "point": "before_response"}
        with play.fault(crash, play.ends, times=1):
            stage.say(
                "records and a position are committed together; the broker dies in the middle"
            )
            client.begin_to("commit")
            broker.wait_for_end()
        stage.start(broker_id)
        play.done(client.answer())
        stage.say("after the restart both are there")
        play.await_read([2, 3])
        _require_position(stage, client, group, 10)


def _require_position(
    stage: Stage, client: TransactionalClient, group: dict[str, str], offset: int
) -> None:
    found = client.do("committed", **group)["offset"]
    stage.require(f"the group is at {offset}", holds=found == offset, seen=found)


SCENARIOS: Final = (
    Scenario(
        name="commit-answer-lost",
        shows="A commit whose answer is lost is asked for again, and answered with the truth.",
        faults="one lost answer to a commit, and one to an abort (`drop_response` of EndTxn)",
        holds="The first transaction is committed once, the second aborted once, and the client goes on.",
        play=_play_commit_answer_lost,
    ),
    Scenario(
        name="killed-before-the-decision",
        shows="A coordinator dies before it has stored the decision: nothing is decided, and the commit is repeated.",
        faults="it crashes before the append to `__transaction_state` (`crash`, `before_append`)",
        holds="The transaction is still open after the restart, and committed by the repetition.",
        play=_play_killed_before,
    ),
    Scenario(
        name="killed-after-the-decision",
        shows="A coordinator dies when the decision is stored: its successor sends the markers.",
        faults="it crashes when the record is stored, before the answer (`crash`, `before_response`)",
        holds="The transaction is committed; the repetition is answered so.",
        play=_play_killed_after,
    ),
    Scenario(
        name="zombie-transaction",
        shows="A second instance of a transactional id fences the first one in the middle of its transaction.",
        faults="none: two instances",
        holds="What the first has open is aborted, it gets no further, and the second commits.",
        play=_play_zombie_fenced,
    ),
    Scenario(
        name="transaction-timed-out",
        shows="A transaction times out while its client sleeps; a client of the first generation goes on after it.",
        faults="SIGSTOP",
        holds="The coordinator aborts; the commit is answered so that the client takes a new epoch, and goes on.",
        play=_play_timed_out,
    ),
    Scenario(
        name="delayed-end",
        shows="An EndTxn that was held up does not end the next transaction, although its epoch is the same.",
        faults="an EndTxn that is held until the next transaction is open (`hold_request`)",
        holds="It came on an older connection than the session's newest, and has no effect.",
        play=_play_delayed_end,
    ),
    Scenario(
        name="coordinator-moved",
        shows="The coordinator moves to another broker in the middle of a transaction, and back in the middle of the next one.",
        faults="each broker is stopped in turn (SIGTERM)",
        holds="The first transaction is committed, the second aborted, each as a whole, and the client goes on.",
        play=_play_coordinator_moved,
        brokers=2,
    ),
    Scenario(
        name="marker-delayed",
        shows="The marker of one partition comes late: its readers wait, those of others go on.",
        faults="the marker of one partition is refused until the rule ends (`error` of write_markers)",
        holds="Readers of committed records see each partition up to its last stable offset, and all in the end.",
        play=_play_marker_delayed,
    ),
    Scenario(
        name="both-isolations",
        shows="Readers of committed records wait for an open transaction, others see everything.",
        faults="none",
        holds="The aborted record is seen by readers of uncommitted records alone.",
        play=_play_isolations,
    ),
    Scenario(
        name="offsets-in-a-transaction",
        shows="Records and a group's position are committed together, through a kill, or not at all.",
        faults="the broker crashes when the decision is stored (`crash`, `before_response`)",
        holds="The position is that of the committed transaction, and not that of the aborted one.",
        play=_play_offsets,
    ),
)
