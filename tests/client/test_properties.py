"""Properties files are read as Java reads them, and passwords come from where they are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from echoless.client.command_config import PASSWORD_VARIABLE, command_security
from echoless.client.properties import read_properties
from echoless.client.security import NO_SECURITY
from echoless.client.security_options import SecurityOptionError


def test_a_file_is_read_as_java_reads_it() -> None:
    """Comments, separators, escapes, and lines that go on."""
    text = (
        "# a comment\n  ! another\n\n"
        "plain=value\n"
        "  spaced  =  value with spaces  \r\n"
        "colon:a=b\n"
        "blank value\n"
        "nothing\n"
        'sasl.jaas.config=module required \\\n    username="alice" \\\n  password="a\\\\\\\\b";\n'
        "escaped\\=\\:key=\\u00e9\\t\\\\\n"
        "last=x\\"
    )
    assert read_properties(text) == {
        "plain": "value",
        "spaced": "value with spaces  ",
        "colon": "a=b",
        "blank": "value",
        "nothing": "",
        "sasl.jaas.config": 'module required username="alice" password="a\\\\b";',
        "escaped=:key": "é\t\\",
        "last": "x",
    }


USER = "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=alice\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "client.properties"
    path.write_text(USER)
    return path


def password_of(path: Path, **more: object) -> str:
    login = command_security(str(path), **more).login  # type: ignore[arg-type]
    assert login is not None
    return login.password


def test_a_password_comes_from_the_file_the_environment_or_a_question(file: Path) -> None:
    """In this order; without any of them the error says what to do."""
    environment = {PASSWORD_VARIABLE: "of the environment"}
    asked = {"ask": lambda user: f"asked of {user}", "environment": {}}
    assert password_of(file, **asked) == "asked of alice"
    assert password_of(file, **{**asked, "environment": environment}) == "of the environment"
    with pytest.raises(
        SecurityOptionError, match=f"no sasl.password: add it, or set {PASSWORD_VARIABLE}"
    ):
        command_security(str(file), environment={})
    file.write_text(f"{USER}sasl.password=of the file\n")
    assert password_of(file, environment=environment) == "of the file"
    assert command_security(None) == NO_SECURITY


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """With the reason."""
    with pytest.raises(SecurityOptionError, match=r"cannot read .*nowhere: No such file"):
        command_security(str(tmp_path / "nowhere"))
    (tmp_path / "binary").write_bytes(b"\xff")
    with pytest.raises(SecurityOptionError, match="not UTF-8"):
        command_security(str(tmp_path / "binary"))
