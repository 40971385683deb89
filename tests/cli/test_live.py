"""The commands that talk to a running broker, against a real one."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import Command
from tests.support.echoless import Echoless


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Echoless]:
    running = Echoless(tmp_path_factory.mktemp("broker"))
    running.start()
    yield running
    running.kill()


@pytest.fixture(autouse=True)
def bootstrap(broker: Echoless, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands find the broker as a user's do: by the environment."""
    monkeypatch.setenv("ECHOLESS_BOOTSTRAP_SERVER", broker.kafka_address)


def _produce(broker: Echoless, topic: str, count: int) -> None:
    async def send() -> None:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(bootstrap_servers=broker.kafka_address, enable_idempotence=True)
        await producer.start()
        for index in range(count):
            await producer.send_and_wait(topic, b"value %d" % index, partition=0)
        await producer.stop()

    asyncio.run(send())


def test_topic_from_creation_to_deletion(echoless: Command) -> None:
    """A topic is created with its overrides, listed, described, altered and deleted."""
    created = echoless(
        "topics", "create", "life", "--partitions", 2, "--config", "segment.bytes=1MiB"
    )
    assert (created.code, created.err) == (0, "created life\n")
    listed = {topic["name"]: topic for topic in echoless("topics", "list", "--json").json}
    assert (listed["life"]["partitions"], listed["life"]["replication_factor"]) == (2, 1)
    altered = echoless(
        *("topics", "alter", "life", "--partitions", 3, "--config", "retention.ms=1h"),
        *("--delete-config", "segment.bytes"),
    )
    assert altered.code == 0, altered.err
    (described,) = echoless("topics", "describe", "life", "--json").json
    assert described["configs"] == {"retention.ms": "3600000"}
    assert [p["partition"] for p in described["partitions"]] == [0, 1, 2]
    assert described["partitions"][0]["leader"] == 1
    assert described["partitions"][0]["end_offset"] == 0
    assert echoless("topics", "delete", "life").code == 0
    gone = echoless("topics", "describe", "life")
    assert gone.code == 1
    assert gone.err == (
        "echoless: life: UNKNOWN_TOPIC_OR_PARTITION (echoless topics list shows what there is)\n"
    )


def test_tables_are_for_people(echoless: Command) -> None:
    """Without `--json` the same facts are a table."""
    echoless("topics", "create", "table")
    assert "table" in echoless("topics", "list").out
    assert "leader" in echoless("topics", "describe", "table").out


def test_refusals_carry_the_reason_of_the_broker(echoless: Command) -> None:
    """A refusal is one line with the broker's own words, and exit code 1."""
    echoless("topics", "create", "twice")
    again = echoless("topics", "create", "twice")
    assert (again.code, again.err.startswith("echoless: twice: TOPIC_ALREADY_EXISTS")) == (1, True)
    assert echoless("topics", "create", "twice", "--if-not-exists").code == 0
    refused = echoless("topics", "create", "archived", "--config", "cleanup.policy=archive")
    assert "INVALID_CONFIG (cleanup.policy takes" in refused.err
    assert "nothing to alter" in echoless("topics", "alter", "twice").err
    assert echoless("topics", "delete", "never", "--if-exists").code == 0
    assert echoless("topics", "delete", "never").code == 1


def test_producers_are_those_that_wrote(broker: Echoless, echoless: Command) -> None:
    """DescribeProducers is shown for one partition or for all, as a table or as JSON."""
    echoless("topics", "create", "sent", "--partitions", 2)
    _produce(broker, "sent", 3)
    (row,) = echoless("producers", "sent", "--json").json
    assert (row["partition"], row["producer_epoch"], row["last_sequence"]) == (0, 0, 2)
    assert row["transaction_start_offset"] is None
    assert echoless("producers", "sent", "--partition", 1, "--json").json == []
    assert str(row["producer_id"]) in echoless("producers", "sent", "--partition", 0).out
    missing = echoless("producers", "sent", "--partition", 2)
    assert missing.err == "echoless: sent has partitions 0 to 1, not 2\n"


def test_partitions_are_moved_by_name(echoless: Command) -> None:
    """Requests of `reassign` reach the broker, and its refusals the user; a lone broker moves nothing."""
    echoless("topics", "create", "moved", "--partitions", 2)
    here = echoless("topics", "reassign", "moved", "--partition", 1, "--replicas", "1")
    assert (here.code, here.err) == (0, "accepted: moved-1\n")
    assert echoless("topics", "reassign", "--json").json == []
    assert "0 partitions being moved" in echoless("topics", "reassign", "moved").out
    away = echoless("topics", "reassign", "moved", "--replace", "1=2")
    assert away.code == 1
    assert "accepted: nothing" in away.err
    assert "moved-0: INVALID_REPLICA_ASSIGNMENT" in away.err
    assert echoless("topics", "reassign", "moved", "--cancel").err == "accepted: nothing\n"


