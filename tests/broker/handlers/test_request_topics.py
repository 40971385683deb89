"""Tests of the topics that a request names."""

from __future__ import annotations

import pytest

from echoless.broker.handlers.request_topics import topic_key, without
from echoless.protocol.produce_request import ProduceRequest, TopicRecords


def test_a_topic_under_no_known_name_is_our_mistake() -> None:
    """Refusals compare keys: what has none would pass them all."""
    with pytest.raises(TypeError, match="tuple has none of the fields"):
        topic_key(("orders", []))


def test_a_request_is_never_left_whole_because_its_topics_have_no_key() -> None:
    """The refused part stays out, or the request fails."""
    body = ProduceRequest(None, -1, 1000, [TopicRecords("orders", [])._asdict()])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        without(body, lambda _topic, _partition: True)
