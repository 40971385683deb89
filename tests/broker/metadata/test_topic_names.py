"""Topic names follow Kafka's rules."""

from __future__ import annotations

import pytest

from echoless.broker.metadata.topic_names import check_collision, check_topic_name
from echoless.protocol.errors import ErrorCode, KafkaError


@pytest.mark.parametrize("name", ["a", "A-b_c.0", "...", "a" * 249, "-"])
def test_legal_names(name: str) -> None:
    """Letters, digits, '.', '_' and '-', up to 249 of them."""
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a/b", "a b", "ä", "a\n", "a\0", "a:b"])
def test_illegal_names(name: str) -> None:
    """Anything else is INVALID_TOPIC_EXCEPTION."""
    with pytest.raises(KafkaError) as failure:
        check_topic_name(name)
    assert failure.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(("name", "other"), [("a.b", "a_b"), ("a_b.c", "a.b_c")])
def test_names_that_metrics_cannot_tell_apart_collide(name: str, other: str) -> None:
    """'.' and '_' count as the same character; both names are in the message."""
    with pytest.raises(KafkaError, match="collides") as failure:
        check_collision(name, ["x", other])
    assert failure.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert name in failure.value.message
    assert other in failure.value.message


def test_other_names_do_not_collide() -> None:
    """The same name is a matter of existence, and '-' is no '_'."""
    check_collision("a.b", ["a.b", "a-b", "ab", "a.b.c"])
    check_collision("ab", ["a.b"])
