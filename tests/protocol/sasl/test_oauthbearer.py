"""OAUTHBEARER: how a token travels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echoless.protocol.sasl.mechanism import SaslError
from echoless.protocol.sasl.oauthbearer import BearerMessage, bearer_message, read_bearer

END = "\x01\x01"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (f"n,,\x01auth=Bearer a.b.c{END}", BearerMessage("", "a.b.c")),
        (f"n,a=alice,\x01auth=bearer   a_-.b.{END}", BearerMessage("alice", "a_-.b.")),
        (f"y,a=a=2Cb,\x01auth=BEARER x{END}", BearerMessage("a,b", "x")),
    ],
)
def test_a_message(text: str, read: BearerMessage) -> None:
    """As RFC 7628 and Kafka's clients write it."""
    assert read_bearer(text.encode()) == read


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\x01",
        "n,,",
        "n,,\x01\x01",
        "n,,\x01auth=Bearer x\x01",
        f"p=tls-unique,,\x01auth=Bearer x{END}",
        f"n,a=,\x01auth=Bearer x{END}",
        f"n,a=a=b,\x01auth=Bearer x{END}",
        f"n,,\x01auth=Basic x{END}",
        f"n,,\x01auth=Bearer{END}",
        f"n,,\x01auth=Bearer x y{END}",
        f"n,,\x01auth=Bearer x\x01auth=Bearer y{END}",
        f"n,,\x01host=h{END}",
        f"n,,\x01auth=Bearer é{END}",
        f"n,,\x01auth=Bearer x{END}more",
        "n,,\x01auth=Bearer " + "x" * 70_000 + END,
        "n,,\x01" + "a=b\x01" * 10_000,
    ],
)
def test_what_is_no_message(text: str) -> None:
    """It fails, and the error does not repeat the token."""
    with pytest.raises(SaslError) as caught:
        read_bearer(text.encode())
    assert "Bearer x" not in str(caught.value)


def test_extensions_are_refused_by_name() -> None:
    """No one here knows any."""
    with pytest.raises(SaslError, match="1 extensions are invalid: tenant"):
        read_bearer(bearer_message("a.b.c", extensions={"tenant": "x"}))


@given(data=st.binary(max_size=200))
def test_any_bytes_are_read_or_fail(data: bytes) -> None:
    """By no other exception."""
    try:
        read_bearer(b"n,,\x01" + data)
    except SaslError:
        return


@given(user=st.text(st.characters(exclude_characters="\0\x01", exclude_categories=["Cs"])))
def test_a_name_survives(user: str) -> None:
    """Commas, equals signs and all."""
    assert read_bearer(bearer_message("a.b.c", user)) == BearerMessage(user, "a.b.c")


def test_the_token_is_not_shown() -> None:
    """In no text of the message."""
    assert "secret" not in repr(read_bearer(bearer_message("secret")))
