"""The mirror's checks of two clusters before it copies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from echoless.pipeline.commands import app
from echoless.pipeline.mirror.clusters import (
    MirrorError,
    TargetTopics,
    check_different,
    choose_topics,
    partition_counts,
)
from tests.pipeline.exactly_once.broker_thread import BrokerThread


@pytest.fixture
def target(tmp_path: Path) -> Iterator[str]:
    with BrokerThread(tmp_path / "target", num_partitions=1) as broker:
        yield broker.address


def test_missing_topics_and_partitions_are_made(target: str) -> None:
    """A topic that is missing gets as many partitions as the source has, one with fewer gets more."""
    topics = TargetTopics(target, creates=True)
    topics.ensure({"orders": 2})
    assert partition_counts(target) == {"orders": 2}
    topics.ensure({"orders": 3, "payments": 1})
    assert partition_counts(target) == {"orders": 3, "payments": 1}


def test_many_topics_are_made_in_portions(target: str) -> None:
    """A request for thousands would not be answered in time; none is left out."""
    topics = TargetTopics(target, creates=True)
    wanted = {f"t.{number}": 1 for number in range(120)}
    topics.ensure(wanted)
    assert partition_counts(target) == wanted
    larger = dict.fromkeys(wanted, 2)
    topics.ensure(larger)
    assert partition_counts(target) == larger


def test_a_target_that_does_not_fit_is_refused(target: str) -> None:
    """Without --create-topics the message says what lacks, and what to do."""
    TargetTopics(target, creates=True).ensure({"orders": 2})
    strict = TargetTopics(target, creates=False)
    strict.ensure({"orders": 2})
    with pytest.raises(MirrorError, match=r"orders needs 3 partitions, the target has 2: create"):
        strict.ensure({"orders": 3})
    with pytest.raises(MirrorError, match="payments needs 1 partitions, the target does not have"):
        strict.ensure({"payments": 1})


def test_a_topic_that_cannot_be_made_is_told(target: str) -> None:
    """The broker's reason is passed on."""
    with pytest.raises(MirrorError, match="cannot be created in the target"):
        TargetTopics(target, creates=True).ensure({"no spaces": 1})


def test_a_cluster_is_not_mirrored_onto_itself(target: str) -> None:
    """It would read what it writes for ever."""
    with pytest.raises(MirrorError, match="one cluster: a --prefix is needed"):
        check_different(target, target)


def test_a_pattern_does_not_match_what_the_mirror_writes(target: str) -> None:
    """Copies of copies would follow, each under a longer name."""
    TargetTopics(target, creates=True).ensure({"orders": 1})
    options = ("--from", target, "--to", target, "--position", "group", "--once", "--create-topics")
    names = ("--topics-pattern", "o.*", "--prefix", "o-")
    ran = CliRunner().invoke(app, ["mirror", *options, *names], env={"COLUMNS": "300"})
    assert ran.exit_code == 1
    assert "with which no name matches --topics-pattern" in ran.output
    assert partition_counts(target) == {"orders": 1}


def test_topics_are_named_or_matched_whole() -> None:
    """A pattern has to match the whole name; a name has to be there."""
    counts = {"orders": 1, "orders-old": 1, "payments": 2}
    assert choose_topics(counts, [], "orders.*") == ["orders", "orders-old"]
    assert choose_topics(counts, [], "orders") == ["orders"]
    with pytest.raises(MirrorError, match="no topic of the source matches"):
        choose_topics(counts, [], "order")
    with pytest.raises(MirrorError, match="the source has no topic refunds"):
        choose_topics(counts, ["orders", "refunds"], None)
