"""PLAIN: what is a token, and what is not."""

from __future__ import annotations

import pytest

from echoless.protocol.sasl.mechanism import TOKEN_BYTES_MAX, SaslError
from echoless.protocol.sasl.plain import plain_token, read_plain


@pytest.mark.parametrize("token", [b"\0alice\0pw", b"alice\0alice\0pw", plain_token("alice", "pw")])
def test_a_token_has_a_user_and_a_password(token: bytes) -> None:
    """The authorization id may be left out, or be the user's own name; no password is shown."""
    read = read_plain(token)
    assert read == ("alice", "pw")
    assert "pw" not in repr(read)


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (b"bob\0alice\0pw", "authorization id that is different"),  # vector 10
        (b"", "expected 3 tokens, got 1"),
        (b"alice\0pw", "expected 3 tokens, got 2"),
        (b"\0alice\0pw\0", "expected 3 tokens, got 4"),
        (b"\0\0pw", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"\0al\xffice\0pw", "not UTF-8"),
        (b"\0alice\0" + bytes(TOKEN_BYTES_MAX), "too long"),
    ],
)
def test_anything_else_is_refused(token: bytes, said: str) -> None:
    """Without the password in the message."""
    with pytest.raises(SaslError, match=said) as caught:
        read_plain(token)
    assert "pw" not in str(caught.value)
