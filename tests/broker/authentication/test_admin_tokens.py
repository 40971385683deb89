"""`admin_token_file`: what it may say, and the errors, which show no token."""

from __future__ import annotations

from pathlib import Path

import pytest

from echoless.broker.authentication import admin_tokens as module
from echoless.broker.authentication.admin_tokens import Role, Token, Tokens, read_tokens
from echoless.broker.config.loading import ConfigError

OPERATOR = "q3bVvnsS0lD2Zx8KfWm1uA"
MONITORING = "9tq1XrGhe4wPjDk7LsYc0Q=="


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_a_token_has_a_role_and_a_principal(tmp_path: Path) -> None:
    """Without a role it may do all, without a principal its bearer is as anonymous as other clients."""
    text = (
        f"# people\n{OPERATOR}\n\n  {MONITORING}  read \nabcdefghijklmnop change User:CN=a b,O=c \n"
    )
    assert read_tokens(write(tmp_path / "tokens", text)) == (
        Token(OPERATOR, Role.CHANGE, "User:ANONYMOUS"),
        Token(MONITORING, Role.READ, "User:ANONYMOUS"),
        Token("abcdefghijklmnop", Role.CHANGE, "User:CN=a b,O=c"),
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "has no token"),
        ("# nothing\n", "has no token"),
        ("#\nhunter2hunter2x", "line 2: takes TOKEN"),  # too short
        (f"{OPERATOR} write", "line 1: takes TOKEN"),
        (f"{OPERATOR} read alice", "line 1: takes TOKEN"),
        (f"{OPERATOR} read User:\x1b[31m", "line 1: takes TOKEN"),
        (f"{OPERATOR},{OPERATOR}", "line 1: takes TOKEN"),
        (f"{OPERATOR}\n{OPERATOR} read", "line 2: this token is there twice"),
        ("x" * 70_000, "more than"),
        ("\ufeff" + OPERATOR, "line 1: takes TOKEN"),
    ],
)
def test_a_mistake_is_named_by_its_line(tmp_path: Path, text: str, error: str) -> None:
    """The message repeats nothing of the file."""
    with pytest.raises(ConfigError, match=error) as caught:
        read_tokens(write(tmp_path / "tokens", text))
    assert str(caught.value).startswith("admin_token_file: ")
    assert "hunter2" not in str(caught.value)
    assert OPERATOR not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """With the system's reason."""
    with pytest.raises(ConfigError, match=r"cannot read .*/none: No such file"):
        read_tokens(str(tmp_path / "none"))


async def test_a_changed_file_holds_for_the_next_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A token that was removed is refused without a restart; a file with a mistake changes nothing."""
    monkeypatch.setattr(module, "LOOK_INTERVAL_S", 0.0)
    path = tmp_path / "tokens"
    tokens = Tokens(write(path, OPERATOR))
    assert await tokens.find(OPERATOR) is not None
    write(path, f"{MONITORING} read")
    assert await tokens.find(OPERATOR) is None
    found = await tokens.find(MONITORING)
    assert found is not None
    assert found.role is Role.READ
    write(path, "short")
    assert await tokens.find(MONITORING) is not None
    assert "the tokens in use stay: admin_token_file: " in caplog.text
    path.unlink()
    assert await tokens.find(MONITORING) is not None


@pytest.mark.parametrize("given", ["", OPERATOR[:-1], OPERATOR + "x", "\udcff", OPERATOR.lower()])
async def test_only_the_whole_token_is_one(tmp_path: Path, given: str) -> None:
    """Neither a part of it nor anything else."""
    assert await Tokens(write(tmp_path / "tokens", OPERATOR)).find(given) is None
