"""The topic for readers of transactions holds what it says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from echoless.testkit.echoless import Echoless


@pytest.fixture(scope="module")
def echoless() -> Iterator[Echoless]:
    """The broker of the plugin's fixture, one for all tests."""
    with Echoless() as echoless:
        yield echoless


@pytest.mark.parametrize("is_commit", [True, False])
def test_its_values_and_offsets(echoless: Echoless, *, is_commit: bool) -> None:
    """The leader's ends are those that it names; released, it holds nothing back."""
    topic = echoless.transactional_topic(behind=6)
    assert (topic.last_stable_offset, topic.log_end_offset) == ends(echoless, topic.name)
    assert topic.log_end_offset == len(topic.committed) + len(topic.aborted) + 1 + 9
    assert topic.readable == topic.committed[:5]
    assert not {*topic.committed} & {*topic.aborted}
    topic.release(is_commit=is_commit)
    assert ends(echoless, topic.name) == (topic.log_end_offset + 1,) * 2
    assert (b"held" in topic.committed, b"held" in topic.aborted) == (is_commit, not is_commit)
    values = [one.value for one in echoless.records(topic.name)]
    assert sorted(values) == sorted([*topic.committed, *topic.aborted])


def test_the_order_of_what_is_committed_is_that_of_the_log(echoless: Echoless) -> None:
    """With `held` at its place."""
    topic = echoless.transactional_topic()
    topic.release()
    stored = [one.value for one in echoless.records(topic.name)]
    assert [one for one in stored if one in set(topic.committed)] == topic.committed


def ends(echoless: Echoless, topic: str) -> tuple[int, int]:
    """The last stable offset and the end of the log."""
    (found,) = [one for one in echoless.admin.get("/topics")["topics"] if one["name"] == topic]
    row = found["partitions"][0]
    return row["last_stable_offset"], row["log_end_offset"]
