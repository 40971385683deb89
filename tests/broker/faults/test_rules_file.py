"""Files of rules: JSON and TOML, and the one line that refuses the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from echoless.broker.config.loading import Config, ConfigError
from echoless.broker.faults.rules_file import read_rules_file
from echoless.broker.serve import EXIT_BAD_CONFIGURATION, main

JSON = '{"name": "a", "action": {"type": "slow_fsync", "ms": [5, 50]}}'
TOML = '[[rules]]\nname = "a"\naction = { type = "slow_fsync", ms = [5, 50] }\n'


def write(tmp_path: Path, name: str, text: str) -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def test_both_formats_say_the_same(tmp_path: Path) -> None:
    """One rule, a list of rules, an object with rules; TOML where the name says so."""
    rules = [
        read_rules_file(write(tmp_path, name, text), Config())
        for name, text in [
            ("a.json", JSON),
            ("b.json", f"[{JSON}]"),
            ("c.json", f'{{"rules": [{JSON}]}}'),
            ("d.toml", TOML),
        ]
    ]
    assert rules == [rules[0]] * 4
    assert rules[0][0].action.ms == (5, 50)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.json", "{", "Expecting property name"),
        ("a.toml", "rules = ", "Invalid value"),
        ("a.json", "[]", "at least one rule"),
        ("a.json", '{"action": "lose"}', "action.type takes one of"),
        ("a.json", f"[{JSON}, {JSON}]", "name 'a' is taken: it stands in the file twice"),
        (
            "a.json",
            '{"action": {"type": "cut_replica_link", "broker_id": 2}}',
            "this broker stands alone",
        ),
        ("a.json", '{"action": "expire_session"}', "at the start there is no session yet"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(
    tmp_path: Path, name: str, text: str, reason: str
) -> None:
    """One line: the option, the file, and what is wrong in it."""
    path = write(tmp_path, name, text)
    with pytest.raises(ConfigError, match=reason) as error:
        read_rules_file(path, Config())
    assert str(error.value).startswith(f"--faults: {path}: ")
    assert "\n" not in str(error.value)


def test_a_broker_does_not_start_with_a_bad_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 and one line, before anything is touched."""
    arguments = ["--data-dir", str(tmp_path / "data"), "--faults", str(tmp_path / "missing")]
    assert main(arguments) == EXIT_BAD_CONFIGURATION
    assert "--faults: cannot read" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()
