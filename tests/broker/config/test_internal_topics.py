"""The table of internal topics."""

from __future__ import annotations

import pytest

from echoless.broker.config.internal_topics import (
    CONSUMER_OFFSETS,
    INTERNAL_TOPICS,
    REFUSED_BY_0_2,
    TRANSACTION_STATE,
    check_allowed,
    in_force,
    replacing,
)
from echoless.broker.config.names import Config
from echoless.broker.config.topic import topic_in_force, validated
from echoless.protocol.errors import ErrorCode, KafkaError


@pytest.mark.parametrize("name", INTERNAL_TOPICS)
def test_each_row_names_settings_that_exist(name: str) -> None:
    """Numbers come from the configuration, and what a topic is created with is valid and compacted."""
    topic, config = INTERNAL_TOPICS[name], Config()
    assert topic.name == name
    assert topic.partition_count(config) > 0
    assert topic.replication_factor(config) > 0
    assert validated({**topic.initial, **topic.fixed}) == {**topic.initial, **topic.fixed}
    assert topic.fixed["cleanup.policy"] == "compact"
    assert not topic.fixed.keys() & topic.initial.keys()


def test_fixed_settings_are_in_force_whatever_is_stored() -> None:
    """Retention that someone has written into the tree deletes no state; other topics keep what they set."""
    stored = {"retention.ms": "1", "segment.bytes": "4096"}
    offsets = in_force(CONSUMER_OFFSETS, stored)
    assert offsets["retention.ms"] == "-1"
    assert offsets["segment.bytes"] == "4096"
    assert in_force("t", stored) == stored


def test_min_isr_is_stored_when_the_topic_is_created() -> None:
    """If there is one; else the broker's is in force, also when it changes later."""
    transactions, name = INTERNAL_TOPICS[TRANSACTION_STATE], "min.insync.replicas"
    assert name not in transactions.created_with(Config())
    assert transactions.created_with(Config(transaction_state_log_min_isr=2))[name] == "2"
    groups = INTERNAL_TOPICS[CONSUMER_OFFSETS]
    assert name not in groups.created_with(Config(transaction_state_log_min_isr=2))


def test_older_releases_meet_a_setting_that_they_do_not_know() -> None:
    """It is stored with the topic whatever else is, is in force nowhere, and is no setting of other topics."""
    created = INTERNAL_TOPICS[TRANSACTION_STATE].created_with(Config())
    assert created.items() >= REFUSED_BY_0_2.items()
    assert replacing(TRANSACTION_STATE, {}) == REFUSED_BY_0_2
    assert replacing("t", {"segment.bytes": "4096"}) == {"segment.bytes": "4096"}
    assert topic_in_force(Config(), TRANSACTION_STATE, created).unreadable is None
    assert topic_in_force(Config(), "t", REFUSED_BY_0_2).unreadable is not None


def test_only_fixed_settings_are_refused() -> None:
    """A change to the value that is in force anyway is allowed."""
    check_allowed(CONSUMER_OFFSETS, {"cleanup.policy": "compact", "segment.bytes": "4096"})
    check_allowed("t", {"cleanup.policy": "delete"})
    with pytest.raises(KafkaError) as refused:
        check_allowed(CONSUMER_OFFSETS, {"cleanup.policy": "delete"})
    assert refused.value.code is ErrorCode.INVALID_CONFIG
