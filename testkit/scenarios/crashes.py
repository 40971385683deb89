"""Scenarios in which brokers die: one that comes back, and a cluster that continues without it."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from echoless.client.connection import BrokerConnection
from echoless.testkit.broker_process import BrokerProcess
from echoless.testkit.native import Native
from echoless.testkit.scenarios.scenario import Scenario
from echoless.testkit.scenarios.spans import A, B, C, D, E
from echoless.testkit.scenarios.stage import Stage

_TWO_BROKERS: Final = {"default_replication_factor": "2", "producer_id_block_size": "10"}
_SEGMENT_BYTES: Final = "1500"
"""Small enough that a new segment begins between A and E, and with it a producer snapshot is
written.
"""
_IDS_EACH: Final = 100


def _play_restored_snapshot(stage: Stage) -> None:
    stage.create_topic(segment_bytes=_SEGMENT_BYTES)
    stage.begin(is_patient=True)
    stage.say("A to E are stored, a new segment begins between them, and no answer arrives")
    with stage.lost_answers(times=1_000_000):
        stage.send_unanswered(A, B, C, D, E)
        stage.say("the broker is killed, and restores its producers from a snapshot and the log")
        stage.kill(1)
    stage.start(1)
    stage.wait()
    _require_repeats(stage)


def _play_leader_killed(stage: Stage) -> None:
    stage.create_topic()
    stage.begin()
    leader = stage.leader()
    stage.say(f"broker {leader} leads, and dies after appending C, before it can answer")
    with stage.fault({"type": "crash", "point": "before_response"}, C, times=1):
        stage.send(A, B)
        stage.wait()
        stage.send_unanswered(C)
        stage.servers.brokers[leader].wait_for_end()
        stage.say("the other broker leads; the producer finds it, and resends C, then D and E")
        stage.send(D, E)
        stage.wait()
    stage.require("another broker leads", holds=stage.leader() != leader)
    stage.start(leader)


def _play_follower_promoted(stage: Stage) -> None:
    _play_promoted_by_log(stage)
    _play_promoted_by_transfer(stage)


def _play_promoted_by_log(stage: Stage) -> None:
    """Plays without state transfer: the follower learns the producer from the batches themselves."""
    stage.create_topic("-by-log")
    stage.begin(is_patient=True)
    leader = stage.leader()
    stage.say(f"A to E are stored on both brokers, the answers lost; broker {leader} is killed")
    with stage.lost_answers(times=1_000_000):
        stage.send_unanswered(A, B, C, D, E)
        stage.kill(leader)
    stage.wait()
    _require_repeats(stage)
    stage.start(leader)


def _play_promoted_by_transfer(stage: Stage) -> None:
    """Plays with it: the records are deleted, so that a fresh follower cannot learn from them."""
    stage.create_topic("-by-transfer")
    stage.begin()
    stage.send(A, B, C)
    stage.wait()
    leader = stage.leader()
    follower = 3 - leader
    stage.say("A to C are stored, then deleted; the follower loses its disk and starts empty")
    _delete_records(stage, stage.servers.brokers[leader])
    stage.kill(follower)
    shutil.rmtree(stage.servers.brokers[follower].data_dir)
    stage.start(follower)
    stage.wait_until("the follower is in sync again", lambda: len(stage.isr()) == 2)
    stage.say(f"it got the producers' state from broker {leader}, which is killed now")
    stage.kill(leader)
    stage.wait_until("the follower leads", lambda: stage.leader() == follower)
    stage.say("D and E follow where C ended, at a broker that never saw A to C")
    stage.send(D, E)
    stage.wait()
    if stage.scripted is not None:
        _require_answer_to_deleted(stage)
    stage.start(leader)


def _require_answer_to_deleted(stage: Stage) -> None:
    """Resends C, byte for byte: only the transferred state can show that it is a repeat."""
    producer = stage.scripted
    assert producer is not None
    where = stage.topic, 0
    kept = producer.sequences[where]
    producer.sequences[where] = C.first
    stage.send(C)
    stage.wait()
    producer.sequences[where] = kept
    last = stage.decisions()[-1]
    stage.require("C is a duplicate", holds=last["decision"] == "duplicate", seen=last)


def _play_id_block_race(stage: Stage) -> None:
    stage.create_topic()
    first, second = (Native(broker.native) for broker in stage.servers.brokers.values())
    stage.say(f"both brokers issue {_IDS_EACH} ids at once, from blocks of 10 in ZooKeeper")
    with ThreadPoolExecutor(2) as threads:
        futures = [threads.submit(_take_ids, native) for native in (first, second)]
        ids = [producer_id for future in futures for producer_id in future.result()]
    stage.require(
        "no id was issued twice",
        holds=len(set(ids)) == 2 * _IDS_EACH,
        seen=sorted(one for one in ids if ids.count(one) > 1),
    )
    for name, broker_id in (("first", 1), ("second", 2)):
        stage.say(f"a producer with an id of the {name} broker stores its records")
        stage.client.open(stage.servers.brokers[broker_id].bootstrap_servers)
        stage.send(A if broker_id == 1 else B)
        stage.wait()


def _take_ids(native: Native) -> list[int]:
    return [native.init_producer_id() for _ in range(_IDS_EACH)]


def _require_repeats(stage: Stage) -> None:
    """Requires that the last answers to batches sent before the crash came from the window."""
    last: dict[int, Any] = {}
    for one in stage.decisions():
        if one["topic"] == stage.topic:
            last[one["base_sequence"]] = one["decision"].removeprefix("divergent_")
    repeated = [last.get(span.first) for span in (A, B, C, D, E)]
    count = 5 if stage.scripted is not None else 1
    stage.require(
        f"after the crash the repeats are found in the window ({count} at least)",
        holds=repeated.count("duplicate") >= count,
        seen=repeated,
    )


def _delete_records(stage: Stage, leader: BrokerProcess) -> None:
    where = stage.topic, 0
    stage.deleted[where] = [int(value) for value in Native(leader.native).values(*where)]
    host, _, port = leader.bootstrap_servers.rpartition(":")
    partition = {"partition_index": 0, "offset": -1}
    topics = [{"name": stage.topic, "partitions": [partition]}]
    with BrokerConnection.open(host, int(port)) as connection:
        connection.request("delete_records", {"topics": topics, "timeout": 10_000})


SCENARIOS: Final = (
    Scenario(
        name="leader-killed",
        shows="A leader dies between the append and the acknowledgement; its successor knows.",
        faults="the leader crashes once C is on both replicas (`crash`, `before_response`)",
        holds="The new leader recognises C, takes D and E, and everything is stored once, in order.",
        play=_play_leader_killed,
        brokers=2,
        settings=_TWO_BROKERS,
    ),
    Scenario(
        name="follower-promoted",
        shows="A promoted follower knows the producers, whether it has their records or not.",
        faults="all answers lost and the leader killed; then, on a second topic, the records deleted, "
        "the follower's disk lost, and the leader killed",
        holds="Without state transfer the follower learnt from the batches; with it, from the "
        "leader's snapshot of its producers. Both recognise repeats and take what follows.",
        play=_play_follower_promoted,
        brokers=2,
        settings=_TWO_BROKERS,
    ),
    Scenario(
        name="id-block-race",
        shows="Two brokers never issue the same producer id.",
        faults="both claim blocks of 10 ids from ZooKeeper at the same time",
        holds="200 ids, all different.",
        play=_play_id_block_race,
        brokers=2,
        settings=_TWO_BROKERS,
    ),
    Scenario(
        name="restored-snapshot",
        shows="A broker that was killed recognises every batch of the window.",
        faults="all answers lost (`drop_response`), then SIGKILL",
        holds="After the restart A to E are resent, and each is found.",
        play=_play_restored_snapshot,
    ),
)
