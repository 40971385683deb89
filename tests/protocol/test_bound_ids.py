"""Bound producer ids: the number, the tag and the lease of an id are independent of each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.bound_ids import NUMBER_END, TAG_BITS, UNBOUND, principal_tag, tag_of, tagged
from echoless.protocol.leases import is_leased, leased_id

numbers = st.integers(0, NUMBER_END - 1)
tags = st.integers(0, (1 << TAG_BITS) - 1)


@given(numbers, tags, st.booleans())
def test_an_id_says_whose_it_is_and_whether_it_is_leased(
    number: int, tag: int, leased: bool
) -> None:
    """It is an id that every client can hold: not negative, and of 64 bits."""
    producer_id = tagged(number, tag)
    if leased:
        producer_id = leased_id(producer_id)
    assert 0 <= producer_id < 2**63
    assert (tag_of(producer_id), is_leased(producer_id)) == (tag, leased)
    assert producer_id % NUMBER_END == number


@given(numbers)
def test_an_id_that_is_not_bound_has_no_tag(number: int) -> None:
    """Leased or not."""
    assert tag_of(number) == tag_of(leased_id(number)) == UNBOUND


@given(st.binary(max_size=40), st.text(max_size=40))
def test_every_principal_has_a_tag(secret: bytes, principal: str) -> None:
    """Always the same one, which is never that of ids that are not bound."""
    tag = principal_tag(secret, principal)
    assert UNBOUND < tag < 1 << TAG_BITS
    assert principal_tag(secret, principal) == tag


def test_principals_have_tags_of_their_own() -> None:
    """With one secret; another secret gives other ones."""
    tags = {principal_tag(b"secret", f"User:{number}") for number in range(100)}
    assert len(tags) == 100
    assert principal_tag(b"other", "User:1") != principal_tag(b"secret", "User:1")
