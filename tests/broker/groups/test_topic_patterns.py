"""Regular expressions of groups: what one may cost, and that addresses take turns between the pieces of the work."""

from __future__ import annotations

import asyncio

import pytest

from echoless.broker.groups import topic_patterns
from echoless.broker.groups.topic_patterns import check_pattern, matching_names
from echoless.protocol.errors import ErrorCode, KafkaError

COSTLY = "((a{0,20}){0,30})b"
NAMES = sorted("a" * 200 + f"{number:06d}" for number in range(40))


@pytest.mark.parametrize(
    "pattern",
    [
        "((a{0,30}){0,30})b",
        "(a{0,100}){0,19}b",
        r"(\p{L}{0,10}){0,10}",
        r"\pL" * 300,
        "x" * 1025,
        "(",
        "|".join(f"[a-z]{{0,{n}}}" for n in range(300, 400)),
    ],
)
async def test_an_expression_that_costs_too_much_is_refused_with_the_reason(pattern: str) -> None:
    """Its length, its classes of Unicode and its steps are bounded."""
    with pytest.raises(KafkaError) as refused:
        await check_pattern(pattern, "a")
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refused.value.message


@pytest.mark.parametrize(
    "pattern", ["t.*", "orders-.*|payments-[a-z]+", r"\p{L}*", "(?i)ABC.{0,99}", ""]
)
async def test_usual_expressions_are_not_refused(pattern: str) -> None:
    """Even where they name all letters there are."""
    await check_pattern(pattern, "a")


async def test_an_expression_matches_the_whole_name_and_keeps_the_order() -> None:
    """Groups in it do not matter."""
    names = ["a", "ab", "abc", "b", "xab"]
    assert await matching_names("(a)(b)?", names, "a") == ["a", "ab"]
    assert await matching_names(".*b", names, "a") == ["ab", "b", "xab"]


async def test_a_costly_expression_is_matched_with_few_names_at_a_time() -> None:
    """Another address waits for one piece of them, and a piece takes no more steps than one turn may."""
    await check_pattern(COSTLY, "a")
    steps = topic_patterns._compiled(COSTLY, topic_patterns._MATCHED_BYTES).programsize
    costly = asyncio.ensure_future(matching_names(COSTLY, NAMES, "a"))
    await asyncio.sleep(0)
    assert await matching_names("a.*", NAMES[:5], "b") == NAMES[:5]
    assert not costly.done()
    assert await costly == []
    found, position = topic_patterns._match_some("a.*", NAMES, 0)
    assert (len(found), position) == (len(NAMES), len(NAMES))
    _, position = topic_patterns._match_some(COSTLY, NAMES, 0)
    assert position * steps * len(NAMES[0]) <= topic_patterns.STEPS_PER_TURN + steps * len(NAMES[0])