def test_reassignments_that_make_no_sense(echoless: Command) -> None:
    """They are refused before any request to the broker, or by its answer."""
    for arguments, message in (
        (("t", "--partition", 0, "--replicas", "1", "--cancel"), "pass only one of"),
        (("t", "--replicas", "1"), "name the topic, and its partitions"),
        (("--partition", 0, "--replicas", "1"), "name the topic, and its partitions"),
        (("t", "--partition", 0, "--replicas", "one"), "takes broker ids with ',' between them"),
        (("--replace", "1"), "takes OLD=NEW, not '1'"),
        (("never",), "never: UNKNOWN_TOPIC_OR_PARTITION"),
    ):
        echoless("topics", "create", "t", "--if-not-exists")
        ran = echoless("topics", "reassign", *arguments)
        assert ran.code == 1
        assert message in ran.err


def test_leaders_are_elected_by_name(echoless: Command) -> None:
    """A partition that needs no election is no failure; one that cannot be elected is."""
    echoless("topics", "create", "elected")
    for arguments in ((), ("elected",), ("elected", "--partition", 0), ("elected", "--unclean")):
        ran = echoless("topics", "elect-leaders", *arguments)
        assert (ran.code, ran.err) == (0, "elected: none\n")
    missing = echoless("topics", "elect-leaders", "elected", "--partition", 3)
    assert "elected-3: UNKNOWN_TOPIC_OR_PARTITION" in missing.err
    assert "name the topic" in echoless("topics", "elect-leaders", "--unclean").err


def test_admin_port_shows_the_same_broker(broker: Echoless, echoless: Command) -> None:
    """Over HTTP the running broker shows its topics, producers, decisions and counters."""
    echoless("topics", "create", "shown")
    _produce(broker, "shown", 2)
    assert _get(broker, "/ready")["status"] == "ready"
    topics = {topic["name"]: topic for topic in _get(broker, "/topics")["topics"]}
    assert topics["shown"]["partitions"][0]["log_end_offset"] == 2
    (producer,) = _get(broker, "/producers/shown/0")["producers"]
    assert [batch["base_sequence"] for batch in producer["window"]] == [0, 1]
    decisions = _get(broker, "/decisions?topic=shown")["decisions"]
    assert [one["decision"] for one in decisions] == ["append", "append"]


def _get(broker: Echoless, path: str) -> Any:
    with urllib.request.urlopen(f"http://{broker.admin_address}{path}", timeout=60) as response:
        return json.load(response)


@pytest.mark.slow
def test_wrong_port_is_said_so(broker: Echoless, echoless: Command) -> None:
    """The HTTP port does not speak Kafka, and the message names the port that does."""
    ran = echoless("topics", "list", "--bootstrap-server", broker.admin_address)
    assert ran.err == (
        f"echoless: {broker.admin_address}: does not speak the Kafka protocol; "
        f"use the broker's --listen address; if it has TLS or SASL, pass --command-config\n"
    )


@pytest.mark.crash
def test_verify_finds_nothing_after_a_kill(tmp_path: Path, echoless: Command) -> None:
    """The state left by kill -9 may need recovery, but has no problem."""
    broker = Echoless(tmp_path)
    broker.start()
    _produce(broker, "killed", 20)
    broker.kill()
    ran = echoless("verify", broker.data_dir, "--json")
    assert (ran.code, ran.json["problems"]) == (0, [])
    assert ran.json["partitions"][0]["records"] == 20


@pytest.mark.parametrize(
    "command",
    [("decisions",), ("faults", "list"), ("trace",)],
    ids=["decisions", "faults", "trace"],
)
def test_an_admin_port_that_is_not_there(echoless: Command, command: tuple[str, ...]) -> None:
    """The line says what to look at."""
    ran = echoless(*command, "--admin", "127.0.0.1:1")
    assert ran.code == 1
    assert ran.err.startswith("echoless: http://127.0.0.1:1/")
    assert ran.err.endswith(
        ": Connection refused; is the broker running, and is this its --admin-listen address?\n"
    )


def test_a_refusal_says_what_to_do(echoless: Command) -> None:
    """The remedy follows the broker's own words."""
    assert echoless("acls", "list").err == (
        "echoless: acls: SECURITY_DISABLED (No Authorizer is configured on the broker; "
        "start the brokers with authorizer=acl)\n"
    )


def test_one_is_no_plural(echoless: Command, broker: Echoless) -> None:
    """Titles count as people do."""
    echoless("topics", "create", "alone")
    assert echoless("producers", "alone").out == "alone: 0 producers\n"
    _produce(broker, "alone", 1)
    assert echoless("producers", "alone").out.startswith("alone: 1 producer\n")


def test_lists_are_lists(echoless: Command) -> None:
    """Each list is an array as JSON, an empty one too."""
    for command in ("topics", "groups", "users"):
        assert isinstance(echoless(command, "list", "--json").json, list), command


def test_features_are_described_and_upgraded(echoless: Command) -> None:
    """A broker alone is at its newest level; a level that it does not know is refused."""
    described = {one["feature"]: one for one in echoless("features", "describe", "--json").json}
    assert described["echoless.version"]["finalized"] == 1
    assert "echoless.version" in echoless("features", "describe").out
    assert echoless("features", "upgrade").err == "echoless.version is at level 1\n"
    refused = echoless("features", "upgrade", "--level", 9)
    assert refused.code == 1
    assert "not supported by these brokers: 1" in refused.err
